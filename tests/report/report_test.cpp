#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "report/chart.h"
#include "report/page.h"

namespace millrace::report {
namespace {

size_t count(const std::string& text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

TEST(Report, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(13476839424.0), "13.5 G");
  EXPECT_EQ(short_number(999.7), "1000");
  EXPECT_EQ(short_number(9999.7), "10 k");
  EXPECT_EQ(short_number(295.3), "295");
  EXPECT_EQ(short_number(0.0123), "0.0123");
  EXPECT_EQ(short_number(-2.5e6), "−2.5 M");
  EXPECT_EQ(short_number(NAN), "-");
  EXPECT_EQ(short_bytes(33554432), "33.6 MB");
  EXPECT_EQ(short_bytes(512), "512 B");
  EXPECT_EQ(short_seconds(0.0042), "4.2 ms");
  EXPECT_EQ(short_seconds(2.5e-6), "2.5 µs");
}

TEST(Report, TextCannotBecomeMarkup) {
  EXPECT_EQ(escaped("<b>&\"\x01\xff"), "&lt;b&gt;&amp;&quot; \xEF\xBF\xBD");
  Page page("<script>", "a & b");
  page.section("</style>");
  page.table({{"<i>"}}, {{.cells = {"<u>"}}});
  const std::string html = page.html("x");
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_EQ(html.find("<i>"), std::string::npos);
  EXPECT_EQ(html.find("<u>"), std::string::npos);
  EXPECT_EQ(count(html, "</style>"), 1u);
  // One file: nothing is loaded from elsewhere.
  EXPECT_EQ(html.find("http"), std::string::npos);
}

TEST(Report, LinesLeaveOutWhatCannotBeShown) {
  LineChart chart = {.x = {.title = "x", .logarithmic = true}, .y = {.title = "y", .logarithmic = true}};
  chart.series = {{.name = "s", .points = {{1, 1}, {10, NAN}, {0, 5}, {100, 10}, {1000, -1}}}};
  const std::string svg = draw(chart);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  for (LineChart empty : {LineChart{}, LineChart{.x = {.logarithmic = true}, .y = {.logarithmic = true}}}) {
    empty.series = {{.name = "none", .points = {}}};
    EXPECT_EQ(draw(empty).find("nan"), std::string::npos);
  }
}

TEST(Report, BarsAreAsLongAsTheirParts) {
  BarChart chart = {.legend = {{"a", 0}}, .bars = {{"one", "1", {{1, 0}, {3, 1}}}, {"none", "", {{0, 0}}}}, .limit = 8};
  const std::string svg = draw(chart);
  EXPECT_EQ(count(svg, "height=\"18\""), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(draw(BarChart{}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace millrace::report

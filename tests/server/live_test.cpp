#include "server/live.h"

#include <gtest/gtest.h>

#include "server/page.h"

namespace millrace {
namespace {

TEST(PageMap, ACellIsAPageOrWhatMostOfSeveralAre) {
  using enum PageState;
  std::vector<PageState> pages = {free, used, shared, cached, cached, cached, used};
  PageMap map = page_map(pages, 100);
  EXPECT_EQ(map.per_cell, 1);
  EXPECT_EQ(map.cells,
            ".usccc"
            "u");
}

TEST(PageMap, LargePoolsAreDrawnInGroups) {
  using enum PageState;
  std::vector<PageState> pages = {free, used, shared, cached, cached, cached, used};
  PageMap map = page_map(pages, 3);
  EXPECT_EQ(map.per_cell, 3);
  EXPECT_EQ(map.cells.size(), 3u);
  EXPECT_EQ(map.cells.substr(1), "cu");
  EXPECT_EQ(page_map({}, 3).cells, "");
}

TEST(RecentQuantiles, CountOnlyWhatIsNew) {
  Histogram before;
  for (int i = 0; i < 1000; ++i) before.add(5.0);
  Histogram after = before;
  for (int i = 0; i < 90; ++i) after.add(0.010);
  for (int i = 0; i < 10; ++i) after.add(0.200);
  auto [p50, p95, p99] = recent_quantiles(before, after, {0.5, 0.95, 0.99});
  EXPECT_NEAR(p50, 0.010, 0.001);
  EXPECT_NEAR(p95, 0.200, 0.020);
  EXPECT_NEAR(p99, 0.200, 0.020);
  EXPECT_EQ(recent_quantiles(after, after, {0.5, 0.95, 0.99})[0], 0);
}

// A snapshot after so many steps of ten milliseconds with four sequences each.
EngineSnapshot after(int steps, double now) {
  EngineSnapshot snapshot;
  Metrics& m = snapshot.metrics;
  for (int i = 0; i < steps; ++i) {
    ++m.steps;
    m.step_seconds.add(0.01);
    m.step_tokens.add(6);
    m.step_sequences.add(4);
    m.between_tokens.add(0.01);
  }
  m.generated_tokens = 3 * steps;
  m.accepted_drafts = steps;
  m.bound_answers = 2;
  m.bound_tokens = steps;
  m.prefix_asked_tokens = 40;
  m.prefix_found_tokens = 30;
  m.prefix_second_tokens = 12;
  m.prefix_store_tokens = 5;
  m.second_pages_used = 5;
  m.running = 4;
  m.kv_used_bytes = 4 * 100 * 8;
  snapshot.now = now;
  snapshot.pages = 3;
  return snapshot;
}

TEST(LiveView, MeansAndLimitAreOfTheTimeSinceTheLastLook) {
  LiveView view;
  MeanStep seen;
  auto floor = [&](const MeanStep& step) {
    seen = step;
    return 0.004;
  };
  std::vector<PageState> pages = {PageState::used, PageState::free, PageState::cached};
  JsonObject first = view.look(after(10, 1), pages, floor, 8);
  EXPECT_TRUE(first.at("limit").is_null());  // nothing to compare with yet
  JsonObject second = view.look(after(110, 2.5), pages, floor, 8);
  EXPECT_NEAR(second.at("limit").as_double(), 0.4, 1e-9);
  EXPECT_NEAR(seen.sequences, 4, 1e-9);
  EXPECT_NEAR(seen.tokens, 6, 1e-9);
  EXPECT_NEAR(seen.context, 100, 1e-9);
  EXPECT_NEAR(second.at("step").at("ms").as_double(), 10, 1e-9);
  EXPECT_EQ(second.at("tokens_out").as_int64(), 110);
  EXPECT_EQ(second.at("itl_ms").at("count").as_int64(), 100);
  EXPECT_EQ(second.at("pages").at("map").as_string(), "u.c");
  EXPECT_EQ(second.at("pages").at("cached").as_int64(), 1);
  EXPECT_EQ(second.at("pages").at("second_used").as_int64(), 5);
  EXPECT_EQ(second.at("generated_tokens").as_int64(), 330);
  EXPECT_EQ(second.at("bound").at("answers").as_int64(), 2);
  EXPECT_EQ(second.at("bound").at("tokens").as_int64(), 110);
  EXPECT_EQ(second.at("prefix").at("asked_tokens").as_int64(), 40);
  EXPECT_EQ(second.at("prefix").at("found_tokens").as_int64(), 30);
  EXPECT_EQ(second.at("prefix").at("second_tokens").as_int64(), 12);
  EXPECT_EQ(second.at("prefix").at("store_tokens").as_int64(), 5);
  LiveView fast;
  auto slow_machine = [](const MeanStep&) { return 0.03; };
  fast.look(after(10, 1), pages, slow_machine, 8);
  EXPECT_NEAR(fast.look(after(110, 2.5), pages, slow_machine, 8).at("limit").as_double(), 3, 1e-9);  // told as it is
  JsonObject third = view.look(after(110, 4), pages, floor, 8);
  EXPECT_TRUE(third.at("limit").is_null());  // no step since
  EXPECT_EQ(third.at("step").at("ms").as_double(), 0);
}

TEST(LiveView, WithoutAFloorThereIsNoLimit) {
  LiveView view;
  view.look(after(1, 1), {}, {}, 8);
  JsonObject json = view.look(after(50, 3), {}, {}, 8);
  EXPECT_TRUE(json.at("limit").is_null());
  EXPECT_FALSE(json.at("limit_known").as_bool());
  EXPECT_EQ(json.at("pages").at("free").as_int64(), 3);
}

TEST(Page, FilesAreThereAndNameEachOther) {
  std::string_view index, script;
  for (const StaticFile& file : page_files()) {
    EXPECT_FALSE(file.bytes.empty()) << file.path;
    EXPECT_EQ(file.tag.size(), 16u);
    if (file.path == "/index.html") index = file.bytes;
    if (file.path == "/app.js") script = file.bytes;
  }
  EXPECT_TRUE(index.starts_with("<!doctype html>"));
  EXPECT_NE(index.find("./app.js"), std::string_view::npos);
  EXPECT_GT(script.size(), 10000u);
}

}  // namespace
}  // namespace millrace

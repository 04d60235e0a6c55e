#include "apps/cli/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace millrace::apps {
namespace {

TEST(Human, BytesAndCountsKeepThreeFigures) {
  EXPECT_EQ(brief_bytes(1 << 20), "1048576 bytes");
  EXPECT_EQ(brief_bytes(540'672'000'256), "503.5 GiB");
  EXPECT_EQ(counted(1, "page") + ", " + counted(0, "page") + ", " + counted(2, "page"), "1 page, 0 pages, 2 pages");
  EXPECT_EQ(counted(1, "matrix", "matrices") + ", " + counted(2, "matrix", "matrices"), "1 matrix, 2 matrices");
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(4096), "4 KiB");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(28324864), "27.0 MiB");
  EXPECT_EQ(human_bytes((uint64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(human_bytes(~uint64_t{0}), "16 EiB");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(14162304), "14.2 M");
  EXPECT_EQ(human_count(1100048384), "1.10 B");
  EXPECT_EQ(human_count(286864), "287 K");
  EXPECT_EQ(human_seconds(0.25), "250 ms");
  EXPECT_EQ(human_seconds(59.96), "60.0 s");
  EXPECT_EQ(human_seconds(3725), "1:02:05");
}

TEST(Printable, NothingFromAFileReachesTheTerminalRaw) {
  EXPECT_EQ(printable("plain ümlaut 漢字 😀"), "plain ümlaut 漢字 😀");
  EXPECT_EQ(printable("a\x1b[31mred"), "a\\x1b[31mred");
  EXPECT_EQ(printable("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_EQ(printable("a\nb\tc", true), "a\nb\tc");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // the one-character form of ESC [
  EXPECT_EQ(printable("\xFFx\xC3"), "\\xffx\\xc3");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
  EXPECT_EQ(printable("\xC0\x80"), "\\xc0\\x80");           // a longer spelling of zero
  EXPECT_EQ(valid_utf8("a\xFF\nb"), "a\xEF\xBF\xBD\nb");
}

TEST(Width, CountsCharacters) {
  EXPECT_EQ(width("abc"), 3u);
  EXPECT_EQ(width("üß漢"), 3u);
}

struct ColorCase {
  const char *choice, *no_color, *force;
  bool colored;
};

TEST(Color, FollowsTheFlagThenTheEnvironment) {
  // The test's output is no terminal, so auto is off unless forced.
  for (const ColorCase& c : {ColorCase{"always", "1", "", true},
                             {"never", "", "1", false},
                             {"auto", "", "", false},
                             {"auto", "", "1", true},
                             {"auto", "1", "1", false},
                             {"auto", "", "0", false}}) {
    ::setenv("NO_COLOR", c.no_color, 1);
    ::setenv("CLICOLOR_FORCE", c.force, 1);
    ::unsetenv("FORCE_COLOR");
    Terminal terminal(c.choice, false);
    if (!terminal.out_is_tty()) {
      EXPECT_EQ(terminal.out_paint(Style::red, "x") != "x", c.colored) << c.choice << c.no_color << c.force;
    }
  }
  ::unsetenv("NO_COLOR");
  ::unsetenv("CLICOLOR_FORCE");
}

TEST(Table, AlignsByCharacters) {
  Table table({{"name"}, {"size", Table::Align::right}});
  table.row({"übung", "7"});
  table.row({"a", "1234567"});
  testing::internal::CaptureStdout();
  table.print(Terminal("never", true));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "name      size\nübung        7\na      1234567\n");
}

TEST(Terminal, ErrorsAreOneLine) {
  testing::internal::CaptureStderr();
  Terminal("never", true).fail("first\nsecond \x1b[2J");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "millrace: first second \\x1b[2J\n");
}

TEST(Terminal, QuietSilencesRemarksOnly) {
  testing::internal::CaptureStderr();
  Terminal terminal("never", true);
  terminal.note("a remark");
  terminal.warn("a warning");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: a warning\n");
}

}  // namespace
}  // namespace millrace::apps

// format_time against C's strftime in the C locale, directive by directive, over many days.
#include <gtest/gtest.h>

#include <ctime>

#include "text/template/local_time.h"

namespace millrace {
namespace {

std::tm to_tm(const LocalTime& time) {
  using namespace std::chrono;
  std::tm tm{};
  tm.tm_year = static_cast<int>(time.date.year()) - 1900;
  tm.tm_mon = static_cast<int>(static_cast<unsigned>(time.date.month())) - 1;
  tm.tm_mday = static_cast<int>(static_cast<unsigned>(time.date.day()));
  tm.tm_hour = time.hour;
  tm.tm_min = time.minute;
  tm.tm_sec = time.second;
  tm.tm_wday = static_cast<int>(weekday(sys_days(time.date)).c_encoding());
  tm.tm_yday = static_cast<int>((sys_days(time.date) - sys_days(time.date.year() / January / 1)).count());
  return tm;
}

TEST(FormatTime, AgreesWithC) {
  const char* formats[] = {"%a",  "%A",  "%b",        "%B",   "%h",  "%c",  "%C",   "%d",  "%D",    "%e",   "%F",
                           "%g",  "%G",  "%H",        "%I",   "%j",  "%k",  "%l",   "%m",  "%M",    "%n",   "%p",
                           "%P",  "%r",  "%R",        "%S",   "%t",  "%T",  "%u",   "%U",  "%V",    "%w",   "%W",
                           "%x",  "%X",  "%y",        "%Y",   "%%",  "%-d", "%-m",  "%_d", "%_H",   "%05d", "%^a",
                           "%^B", "%#p", "%-I:%M %p", "%10Y", "%Ey", "%Od", "a%db", "%-j", "%010A", "%5B"};
  for (int day = 0; day < 366 * 12; day += 5) {
    LocalTime time;
    time.date = std::chrono::sys_days(std::chrono::year(2018) / 12 / 20) + std::chrono::days(day);
    time.hour = day % 24;
    time.minute = day % 60;
    time.second = (day * 7) % 60;
    std::tm tm = to_tm(time);
    for (const char* format : formats) {
      char expected[200];
      expected[std::strftime(expected, sizeof(expected), format, &tm)] = '\0';
      EXPECT_EQ(format_time(time, format), expected) << format << " on day " << day;
    }
  }
}

TEST(FormatTime, PythonsOwnAndUnknown) {
  LocalTime time;
  time.microsecond = 42;
  EXPECT_EQ(format_time(time, "%f"), "000042");
  EXPECT_EQ(format_time(time, "[%z%Z]"), "[]");
  EXPECT_EQ(format_time(time, "%Q %"), "%Q %");
}

TEST(FormatTime, NowIsNow) {
  std::time_t before = std::time(nullptr);
  LocalTime now = local_now();
  std::tm tm = to_tm(now);
  tm.tm_isdst = -1;
  std::time_t then = std::mktime(&tm);
  EXPECT_GE(then, before - 1);
  EXPECT_LE(then, before + 60);
}

}  // namespace
}  // namespace millrace

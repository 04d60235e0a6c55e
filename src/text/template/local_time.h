// A moment as a calendar on the wall shows it, without a time zone, and its text. Pure functions; any thread.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace millrace {

struct LocalTime {
  std::chrono::year_month_day date = std::chrono::year(1970) / 1 / 1;
  int hour = 0, minute = 0, second = 0, microsecond = 0;
};

// The system clock's time in the system's time zone.
LocalTime local_now();

// What C's strftime writes in the C locale, with glibc's flags and widths (`%-d`), and Python's %f. Time zones are
// empty. Directives it does not know stay as they are.
std::string format_time(const LocalTime& time, std::string_view format);

}  // namespace millrace

#include "text/template/local_time.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

namespace millrace {
namespace {

using namespace std::chrono;

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

struct Calendar {
  int year, month, day, weekday, day_of_year;  // weekday from Sunday, day_of_year from 0
};

Calendar calendar(const LocalTime& time) {
  sys_days days(time.date);
  sys_days new_year(time.date.year() / January / 1);
  return {static_cast<int>(time.date.year()), static_cast<int>(static_cast<unsigned>(time.date.month())),
          static_cast<int>(static_cast<unsigned>(time.date.day())), static_cast<int>(weekday(days).c_encoding()),
          static_cast<int>((days - new_year).count())};
}

int days_in_year(int y) { return year(y).is_leap() ? 366 : 365; }

struct IsoWeek {
  int year, week;
};

IsoWeek iso_week(const Calendar& c) {
  int monday_based = (c.weekday + 6) % 7;
  int week = (c.day_of_year - monday_based + 10) / 7;
  if (week < 1) {
    Calendar last_year{c.year - 1, 12, 31, (c.weekday - c.day_of_year + 6 + 7 * 53) % 7, days_in_year(c.year - 1) - 1};
    return iso_week(last_year);
  }
  if (week == 53 && c.day_of_year - monday_based + 3 >= days_in_year(c.year)) return {c.year + 1, 1};
  return {c.year, week};
}

// One directive's flags: glibc's - _ 0 ^ # and a width.
struct Flags {
  char pad = '\0';
  bool upper = false, swap = false;
  int width = -1;
};

std::string number(int value, int digits, char pad, const Flags& flags) {
  if (flags.pad == '-') return fmt::format("{}", value);
  char fill = flags.pad == '_' ? ' ' : flags.pad == '0' ? '0' : pad;
  int width = std::max(digits, flags.width);
  return fill == ' ' ? fmt::format("{:>{}}", value, width) : fmt::format("{:0{}}", value, width);
}

std::string word(std::string_view text, const Flags& flags) {
  std::string out(text);
  if (flags.upper || flags.swap) {
    for (char& c : out) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    }
  }
  auto width = static_cast<size_t>(std::max(flags.width, 0));
  if (out.size() < width) out.insert(0, width - out.size(), flags.pad == '0' ? '0' : ' ');
  return out;
}

class Formatter {
 public:
  explicit Formatter(const LocalTime& time) : time_(time), calendar_(calendar(time)) {}

  std::string format(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      if (text[i] != '%') {
        out += text[i++];
        continue;
      }
      size_t start = i++;
      Flags flags = read_flags(text, i);
      if (i < text.size() && (text[i] == 'E' || text[i] == 'O')) ++i;
      bool known = i < text.size() && (date(text[i], flags, out) || clock(text[i], flags, out));
      if (i < text.size()) ++i;
      if (!known) out += text.substr(start, i - start);
    }
    return out;
  }

 private:
  static Flags read_flags(std::string_view text, size_t& i) {
    Flags flags;
    for (; i < text.size(); ++i) {
      if (text[i] == '-' || text[i] == '_' || text[i] == '0') {
        flags.pad = text[i];
      } else if (text[i] == '^') {
        flags.upper = true;
      } else if (text[i] == '#') {
        flags.swap = true;
      } else {
        break;
      }
    }
    constexpr int kMaxWidth = 100;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      flags.width = std::min(std::max(flags.width, 0) * 10 + (text[i] - '0'), kMaxWidth);
    }
    return flags;
  }

  bool date(char directive, const Flags& flags, std::string& out) {
    const Calendar& c = calendar_;
    std::string_view day = kDays[c.weekday], month = kMonths[c.month - 1];
    switch (directive) {
      case 'a':
        return out += word(day.substr(0, 3), flags), true;
      case 'A':
        return out += word(day, flags), true;
      case 'b':
      case 'h':
        return out += word(month.substr(0, 3), flags), true;
      case 'B':
        return out += word(month, flags), true;
      case 'c':
        return out += word(format("%a %b %e %H:%M:%S %Y"), flags), true;
      case 'C':
        return out += number(c.year / 100, 2, '0', flags), true;
      case 'd':
        return out += number(c.day, 2, '0', flags), true;
      case 'D':
      case 'x':
        return out += word(format("%m/%d/%y"), flags), true;
      case 'e':
        return out += number(c.day, 2, ' ', flags), true;
      case 'F':
        return out += word(format("%Y-%m-%d"), flags), true;
      case 'g':
        return out += number(iso_week(c).year % 100, 2, '0', flags), true;
      case 'G':
        return out += number(iso_week(c).year, 1, '0', flags), true;
      case 'j':
        return out += number(c.day_of_year + 1, 3, '0', flags), true;
      case 'm':
        return out += number(c.month, 2, '0', flags), true;
      case 'u':
        return out += number(c.weekday == 0 ? 7 : c.weekday, 1, '0', flags), true;
      case 'U':
        return out += number((c.day_of_year + 7 - c.weekday) / 7, 2, '0', flags), true;
      case 'V':
        return out += number(iso_week(c).week, 2, '0', flags), true;
      case 'w':
        return out += number(c.weekday, 1, '0', flags), true;
      case 'W':
        return out += number((c.day_of_year + 7 - (c.weekday + 6) % 7) / 7, 2, '0', flags), true;
      case 'y':
        return out += number(c.year % 100, 2, '0', flags), true;
      case 'Y':
        return out += number(c.year, 1, '0', flags), true;
      default:
        return false;
    }
  }

  bool clock(char directive, const Flags& flags, std::string& out) {
    int hour12 = time_.hour % 12 == 0 ? 12 : time_.hour % 12;
    std::string_view half = time_.hour < 12 ? "AM" : "PM";
    switch (directive) {
      case 'f':
        return out += fmt::format("{:06}", time_.microsecond), true;
      case 'H':
        return out += number(time_.hour, 2, '0', flags), true;
      case 'I':
        return out += number(hour12, 2, '0', flags), true;
      case 'k':
        return out += number(time_.hour, 2, ' ', flags), true;
      case 'l':
        return out += number(hour12, 2, ' ', flags), true;
      case 'M':
        return out += number(time_.minute, 2, '0', flags), true;
      case 'n':
        return out += '\n', true;
      case 'p':
        return out += flags.swap ? lowered(half) : word(half, flags), true;
      case 'P':
        return out += lowered(half), true;
      case 'r':
        return out += word(format("%I:%M:%S %p"), flags), true;
      case 'R':
        return out += word(format("%H:%M"), flags), true;
      case 'S':
        return out += number(time_.second, 2, '0', flags), true;
      case 't':
        return out += '\t', true;
      case 'T':
      case 'X':
        return out += word(format("%H:%M:%S"), flags), true;
      case 'z':
      case 'Z':
        return true;
      case '%':
        return out += '%', true;
      default:
        return false;
    }
  }

  static std::string lowered(std::string_view half) { return half == "AM" ? "am" : "pm"; }

  LocalTime time_;
  Calendar calendar_;
};

}  // namespace

LocalTime local_now() {
  auto now = system_clock::now();
  std::time_t seconds = system_clock::to_time_t(now);
  std::tm broken{};
  localtime_r(&seconds, &broken);
  auto micros = duration_cast<microseconds>(now.time_since_epoch()).count() % 1'000'000;
  LocalTime time;
  time.date = year(broken.tm_year + 1900) / month(static_cast<unsigned>(broken.tm_mon + 1)) /
              day(static_cast<unsigned>(broken.tm_mday));
  time.hour = broken.tm_hour;
  time.minute = broken.tm_min;
  time.second = broken.tm_sec;
  time.microsecond = static_cast<int>(micros);
  return time;
}

std::string format_time(const LocalTime& time, std::string_view format) { return Formatter(time).format(format); }

}  // namespace millrace

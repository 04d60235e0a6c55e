// How Python's format() and % write numbers and pad texts: the format specification mini-language.
#pragma once

#include <string>
#include <string_view>

#include "text/template/run.h"

namespace millrace::jinja {

struct FormatSpec {
  std::string fill = " ";  // one code point
  char align = '\0';       // < > = ^, or none given
  char sign = '-';         // - + or space
  bool alternate = false;  // #
  bool zero = false;       // 0 before the width
  int64_t width = 0;
  char grouping = '\0';    // , or _
  int64_t precision = -1;  // none given
  char type = '\0';
};

Result<FormatSpec> parse_format_spec(std::string_view text);
// Python's format(value, spec).
Result<std::string> format_value(Run& run, const Value& value, std::string_view spec);

// The digits of a float's magnitude in one of the styles e E f F g G; r is format() without a type.
Result<std::string> format_magnitude(double value, char type, int64_t precision, bool alternate);
// The digits of an integer's magnitude in one of the styles b o d x X.
std::string format_magnitude(uint64_t value, char type);
// Puts sign (or prefix) and digits, or a text, into a field.
Result<std::string> pad(Run& run, const std::string& sign, const std::string& body, const FormatSpec& spec,
                        char default_align);
std::string sign_text(bool negative, char sign);
inline uint64_t magnitude(int64_t value) {
  return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

}  // namespace millrace::jinja

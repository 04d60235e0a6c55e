#include "text/template/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/convert.h"

namespace millrace::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

Result<int64_t> read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  auto parsed = std::from_chars(text.data() + i, text.data() + text.size(), value);
  if (parsed.ec == std::errc::result_out_of_range) return fail("Too many decimal digits in format string");
  i = static_cast<size_t>(parsed.ptr - text.data());
  return value;
}

// "1234567" -> "1,234,567"; for binary, octal and hexadecimal in groups of four.
std::string group_digits(const std::string& digits, char separator, size_t group) {
  size_t whole = 0;
  while (whole < digits.size() && digits[whole] != '.' && digits[whole] != 'e' && digits[whole] != 'E' &&
         digits[whole] != '%') {
    ++whole;
  }
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

Result<std::string> format_text(Run& run, std::string_view text, const FormatSpec& spec) {
  if (spec.type != '\0' && spec.type != 's')
    return fail("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.sign != '-') return fail("Sign not allowed in string format specifier");
  if (spec.alternate) return fail("Alternate form (#) not allowed in string format specifier");
  if (spec.grouping != '\0') return fail("Cannot specify '{}' with 's'.", spec.grouping);
  if (spec.align == '=') return fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  return pad(run, "", std::string(text), spec, '<');
}

Result<std::string> format_integer(Run& run, const Value& value, const FormatSpec& spec) {
  if (spec.precision >= 0) return fail("Precision not allowed in integer format specifier");
  bool negative = value.is_integral() && value.as_integer() < 0;
  uint64_t size = value.is(Type::natural) ? value.as_natural() : magnitude(value.as_integer());
  char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  if (type == 'c') {
    if (negative || size > 0x10FFFF || (size >= 0xD800 && size < 0xE000)) return fail("%c arg not in range(0x110000)");
    std::string out;
    append_code_point(out, static_cast<char32_t>(size));
    return pad(run, "", out, spec, '<');
  }
  if (std::string_view("bodxX").find(type) == std::string_view::npos) {
    return fail("Unknown format code '{}' for object of type 'int'", type);
  }
  if (spec.grouping == ',' && type != 'd') return fail("Cannot specify ',' with '{}'.", type);
  std::string digits = format_magnitude(size, type);
  if (spec.grouping != '\0') digits = group_digits(digits, spec.grouping, type == 'd' ? 3 : 4);
  std::string sign = sign_text(negative, spec.sign);
  if (spec.alternate && type != 'd') sign += std::string("0") + type;
  return pad(run, sign, digits, spec, '>');
}

Result<std::string> format_real(Run& run, double value, const FormatSpec& spec) {
  char type = spec.type == 'n' ? 'g' : spec.type;
  if (type != '\0' && std::string_view("eEfFgG%").find(type) == std::string_view::npos) {
    return fail("Unknown format code '{}' for object of type 'float'", type);
  }
  double size = std::abs(value);
  std::string digits;
  if (type == '\0' && spec.precision < 0) {
    digits = real_repr(size);
  } else if (type == '\0') {
    TRY(digits, format_magnitude(size, 'r', spec.precision, spec.alternate));
  } else if (type == '%') {
    TRY(digits, format_magnitude(size * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate));
    digits += '%';
  } else {
    TRY(digits, format_magnitude(size, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate));
  }
  if (spec.grouping != '\0' && std::isfinite(value)) digits = group_digits(digits, spec.grouping, 3);
  return pad(run, sign_text(std::signbit(value) && !std::isnan(value), spec.sign), digits, spec, '>');
}

// %g: the shorter of fixed and scientific, to so many significant digits. As a float, format() without a type, the
// result always shows that it is one.
std::string general(double value, int precision, bool keep_zeros, bool as_float) {
  precision = std::max(precision, 1);
  char buffer[1400];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific, precision - 1).ptr;
  std::string text(buffer, end);
  size_t e = text.find('e');
  int exponent = 0;
  std::string_view exponent_text = std::string_view(text).substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string tail;
  if (exponent >= -4 && exponent < precision - (as_float ? 1 : 0)) {
    int decimals = precision - 1 - exponent;
    end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, decimals).ptr;
    text.assign(buffer, end);
  } else {
    tail = text.substr(e);
    text.resize(e);
  }
  if (!keep_zeros && text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  if (keep_zeros && text.find('.') == std::string::npos) text += '.';
  if (as_float && tail.empty() && text.find('.') == std::string::npos) text += ".0";
  return text + tail;
}

}  // namespace

std::string sign_text(bool negative, char sign) { return negative ? "-" : sign == '-' ? "" : std::string(1, sign); }

Result<std::string> format_magnitude(double value, char type, int64_t precision, bool alternate) {
  if (precision > kMaxPrecision) return fail("a precision of {} is more than {}", precision, kMaxPrecision);
  const bool upper_case = type == 'E' || type == 'F' || type == 'G';
  std::string out;
  if (!std::isfinite(value)) {
    out = std::isnan(value) ? "nan" : "inf";
  } else if (type == 'g' || type == 'G' || type == 'r') {
    out = general(value, static_cast<int>(precision), alternate, type == 'r');
  } else {
    char buffer[1400];
    auto style = type == 'f' || type == 'F' ? std::chars_format::fixed : std::chars_format::scientific;
    auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, style, static_cast<int>(precision)).ptr;
    out.assign(buffer, end);
    if (alternate && precision == 0) out.insert(std::min(out.find('e'), out.size()), ".");
  }
  return upper_case ? upper(out) : out;
}

std::string format_magnitude(uint64_t value, char type) {
  char buffer[72];
  int base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, base).ptr;
  std::string out(buffer, end);
  return type == 'X' ? upper(out) : out;
}

Result<std::string> pad(Run& run, const std::string& sign, const std::string& body, const FormatSpec& spec,
                        char default_align) {
  auto used = static_cast<int64_t>(count_code_points(sign) + count_code_points(body));
  char align = spec.align != '\0' ? spec.align : spec.zero && default_align == '>' ? '=' : default_align;
  const std::string fill = spec.zero && spec.align == '\0' ? "0" : spec.fill;
  int64_t gap = std::max<int64_t>(spec.width - used, 0);
  TRY_VOID(run.reserve(static_cast<uint64_t>(gap) * fill.size() + body.size()));
  auto repeated = [&](int64_t times) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += fill;
    return out;
  };
  if (align == '<') return sign + body + repeated(gap);
  if (align == '=') return sign + repeated(gap) + body;
  if (align == '^') return repeated(gap / 2) + sign + body + repeated(gap - gap / 2);
  return repeated(gap) + sign + body;
}

Result<FormatSpec> parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t i = 0;
  size_t after_fill = 0;
  if (!text.empty()) next_code_point(text, after_fill);
  if (!text.empty() && after_fill < text.size() && is_align(text[after_fill])) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    i = after_fill + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    i = 1;
  }
  auto at = [&](std::string_view any) { return i < text.size() && any.find(text[i]) != std::string_view::npos; };
  if (at("+- ")) spec.sign = text[i++];
  if (at("#")) spec.alternate = (++i, true);
  if (at("0")) {
    spec.zero = true;
    ++i;
    // A fill that was given together with an alignment stays.
  }
  if (at("0123456789")) {
    TRY(spec.width, read_number(text, i));
  }
  if (at(",_")) spec.grouping = text[i++];
  if (at(".")) {
    ++i;
    if (!at("0123456789")) return fail("Format specifier missing precision");
    TRY(spec.precision, read_number(text, i));
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) return fail("Invalid format specifier '{}'", text);
  return spec;
}

Result<std::string> format_value(Run& run, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(run, value);
  if (!value.is_text() && !value.is_number()) {
    return fail("unsupported format string passed to {}.__format__", type_name(value));
  }
  TRY(FormatSpec spec, parse_format_spec(text));
  if (value.is_text()) return format_text(run, text_of(value), spec);
  if (value.is(Type::real)) return format_real(run, value.as_real(), spec);
  bool as_real = spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  return as_real ? format_real(run, number_as_real(value), spec) : format_integer(run, value, spec);
}

}  // namespace millrace::jinja

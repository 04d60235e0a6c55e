#include "text/template/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/function.h"
#include "text/template/iterate.h"
#include "text/template/loop.h"
#include "text/template/macro.h"

namespace millrace::jinja {

Result<bool> truthy(Run& run, const Value& value) {
  switch (value.type()) {
    case Type::missing:
    case Type::none:
    case Type::undefined:
      return false;
    case Type::boolean:
    case Type::integer:
      return value.as_integer() != 0;
    case Type::real:
      return value.as_real() != 0;
    case Type::text:
      return !text_of(value).empty();
    default:
      if (!has_length(value)) return true;
      TRY(int64_t count, length(run, value));
      return count != 0;
  }
}

bool has_length(const Value& value) {
  switch (value.type()) {
    case Type::text:
    case Type::list:
    case Type::tuple:
    case Type::dict:
    case Type::undefined:
    case Type::range:
    case Type::view:
    case Type::loop:
      return true;
    default:
      return false;
  }
}

Result<int64_t> length(Run& run, const Value& value) {
  switch (value.type()) {
    case Type::text:
      return static_cast<int64_t>(value.as<Text>().length());
    case Type::list:
    case Type::tuple:
      return static_cast<int64_t>(items_of(value).size());
    case Type::dict:
      return static_cast<int64_t>(value.as<Dict>().entries.size());
    case Type::undefined:
      return 0;
    case Type::range:
      return value.as<Range>().count;
    case Type::view:
      return static_cast<int64_t>(value.as<View>().dict->entries.size());
    case Type::loop:
      return value.as<Loop>().length(run);
    default:
      return fail("object of type '{}' has no len()", type_name(value));
  }
}

Result<int64_t> to_integer(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_integer();
  if (value.is_undefined()) return undefined_error(value);
  if (value.is(Type::natural)) return fail("{} {} is too large", what, value.as_natural());
  return fail("{} should be an int, but is '{}'", what, type_name(value));
}

Result<int64_t> to_integer_or(const Value& value, std::string_view what, int64_t otherwise) {
  if (value.is_missing() || value.is(Type::none)) return otherwise;
  return to_integer(value, what);
}

Result<std::string_view> to_text(const Value& value, std::string_view what) {
  if (value.is_text()) return std::string_view(text_of(value));
  if (value.is_undefined()) return undefined_error(value);
  return fail("{} should be a str, but is '{}'", what, type_name(value));
}

double number_as_real(const Value& number) {
  if (number.is(Type::real)) return number.as_real();
  if (number.is(Type::natural)) return static_cast<double>(number.as_natural());
  return static_cast<double>(number.as_integer());
}

namespace {

// Python allows single underscores between digits of numbers in strings.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    auto is_digit_like = [](char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); };
    if (i == 0 || i + 1 >= text.size() || !is_digit_like(text[i - 1]) || !is_digit_like(text[i + 1])) return {};
  }
  return out;
}

}  // namespace

std::optional<double> parse_real(std::string_view text) {
  text = strip(text);
  auto digits = without_underscores(text);
  if (!digits) return {};
  std::string_view rest = *digits;
  bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest.front() == '-' || rest.front() == '+') return {};
  std::string word = lower(rest);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (word == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (rest.front() != '.' && (rest.front() < '0' || rest.front() > '9')) return {};
    auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (parsed.ptr != rest.data() + rest.size() || parsed.ec == std::errc::invalid_argument) return {};
    if (parsed.ec == std::errc::result_out_of_range) {
      bool tiny = word.find("e-") != std::string::npos || word.starts_with("0.") || word.starts_with('.');
      value = tiny ? 0 : std::numeric_limits<double>::infinity();
    }
  }
  return negative ? -value : value;
}

Result<std::optional<int64_t>> parse_integer(std::string_view text, int base) {
  const std::optional<int64_t> none;
  if (base != 0 && (base < 2 || base > 36)) return none;
  auto digits = without_underscores(strip(text));
  if (!digits) return none;
  std::string_view rest = *digits;
  bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.size() > 2 && rest[0] == '0') {
    char kind = static_cast<char>(rest[1] | 32);
    int named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (named != 0 && (base == 0 || base == named)) {
      base = named;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) {
    base = 10;
    bool zeros = std::all_of(rest.begin(), rest.end(), [](char c) { return c == '0'; });
    if (rest.starts_with('0') && !zeros) return none;
  }
  if (rest.empty() || rest.front() == '-' || rest.front() == '+') return none;
  std::string whole = (negative ? "-" : "") + std::string(rest);
  int64_t value = 0;
  auto parsed = std::from_chars(whole.data(), whole.data() + whole.size(), value, base);
  if (parsed.ptr != whole.data() + whole.size() || parsed.ec == std::errc::invalid_argument) return none;
  if (parsed.ec == std::errc::result_out_of_range) return fail("the integer does not fit 64 bits");
  return std::optional<int64_t>(value);
}

Result<int64_t> truncate_real(double value) {
  if (std::isnan(value)) return fail("cannot convert float NaN to integer");
  if (std::isinf(value)) return fail("cannot convert float infinity to integer");
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) {
    return fail("the float {} does not fit a 64-bit integer", value);
  }
  return static_cast<int64_t>(value);
}

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto written = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  std::string out;
  if (text.starts_with('-')) {
    out = "-";
    text.remove_prefix(1);
  }
  size_t e = text.find('e');
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? "-" : "+", std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string integer_repr(const Value& integer) {
  if (integer.is(Type::natural)) return fmt::format("{}", integer.as_natural());
  return fmt::format("{}", integer.as_integer());
}

std::string text_repr(std::string_view text) {
  char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  out.reserve(text.size() + 2);
  for (size_t i = 0; i < text.size();) {
    size_t start = i;
    char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, i - start);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out + quote;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

Result<void> append_items(Run& run, const Values& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    TRY_VOID(append_repr(run, items[i], out));
  }
  return {};
}

Result<void> append_entries(Run& run, const Dict& dict, std::string& out) {
  out += '{';
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    TRY_VOID(append_repr(run, dict.entries[i].first, out));
    out += ": ";
    TRY_VOID(append_repr(run, dict.entries[i].second, out));
  }
  out += '}';
  return {};
}

Result<void> append_view(Run& run, const Value& value, std::string& out) {
  out += type_name(value);
  out += "([";
  TRY(Values items, collect(run, value));
  TRY_VOID(append_items(run, items, out));
  out += "])";
  return {};
}

Result<void> append_space(Run& run, const Space& space, std::string& out) {
  out += "<Namespace {";
  for (size_t i = 0; i < space.attributes.size(); ++i) {
    if (i > 0) out += ", ";
    out += text_repr(space.attributes[i].first) + ": ";
    TRY_VOID(append_repr(run, space.attributes[i].second, out));
  }
  out += "}>";
  return {};
}

Result<void> append_tuple(Run& run, const Values& items, std::string& out) {
  out += '(';
  TRY_VOID(append_items(run, items, out));
  out += items.size() == 1 ? ",)" : ")";
  return {};
}

Result<void> append_loop(Run& run, Loop& loop, std::string& out) {
  TRY(int64_t count, loop.length(run));
  out += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, count);
  return {};
}

std::string range_repr(const Range& range) {
  if (range.step == 1) return fmt::format("range({}, {})", range.start, range.stop);
  return fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
}

std::string object_repr(const Value& value) {
  switch (value.type()) {
    case Type::undefined:
      return "Undefined";
    case Type::range:
      return range_repr(value.as<Range>());
    case Type::iterator:
      return fmt::format("<generator object {}>", value.as<Iterator>().name);
    case Type::macro:
      return value.as<Macro>().node->name.empty() ? "<Macro anonymous>"
                                                  : fmt::format("<Macro '{}'>", value.as<Macro>().node->name);
    case Type::function:
      return fmt::format("<function {}>", value.as<Function>().builtin->name);
    default:
      return fmt::format("<{} object>", type_name(value));
  }
}

}  // namespace

Result<void> append_repr(Run& run, const Value& value, std::string& out) {
  ENTER_LEVEL(run);
  TRY_VOID(run.step());
  switch (value.type()) {
    case Type::none:
      out += "None";
      return {};
    case Type::boolean:
      out += value.as_integer() != 0 ? "True" : "False";
      return {};
    case Type::integer:
    case Type::natural:
      out += integer_repr(value);
      return {};
    case Type::real:
      out += real_repr(value.as_real());
      return {};
    case Type::text: {
      const auto& text = value.as<Text>();
      TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
      TRY_VOID(run.room_for(out.size() + text.bytes_utf8.size()));
      out += text.markup ? "Markup(" + text_repr(text.bytes_utf8) + ")" : text_repr(text.bytes_utf8);
      return {};
    }
    case Type::list:
      out += '[';
      TRY_VOID(append_items(run, value.as<List>().items, out));
      out += ']';
      return {};
    case Type::tuple:
      return append_tuple(run, value.as<Tuple>().items, out);
    case Type::dict:
      return append_entries(run, value.as<Dict>(), out);
    case Type::view:
      return append_view(run, value, out);
    case Type::space:
      return append_space(run, value.as<Space>(), out);
    case Type::loop:
      return append_loop(run, value.as<Loop>(), out);
    default:
      out += object_repr(value);
      return {};
  }
}

Result<std::string> to_repr(Run& run, const Value& value) {
  std::string out;
  TRY_VOID(append_repr(run, value, out));
  return out;
}

Result<std::string> to_str(Run& run, const Value& value) {
  if (value.is_text()) {
    TRY_VOID(run.reserve(text_of(value).size()));
    return text_of(value);
  }
  if (value.is_undefined() || value.is_missing()) return std::string();
  return to_repr(run, value);
}

}  // namespace millrace::jinja

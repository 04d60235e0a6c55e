// Filters about numbers, and default values.
#include <charconv>
#include <cmath>

#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/number_format.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

Result<Value> absolute(Run& run, const Value& input, Values&) {
  if (input.is(Type::real)) return Value::real(std::abs(input.as_real()));
  if (input.is(Type::natural)) return input;
  if (!input.is_integral()) return fail("bad operand type for abs(): '{}'", type_name(input));
  return unary(run, input.as_integer() < 0 ? UnaryOperator::negative : UnaryOperator::positive, input);
}

// int(float(value)), which lets "42.23" be 42; nothing where Python raises a ValueError or TypeError.
Result<std::optional<Value>> integer_by_way_of_real(const Value& input) {
  std::optional<double> number;
  if (input.is_text()) number = parse_real(text_of(input));
  if (input.is(Type::real)) number = input.as_real();
  if (!number || std::isnan(*number)) return std::optional<Value>();
  TRY(int64_t whole, truncate_real(*number));
  return std::optional<Value>(Value::integer(whole));
}

Result<Value> to_int(Run& run, const Value& input, Values& arguments) {
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is(Type::natural)) return input;
  if (input.is_undefined()) return undefined_error(input);
  TRY(int64_t base, to_integer_or(arguments[1], "the base", 10));
  if (input.is_text()) {
    TRY_VOID(run.read_bytes(text_of(input).size()));
    TRY(auto parsed, parse_integer(text_of(input), base >= 0 && base <= 36 ? static_cast<int>(base) : 1));
    if (parsed) return Value::integer(*parsed);
  }
  TRY(auto by_real, integer_by_way_of_real(input));
  if (by_real) return *by_real;
  return arguments[0].is_missing() ? Value::integer(0) : arguments[0];
}

Result<Value> to_float(Run& run, const Value& input, Values& arguments) {
  if (input.is_number()) return Value::real(number_as_real(input));
  if (input.is_undefined()) return undefined_error(input);
  if (input.is_text()) {
    TRY_VOID(run.read_bytes(text_of(input).size()));
    if (auto parsed = parse_real(text_of(input))) return Value::real(*parsed);
  }
  return arguments[0].is_missing() ? Value::real(0) : arguments[0];
}

// Python's round(float, digits): to the nearest decimal, exact ties to even, from the exact binary value.
double round_real(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -310) return std::copysign(0.0, value);
  char buffer[800];
  if (digits >= 0) {
    auto end =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, static_cast<int>(digits)).ptr;
    double rounded = value;
    std::from_chars(buffer, end, rounded);
    return rounded;
  }
  double unit = std::pow(10.0, static_cast<double>(-digits));
  double scaled = value / unit;
  double whole = std::nearbyint(scaled);
  return std::copysign(whole * unit, value);
}

Result<Value> round_integer(const Value& input, int64_t digits) {
  if (digits >= 0) return input.is(Type::boolean) ? Value::integer(input.as_integer()) : input;
  if (!input.is_integral()) return fail("the integer is too large to round");
  if (digits < -18) return Value::integer(0);
  int64_t unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  int64_t value = input.as_integer();
  int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  int64_t lower_multiple = 0;
  if (__builtin_sub_overflow(value, rest, &lower_multiple)) return fail("the rounded integer does not fit 64 bits");
  bool up = rest > unit - rest || (rest == unit - rest && (lower_multiple / unit) % 2 != 0);
  int64_t rounded = lower_multiple;
  if (up && __builtin_add_overflow(lower_multiple, unit, &rounded)) {
    return fail("the rounded integer does not fit 64 bits");
  }
  return Value::integer(rounded);
}

Result<Value> round_up_or_down(Run& run, const Value& input, const Value& precision, bool up) {
  TRY(Value unit, binary(run, BinaryOperator::power, Value::integer(10), precision));
  TRY(Value scaled, binary(run, BinaryOperator::multiply, input, unit));
  Value whole = scaled;
  if (scaled.is(Type::real)) {
    double exact = scaled.as_real();
    TRY(int64_t cut, truncate_real(up ? std::ceil(exact) : std::floor(exact)));
    whole = Value::integer(cut);
  }
  return binary(run, BinaryOperator::divide, whole, unit);
}

Result<Value> round_filter(Run& run, const Value& input, Values& arguments) {
  Value precision = arguments[0].is_missing() ? Value::integer(0) : arguments[0];
  std::string method = "common";
  if (!arguments[1].is_missing()) {
    TRY(std::string_view given, to_text(arguments[1], "method"));
    method = given;
  }
  if (method != "common" && method != "ceil" && method != "floor") return fail("method must be common, ceil or floor");
  if (input.is_undefined()) return undefined_error(input);
  if (!input.is_number()) return fail("type {} doesn't define __round__ method", type_name(input));
  if (method != "common") return round_up_or_down(run, input, precision, method == "ceil");
  if (precision.is(Type::none)) {
    if (!input.is(Type::real)) return round_integer(input, 0);
    TRY(int64_t whole, truncate_real(std::nearbyint(input.as_real())));
    return Value::integer(whole);
  }
  TRY(int64_t digits, to_integer(precision, "the precision"));
  return input.is(Type::real) ? Value::real(round_real(input.as_real(), digits)) : round_integer(input, digits);
}

Result<Value> file_size(Run& run, const Value& input, Values& arguments) {
  TRY(bool binary_units, truthy(run, arguments[0]));
  double bytes = 0;
  if (input.is_text()) {
    auto parsed = parse_real(text_of(input));
    if (!parsed) return fail("could not convert string to float: {}", text_repr(text_of(input)));
    bytes = *parsed;
  } else if (input.is_number()) {
    bytes = number_as_real(input);
  } else {
    return input.is_undefined() ? undefined_error(input) : fail("'{}' is no number of bytes", type_name(input));
  }
  const double base = binary_units ? 1024 : 1000;
  static constexpr std::string_view kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr std::string_view kBinaryUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  if (bytes == 1) return run.heap.text("1 Byte");
  if (bytes < base) {
    TRY(int64_t whole, truncate_real(bytes));
    return run.heap.text(fmt::format("{} Bytes", whole));
  }
  double unit = base;
  size_t i = 0;
  for (; i < 8; ++i) {
    unit *= base;
    if (bytes < unit) break;
  }
  i = std::min<size_t>(i, 7);
  TRY(std::string number, format_magnitude(base * bytes / unit, 'f', 1, false));
  return run.heap.text(fmt::format("{} {}", number, binary_units ? kBinaryUnits[i] : kUnits[i]));
}

Result<Value> default_filter(Run& run, const Value& input, Values& arguments) {
  TRY(bool boolean, truthy(run, arguments[1]));
  bool absent = input.is_undefined();
  if (!absent && boolean) {
    TRY(bool value, truthy(run, input));
    absent = !value;
  }
  if (!absent) return input;
  return arguments[0].is_missing() ? run.heap.text("") : arguments[0];
}

const FilterEntry kFilters[] = {
    {"abs", {}, 0, absolute},
    {"int", {"default", "base"}, 0, to_int},
    {"float", {"default"}, 0, to_float},
    {"round", {"precision", "method"}, 0, round_filter},
    {"filesizeformat", {"binary"}, 0, file_size},
    {"default", {"default_value", "boolean"}, 0, default_filter},
    {"d", {"default_value", "boolean"}, 0, default_filter},
};

}  // namespace

std::span<const FilterEntry> number_filters() { return kFilters; }

}  // namespace millrace::jinja

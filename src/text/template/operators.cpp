#include "text/template/operators.h"

#include <algorithm>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/iterate.h"
#include "text/template/percent_format.h"

namespace millrace::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

Error unsupported(BinaryOperator op, const Value& left, const Value& right) {
  return fail("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<size_t>(op)], type_name(left),
              type_name(right));
}

Error overflow() { return fail("the result of an integer operation does not fit 64 bits"); }

int64_t floor_modulo(int64_t a, int64_t b) {
  int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::add:
      return __builtin_add_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result);
    case BinaryOperator::subtract:
      return __builtin_sub_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result);
    case BinaryOperator::multiply:
      return __builtin_mul_overflow(a, b, &result) ? Result<Value>(overflow()) : Value::integer(result);
    case BinaryOperator::divide:
      if (b == 0) return fail("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOperator::floor_divide:
      if (b == 0) return fail("integer division or modulo by zero");
      if (b == -1)
        return __builtin_sub_overflow(int64_t{0}, a, &result) ? Result<Value>(overflow()) : Value::integer(result);
      return Value::integer(a / b - (floor_modulo(a, b) != 0 && (a < 0) != (b < 0) ? 1 : 0));
    case BinaryOperator::modulo:
      if (b == 0) return fail("integer division or modulo by zero");
      return Value::integer(floor_modulo(a, b));
    case BinaryOperator::power:
      return integer_power(a, b);
  }
  return overflow();
}

double real_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// Python's float floor division: from the exact remainder, so that it agrees with it.
double real_floor_divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Result<Value> real_power(double a, double b) {
  if (a == 0 && b < 0) return fail("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return fail("the power would be a complex number");
  }
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return fail("Numerical result out of range");
  return Value::real(result);
}

Result<Value> real_arithmetic(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::add:
      return Value::real(a + b);
    case BinaryOperator::subtract:
      return Value::real(a - b);
    case BinaryOperator::multiply:
      return Value::real(a * b);
    case BinaryOperator::divide:
      if (b == 0) return fail("float division by zero");
      return Value::real(a / b);
    case BinaryOperator::floor_divide:
      if (b == 0) return fail("float floor division by zero");
      return Value::real(real_floor_divide(a, b));
    case BinaryOperator::modulo:
      if (b == 0) return fail("float modulo");
      return Value::real(real_modulo(a, b));
    case BinaryOperator::power:
      return real_power(a, b);
  }
  return overflow();
}

Result<Value> concatenate_texts(Run& run, const Value& left, const Value& right) {
  const auto& a = left.as<Text>();
  const auto& b = right.as<Text>();
  if (a.markup != b.markup) {
    TRY(std::string x, escaped(run, left));
    TRY(std::string y, escaped(run, right));
    return run.heap.text(x + y, true);
  }
  TRY_VOID(run.reserve(a.bytes_utf8.size() + b.bytes_utf8.size()));
  std::string out;
  out.reserve(a.bytes_utf8.size() + b.bytes_utf8.size());
  out += a.bytes_utf8;
  out += b.bytes_utf8;
  return run.heap.text(std::move(out), a.markup);
}

Result<Value> concatenate_lists(Run& run, const Value& left, const Value& right) {
  const Values& a = items_of(left);
  const Values& b = items_of(right);
  TRY_VOID(run.reserve((a.size() + b.size()) * sizeof(Value)));
  TRY_VOID(run.step(a.size() + b.size()));
  Values items = a;
  items.insert(items.end(), b.begin(), b.end());
  return left.is(Type::list) ? run.heap.list(std::move(items)) : run.heap.tuple(std::move(items));
}

Result<Value> repeat(Run& run, const Value& sequence, const Value& times) {
  TRY(int64_t wanted, to_integer(times, "the number of repetitions"));
  auto count = static_cast<uint64_t>(std::max<int64_t>(wanted, 0));
  const bool is_text = sequence.is_text();
  uint64_t unit = is_text ? text_of(sequence).size() : items_of(sequence).size() * sizeof(Value);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(unit, count, &bytes)) bytes = std::numeric_limits<uint64_t>::max();
  TRY_VOID(run.reserve(bytes));
  if (unit == 0) count = 0;
  if (is_text) {
    std::string out;
    out.reserve(bytes);
    for (uint64_t i = 0; i < count; ++i) out += text_of(sequence);
    TRY_VOID(run.step(count / 8));
    return run.heap.text(std::move(out), sequence.as<Text>().markup);
  }
  TRY_VOID(run.step(bytes / sizeof(Value)));
  const Values& items = items_of(sequence);
  Values out;
  out.reserve(items.size() * count);
  for (uint64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return sequence.is(Type::list) ? run.heap.list(std::move(out)) : run.heap.tuple(std::move(out));
}

bool is_sequence(const Value& value) { return value.is_text() || value.is(Type::list) || value.is(Type::tuple); }

Result<bool> equal_sequences(Run& run, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    TRY(bool same, equal(run, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Run& run, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    TRY_VOID(check_key(run, key));
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    TRY(bool same, equal(run, value, *other));
    if (!same) return false;
  }
  return true;
}

// Views of keys and of items are sets; a view of values equals only itself.
Result<bool> equal_views(Run& run, const View& a, const View& b) {
  if (a.part == View::Kind::values || b.part != a.part) return false;
  if (a.part == View::Kind::items) return equal_dicts(run, *a.dict, *b.dict);
  if (a.dict->entries.size() != b.dict->entries.size()) return false;
  for (const auto& [key, value] : a.dict->entries) {
    TRY_VOID(check_key(run, key));
    if (b.dict->find(key) == nullptr) return false;
  }
  return true;
}

Result<int> order_sequences(Run& run, const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    TRY(bool same, equal(run, a[i], b[i]));
    if (same) continue;
    TRY(bool before, less(run, a[i], b[i]));
    return before ? -1 : 1;
  }
  return a.size() < b.size() ? -1 : a.size() > b.size() ? 1 : 0;
}

// -1, 0 or 1; 2 where neither holds, because one is NaN.
Result<int> order(Run& run, Comparison op, const Value& left, const Value& right) {
  ENTER_LEVEL(run);
  if (left.is_number() && right.is_number()) {
    bool unordered =
        (left.is(Type::real) && std::isnan(left.as_real())) || (right.is(Type::real) && std::isnan(right.as_real()));
    return unordered ? 2 : compare_numbers(left, right);
  }
  if (left.is_text() && right.is_text()) {
    TRY_VOID(run.move_bytes(std::min(text_of(left).size(), text_of(right).size())));
    int by_bytes = text_of(left).compare(text_of(right));
    return by_bytes < 0 ? -1 : by_bytes > 0 ? 1 : 0;
  }
  if (left.type() == right.type() && (left.is(Type::list) || left.is(Type::tuple))) {
    return order_sequences(run, items_of(left), items_of(right));
  }
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return fail("'{}' not supported between instances of '{}' and '{}'", kNames[static_cast<size_t>(op)], type_name(left),
              type_name(right));
}

}  // namespace

Result<std::string> escaped(Run& run, const Value& value) {
  TRY(std::string text, to_str(run, value));
  if (value.is_text() && value.as<Text>().markup) return text;
  TRY_VOID(run.read_bytes(text.size()));
  TRY_VOID(run.room_for(text.size() * 5));
  return escape_html(text);
}

Result<Value> unary(Run& run, UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::negation) {
    TRY(bool value, truthy(run, operand));
    return Value::boolean(!value);
  }
  if (operand.is_undefined()) return undefined_error(operand);
  const bool negative = op == UnaryOperator::negative;
  if (operand.is(Type::real)) return Value::real(negative ? -operand.as_real() : operand.as_real());
  if (operand.is_integral()) {
    if (!negative) return Value::integer(operand.as_integer());
    return integer_arithmetic(BinaryOperator::subtract, 0, operand.as_integer());
  }
  if (operand.is(Type::natural)) return overflow();
  return fail("bad operand type for unary {}: '{}'", negative ? "-" : "+", type_name(operand));
}

Result<Value> binary(Run& run, BinaryOperator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return integer_arithmetic(op, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) {
    if (!left.is(Type::real) && !right.is(Type::real)) return overflow();
    return real_arithmetic(op, number_as_real(left), number_as_real(right));
  }
  // Formatting takes an undefined value as an argument like any other.
  if (op == BinaryOperator::modulo && left.is_text()) return percent_format(run, left, right);
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  if (op == BinaryOperator::add) {
    if (left.is_text() && right.is_text()) return concatenate_texts(run, left, right);
    if (left.type() == right.type() && is_sequence(left)) return concatenate_lists(run, left, right);
    if (left.is_text()) return fail("can only concatenate str (not \"{}\") to str", type_name(right));
    if (left.is(Type::list)) return fail("can only concatenate list (not \"{}\") to list", type_name(right));
  }
  if (op == BinaryOperator::multiply) {
    if (is_sequence(left) && right.is_integral()) return repeat(run, left, right);
    if (is_sequence(right) && left.is_integral()) return repeat(run, right, left);
  }
  return unsupported(op, left, right);
}

Result<bool> equal(Run& run, const Value& left, const Value& right) {
  ENTER_LEVEL(run);
  TRY_VOID(run.step());
  if (left.is_number() && right.is_number()) {
    if ((left.is(Type::real) && std::isnan(left.as_real())) || (right.is(Type::real) && std::isnan(right.as_real()))) {
      return false;
    }
    return compare_numbers(left, right) == 0;
  }
  if (left.type() != right.type()) return false;
  if (left.is_object() && left.object() == right.object()) return true;
  switch (left.type()) {
    case Type::none:
    case Type::missing:
    case Type::undefined:
      return true;
    case Type::text: {
      const std::string& a = text_of(left);
      const std::string& b = text_of(right);
      if (a.size() != b.size()) return false;
      TRY_VOID(run.move_bytes(a.size()));
      return a == b;
    }
    case Type::list:
    case Type::tuple:
      return equal_sequences(run, items_of(left), items_of(right));
    case Type::dict:
      return equal_dicts(run, left.as<Dict>(), right.as<Dict>());
    case Type::range:
      return compare_keys(left, right) == 0;
    case Type::view:
      return equal_views(run, left.as<View>(), right.as<View>());
    default:
      return false;
  }
}

Result<bool> less(Run& run, const Value& left, const Value& right) {
  TRY_VOID(run.step());
  TRY(int order_of, order(run, Comparison::less, left, right));
  return order_of == -1;
}

Result<bool> contains(Run& run, const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::text: {
      if (!item.is_text()) {
        return fail("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      TRY_VOID(run.read_bytes(text_of(container).size()));
      return find_first(text_of(container), text_of(item)).has_value();
    }
    case Type::dict:
      TRY_VOID(check_key(run, item));
      return container.as<Dict>().find(item) != nullptr;
    case Type::view:
      if (container.as<View>().part == View::Kind::keys) {
        TRY_VOID(check_key(run, item));
        return container.as<View>().dict->find(item) != nullptr;
      }
      break;
    default:
      break;
  }
  if (!is_iterable(container)) return fail("argument of type '{}' is not iterable", type_name(container));
  TRY(Ref<Iterator> iterator, iterate(run, container));
  while (true) {
    TRY(Value each, iterator->next(run));
    if (each.is_missing()) return false;
    TRY(bool same, equal(run, each, item));
    if (same) return true;
  }
}

Result<bool> compare(Run& run, Comparison op, const Value& left, const Value& right) {
  switch (op) {
    case Comparison::equal:
      return equal(run, left, right);
    case Comparison::not_equal: {
      TRY(bool same, equal(run, left, right));
      return !same;
    }
    case Comparison::in:
      return contains(run, right, left);
    case Comparison::not_in: {
      TRY(bool inside, contains(run, right, left));
      return !inside;
    }
    default:
      break;
  }
  TRY(int order_of, order(run, op, left, right));
  if (order_of == 2) return false;
  switch (op) {
    case Comparison::less:
      return order_of < 0;
    case Comparison::less_equal:
      return order_of <= 0;
    case Comparison::greater:
      return order_of > 0;
    default:
      return order_of >= 0;
  }
}

}  // namespace millrace::jinja

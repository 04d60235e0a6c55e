#include "text/template/tests.h"

#include <algorithm>
#include <unordered_map>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/iterate.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

Result<bool> remainder_is(Run& run, const Value& value, const Value& divisor, int64_t wanted) {
  TRY(Value rest, binary(run, BinaryOperator::modulo, value, divisor));
  return equal(run, rest, Value::integer(wanted));
}

template <Comparison kOp>
Result<bool> compared(Run& run, const Value& value, const Values& arguments) {
  return compare(run, kOp, value, arguments[0]);
}

Result<bool> is_all_lower(Run& run, const Value& value, const Values&) {
  TRY(std::string text, to_str(run, value));
  TRY_VOID(run.read_bytes(text.size()));
  return is_lower_text(text);
}

Result<bool> is_all_upper(Run& run, const Value& value, const Values&) {
  TRY(std::string text, to_str(run, value));
  TRY_VOID(run.read_bytes(text.size()));
  return is_upper_text(text);
}

Result<bool> is_callable(Run&, const Value& value, const Values&) {
  switch (value.type()) {
    case Type::undefined:
    case Type::macro:
    case Type::function:
    case Type::loop:
    case Type::joiner:
      return true;
    default:
      return false;
  }
}

Result<bool> is_sequence(Run&, const Value& value, const Values&) {
  switch (value.type()) {
    case Type::text:
    case Type::list:
    case Type::tuple:
    case Type::dict:
    case Type::undefined:
    case Type::range:
      return true;
    default:
      return false;
  }
}

// Python's `is`. Numbers and texts have no identity here; they are the same if they are equal and of one type.
Result<bool> is_same(Run& run, const Value& value, const Values& arguments) {
  const Value& other = arguments[0];
  if (value.type() != other.type()) return false;
  if (value.is_object() && !value.is_text()) return value.object() == other.object();
  return equal(run, value, other);
}

Result<bool> is_filter_name(Run&, const Value& value, const Values&) {
  if (!is_hashable(value)) return fail("unhashable type: '{}'", type_name(value));
  return value.is_text() && find_filter(text_of(value)) != nullptr;
}

Result<bool> is_test_name(Run&, const Value& value, const Values&) {
  if (!is_hashable(value)) return fail("unhashable type: '{}'", type_name(value));
  return value.is_text() && find_test(text_of(value)) != nullptr;
}

const TestEntry kTests[] = {
    {"defined", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return !v.is_undefined(); }},
    {"undefined", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is_undefined(); }},
    {"none", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::none); }},
    {"boolean", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::boolean); }},
    {"true", 0,
     [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::boolean) && v.as_integer() != 0; }},
    {"false", 0,
     [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::boolean) && v.as_integer() == 0; }},
    {"integer", 0,
     [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::integer) || v.is(Type::natural); }},
    {"float", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::real); }},
    {"number", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is_number(); }},
    {"string", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is_text(); }},
    {"mapping", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is(Type::dict); }},
    {"sequence", 0, is_sequence},
    {"iterable", 0, [](Run&, const Value& v, const Values&) -> Result<bool> { return is_iterable(v); }},
    {"callable", 0, is_callable},
    {"escaped", 0,
     [](Run&, const Value& v, const Values&) -> Result<bool> { return v.is_text() && v.as<Text>().markup; }},
    {"lower", 0, is_all_lower},
    {"upper", 0, is_all_upper},
    {"odd", 0, [](Run& run, const Value& v, const Values&) { return remainder_is(run, v, Value::integer(2), 1); }},
    {"even", 0, [](Run& run, const Value& v, const Values&) { return remainder_is(run, v, Value::integer(2), 0); }},
    {"divisibleby",
     1,
     [](Run& run, const Value& v, const Values& a) { return remainder_is(run, v, a[0], 0); },
     {"num"}},
    {"sameas", 1, is_same, {"other"}},
    {"in", 1, compared<Comparison::in>, {"seq"}},
    {"filter", 0, is_filter_name},
    {"test", 0, is_test_name},
    {"==", 1, compared<Comparison::equal>},
    {"eq", 1, compared<Comparison::equal>},
    {"equalto", 1, compared<Comparison::equal>},
    {"!=", 1, compared<Comparison::not_equal>},
    {"ne", 1, compared<Comparison::not_equal>},
    {">", 1, compared<Comparison::greater>},
    {"gt", 1, compared<Comparison::greater>},
    {"greaterthan", 1, compared<Comparison::greater>},
    {">=", 1, compared<Comparison::greater_equal>},
    {"ge", 1, compared<Comparison::greater_equal>},
    {"<", 1, compared<Comparison::less>},
    {"lt", 1, compared<Comparison::less>},
    {"lessthan", 1, compared<Comparison::less>},
    {"<=", 1, compared<Comparison::less_equal>},
    {"le", 1, compared<Comparison::less_equal>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const TestEntry*> table;
    for (const TestEntry& entry : kTests) table.emplace(entry.name, &entry);
    return table;
  }();
  auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

Result<bool> call_test(Run& run, const TestEntry& test, const Value& value, Arguments& arguments) {
  TRY_VOID(run.step());
  std::span<const std::string_view> parameters(test.parameters.data(), test.arguments);
  TRY(Values values, bind_arguments(test.name, arguments, parameters, test.arguments));
  return test.call(run, value, values);
}

}  // namespace millrace::jinja

#include "text/template/access.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/interpreter.h"
#include "text/template/methods.h"
#include "text/template/operators.h"
#include "text/template/tests.h"

namespace millrace::jinja {

// Every kind of node is evaluated in a function of its own, not inlined here, to keep the stack small when they nest.
Result<Value> Interpreter::evaluate(const Expression& expression) {
  ENTER_LEVEL(run_);
  TRY_VOID(run_.step());
  run_.line = expression.line;
  return std::visit([this](const auto& node) { return evaluate_node(node); }, expression.node);
}

Result<Value> Interpreter::evaluate_or_missing(const ExpressionPtr& expression) {
  if (expression == nullptr) return Value();
  return evaluate(*expression);
}

Result<bool> Interpreter::evaluate_truth(const Expression& expression) {
  TRY(Value value, evaluate(expression));
  return truthy(run_, value);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Constant& node) {
  if (const auto* text = std::get_if<std::string>(&node.value)) {
    Value& made = constants_[node.id];
    if (made.is_missing()) made = run_.heap.text(*text);
    return made;
  }
  if (const auto* integer = std::get_if<int64_t>(&node.value)) return Value::integer(*integer);
  if (const auto* real = std::get_if<double>(&node.value)) return Value::real(*real);
  if (const auto* boolean = std::get_if<bool>(&node.value)) return Value::boolean(*boolean);
  return Value::none();
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Name& node) {
  const Value& value = frame_at(node.place.hops).slots[node.place.slot];
  return value.is_missing() ? undefined_name(run_, node.name) : value;
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const SequenceLiteral& node) {
  Values items;
  items.reserve(node.items.size());
  for (const auto& each : node.items) {
    TRY(Value item, evaluate(*each));
    items.push_back(std::move(item));
  }
  return node.is_tuple ? run_.heap.tuple(std::move(items)) : run_.heap.list(std::move(items));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const DictLiteral& node) {
  std::vector<Dict::Entry> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key_node, value_node] : node.entries) {
    TRY(Value key, evaluate(*key_node));
    TRY(Value value, evaluate(*value_node));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict(run_, std::move(entries));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Attribute& node) {
  const uint32_t line = run_.line;
  TRY(Value object, evaluate(*node.object));
  run_.line = line;
  return get_attribute(run_, object, node.name);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Item& node) {
  const uint32_t line = run_.line;
  TRY(Value object, evaluate(*node.object));
  TRY(Value key, evaluate(*node.key));
  run_.line = line;
  return get_item(run_, object, key);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Slice& node) {
  const uint32_t line = run_.line;
  TRY(Value object, evaluate(*node.object));
  TRY(Value start, evaluate_or_missing(node.start));
  TRY(Value stop, evaluate_or_missing(node.stop));
  TRY(Value step, evaluate_or_missing(node.step));
  run_.line = line;
  return get_slice(run_, object, start, stop, step);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Call& node) {
  const uint32_t line = run_.line;
  const auto* method = std::get_if<Attribute>(&node.callee->node);
  if (method != nullptr && changes_list(method->name)) {
    if (const auto* kept = std::get_if<Attribute>(&method->object->node)) return change_kept(node, *method, *kept);
  }
  TRY(Value callee, evaluate(*node.callee));
  TRY(Arguments arguments, evaluate_arguments(node.arguments));
  run_.line = line;
  return call(callee, std::move(arguments));
}

// space.name.append(...): where a namespace keeps a list, it gets another one, and nobody else's changes. Python's
// sandbox refuses it; templates of some models are written for renderers that do not.
[[gnu::noinline]] Result<Value> Interpreter::change_kept(const Call& node, const Attribute& method,
                                                         const Attribute& kept) {
  const uint32_t line = run_.line;
  TRY(Value space, evaluate(*kept.object));
  TRY(Value list, get_attribute(run_, space, kept.name));
  const bool changes = space.is(Type::space) && list.is(Type::list);
  Value callee;
  if (!changes) {
    TRY(callee, get_attribute(run_, list, method.name));
  }
  TRY(Arguments arguments, evaluate_arguments(node.arguments));
  run_.line = line;
  if (!changes) return call(callee, std::move(arguments));
  TRY(auto changed, changed_list(run_, list.as<List>(), method.name, arguments));
  space.as<Space>().set(kept.name, std::move(changed.list));
  return std::move(changed.result);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Filter& node) {
  const uint32_t line = run_.line;
  Value input = captured_;
  if (node.input != nullptr) {
    TRY(input, evaluate(*node.input));
  }
  TRY(Arguments arguments, evaluate_arguments(node.arguments));
  run_.line = line;
  if (node.entry == nullptr) return fail("No filter named '{}' found.", node.name);
  return call_filter(run_, *node.entry, input, arguments);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Test& node) {
  const uint32_t line = run_.line;
  TRY(Value input, evaluate(*node.input));
  TRY(Arguments arguments, evaluate_arguments(node.arguments));
  run_.line = line;
  if (node.entry == nullptr) return fail("No test named '{}' found.", node.name);
  TRY(bool passed, call_test(run_, *node.entry, input, arguments));
  return Value::boolean(passed);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Unary& node) {
  const uint32_t line = run_.line;
  TRY(Value operand, evaluate(*node.operand));
  run_.line = line;
  return unary(run_, node.op, operand);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Binary& node) {
  const uint32_t line = run_.line;
  TRY(Value left, evaluate(*node.left));
  TRY(Value right, evaluate(*node.right));
  run_.line = line;
  return binary(run_, node.op, left, right);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Logical& node) {
  TRY(Value left, evaluate(*node.left));
  TRY(bool value, truthy(run_, left));
  if (value != node.is_and) return left;
  return evaluate(*node.right);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Compare& node) {
  const uint32_t line = run_.line;
  TRY(Value left, evaluate(*node.first));
  for (const auto& [op, operand] : node.rest) {
    TRY(Value right, evaluate(*operand));
    run_.line = line;
    TRY(bool holds, compare(run_, op, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Concatenation& node) {
  std::string out;
  for (const auto& part : node.parts) {
    TRY(Value value, evaluate(*part));
    if (value.is_text()) {
      TRY_VOID(run_.reserve(out.size() + text_of(value).size()));
      out += text_of(value);
    } else {
      TRY(std::string text, to_str(run_, value));
      out += text;
    }
  }
  return run_.heap.text(std::move(out));
}

[[gnu::noinline]] Result<Value> Interpreter::evaluate_node(const Conditional& node) {
  const uint32_t line = run_.line;
  TRY(bool holds, evaluate_truth(*node.condition));
  if (holds) return evaluate(*node.then);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return undefined_hint(run_,
                        fmt::format("the inline if-expression on line {} evaluated to false and no else section was"
                                    " defined.",
                                    line));
}

}  // namespace millrace::jinja

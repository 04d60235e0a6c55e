// Walks a parsed template and writes its output: evaluate.cpp has the expressions, execute.cpp the statements, call.cpp
// the calls. One render, one thread.
#pragma once

#include "base/json.h"
#include "text/template/ast.h"
#include "text/template/function.h"
#include "text/template/loop.h"
#include "text/template/macro.h"

namespace millrace::jinja {

class Interpreter {
 public:
  Interpreter(const Program& program, const JsonObject& variables, const RenderLimits& limits, LocalTime now);
  Result<std::string> render();

  // For the iterator behind `{% for ... if ... %}`, which runs while others are at work.
  Result<bool> evaluate_condition(const For& loop, const Ref<Activation>& frame, const Value& item, Value& rebuilt);
  Result<void> enter_scope_of(const Scope& scope, const Ref<Activation>& frame);

 private:
  enum class Flow : uint8_t { normal, break_loop, continue_loop };

  // Expressions
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_or_missing(const ExpressionPtr& expression);
  Result<Value> evaluate_node(const Constant& node);
  Result<Value> evaluate_node(const Name& node);
  Result<Value> evaluate_node(const SequenceLiteral& node);
  Result<Value> evaluate_node(const DictLiteral& node);
  Result<Value> evaluate_node(const Attribute& node);
  Result<Value> evaluate_node(const Item& node);
  Result<Value> evaluate_node(const Slice& node);
  Result<Value> evaluate_node(const Call& node);
  Result<Value> change_kept(const Call& node, const Attribute& method, const Attribute& kept);
  Result<Value> evaluate_node(const Filter& node);
  Result<Value> evaluate_node(const Test& node);
  Result<Value> evaluate_node(const Unary& node);
  Result<Value> evaluate_node(const Binary& node);
  Result<Value> evaluate_node(const Logical& node);
  Result<Value> evaluate_node(const Compare& node);
  Result<Value> evaluate_node(const Concatenation& node);
  Result<Value> evaluate_node(const Conditional& node);
  Result<bool> evaluate_truth(const Expression& expression);

  // Calls
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> call_macro(const Macro& macro, Arguments arguments);
  Result<void> bind_macro(const MacroNode& node, Arguments& arguments, Activation& frame);
  Result<std::string> run_macro_body(const MacroNode& node, const Ref<Activation>& frame);
  Result<Value> call_loop(const Loop& loop, Arguments arguments);
  Result<std::string> run_recursive_loop(const For& node, const Value& iterable, int64_t depth,
                                         Ref<Activation> closure);

  // Statements
  Result<Flow> execute(const Body& body);
  Result<Flow> execute_node(const Output& node);
  Result<Flow> execute_node(const If& node);
  Result<Flow> execute_node(const For& node);
  Result<Flow> execute_node(const Set& node);
  Result<Flow> execute_node(const SetCapture& node);
  Result<Flow> execute_node(const MacroDefinition& node);
  Result<Flow> execute_node(const CallStatement& node);
  Result<Flow> execute_node(const Generation& node);
  Result<Flow> execute_node(const FilterStatement& node);
  Result<Flow> execute_node(const With& node);
  Result<Flow> execute_node(const Break&) { return Flow::break_loop; }
  Result<Flow> execute_node(const Continue&) { return Flow::continue_loop; }
  Result<Flow> run_loop(const For& node, const Value& iterable, int64_t depth, Ref<Activation> closure);
  Result<Flow> run_loop_items(const For& node, Iterator& iterator, Loop* loop, bool& completed);
  Result<void> assign(const Target& target, Value value);
  Result<void> emit(std::string_view text);
  Result<void> emit_text(const Value& value, std::string_view what);

  // Runs a body with its output going to a text instead; the flow says whether it ran to its end.
  Result<Flow> capture(const Body& body, std::string& into);
  Result<Value> apply_filters(const ExpressionPtr& filter, std::string captured);

  // Variables
  Result<void> enter_scope(const Scope& scope);
  void leave_scope(const Scope& scope);
  Activation& frame_at(uint32_t hops) const;
  Result<Ref<Activation>> make_frame(uint32_t slots, const Ref<Activation>& parent);
  Result<void> load_globals();

  Run run_;
  const Program& program_;
  const JsonObject& variables_;
  Ref<Activation> frame_;
  Values constants_;
  Values globals_;  // by number; missing where there is no such name
  Value captured_;  // what a filter without an input applies to
  std::string* out_ = nullptr;
  size_t buffered_ = 0;  // bytes in all texts being written
};

}  // namespace millrace::jinja

#include "text/template/convert.h"
#include "text/template/from_json.h"
#include "text/template/globals.h"
#include "text/template/interpreter.h"

namespace millrace::jinja {
namespace {

// The items of a loop that pass its `if`. It runs as a function of its own, one item at a time, as the loop asks for
// them.
struct ConditionIterator : Iterator {
  ConditionIterator(Interpreter& owner, const For& node, Ref<Iterator> items, Ref<Activation> own_frame)
      : Iterator("loop_filter"),
        interpreter(owner),
        loop(node),
        source(std::move(items)),
        frame(std::move(own_frame)) {}

  Result<Value> advance(Run& run) override {
    while (true) {
      TRY(Value item, source->next(run));
      if (item.is_missing()) return item;
      Value rebuilt;
      TRY(bool passed, interpreter.evaluate_condition(loop, frame, item, rebuilt));
      if (passed) return rebuilt;
    }
  }

  Interpreter& interpreter;
  const For& loop;
  Ref<Iterator> source;
  Ref<Activation> frame;
};

// What a loop's target holds after an assignment: the item itself, or a tuple of its parts.
Value target_value(Run& run, const Target& target, const Activation& frame) {
  if (target.kind == Target::Kind::name) return frame.slots[target.place.slot];
  Values parts;
  for (const Target& item : target.items) parts.push_back(target_value(run, item, frame));
  return run.heap.tuple(std::move(parts));
}

}  // namespace

Interpreter::Interpreter(const Program& program, const JsonObject& variables, const RenderLimits& limits, LocalTime now)
    : run_(limits, now), program_(program), variables_(variables), constants_(program.constants) {}

Result<std::string> Interpreter::render() {
  std::string text;
  out_ = &text;
  auto run_all = [&]() -> Result<void> {
    TRY(frame_, make_frame(program_.slots, {}));
    TRY_VOID(load_globals());
    TRY_VOID(enter_scope(program_.scope));
    TRY_VOID(execute(program_.body));
    return {};
  };
  if (auto done = run_all(); !done.ok()) return within(fmt::format("line {}", run_.line), std::move(done).error());
  return text;
}

Result<void> Interpreter::load_globals() {
  globals_.resize(program_.globals.size());
  for (size_t i = 0; i < globals_.size(); ++i) {
    const std::string& name = program_.globals[i];
    if (const Json* given = variables_.if_contains(boost::json::string_view(name.data(), name.size()))) {
      auto value = from_json(run_, *given);
      if (!value.ok()) return within(fmt::format("variable '{}'", name), std::move(value).error());
      globals_[i] = std::move(value).value();
    } else {
      globals_[i] = find_global(run_, name);
    }
  }
  return {};
}

Activation& Interpreter::frame_at(uint32_t hops) const {
  Activation* frame = frame_.get();
  for (; hops > 0; --hops) frame = frame->parent.get();
  return *frame;
}

Result<Ref<Activation>> Interpreter::make_frame(uint32_t slots, const Ref<Activation>& parent) {
  TRY_VOID(run_.step(1 + slots / 8));
  return run_.heap.make_ringed<Activation>(slots * sizeof(Value), slots, parent);
}

Result<void> Interpreter::enter_scope(const Scope& scope) {
  TRY_VOID(run_.step(scope.loads.size() / 4));
  for (const Load& load : scope.loads) {
    Value& slot = frame_->slots[load.slot];
    switch (load.action) {
      case Load::Action::parameter:
        break;
      case Load::Action::global:
        slot = globals_[load.global];
        break;
      case Load::Action::alias:
        slot = frame_at(load.source.hops).slots[load.source.slot];
        break;
      case Load::Action::missing:
        slot = Value();
        break;
    }
  }
  return {};
}

Result<void> Interpreter::enter_scope_of(const Scope& scope, const Ref<Activation>& frame) {
  Ref<Activation> outer = std::exchange(frame_, frame);
  TRY_VOID(enter_scope(scope));
  frame_ = std::move(outer);
  return {};
}

void Interpreter::leave_scope(const Scope& scope) {
  for (const Load& load : scope.loads) frame_->slots[load.slot] = Value();
}

Result<void> Interpreter::emit(std::string_view text) {
  TRY_VOID(run_.move_bytes(text.size()));
  buffered_ += text.size();
  if (buffered_ > run_.limits.output_bytes) {
    return fail("the template writes more than the limit of {} bytes", run_.limits.output_bytes);
  }
  *out_ += text;
  return {};
}

Result<void> Interpreter::emit_text(const Value& value, std::string_view what) {
  if (!value.is_text()) return fail("{} gave '{}' instead of text", what, type_name(value));
  return emit(text_of(value));
}

Result<Interpreter::Flow> Interpreter::capture(const Body& body, std::string& into) {
  std::string* outer = std::exchange(out_, &into);
  TRY(Flow flow, execute(body));
  out_ = outer;
  buffered_ -= into.size();
  return flow;
}

Result<Value> Interpreter::apply_filters(const ExpressionPtr& filter, std::string captured) {
  Value text = run_.heap.text(std::move(captured));
  if (filter == nullptr) return text;
  Value outer = std::exchange(captured_, text);
  TRY(Value result, evaluate(*filter));
  captured_ = std::move(outer);
  return result;
}

Result<void> Interpreter::assign(const Target& target, Value value) {
  switch (target.kind) {
    case Target::Kind::name:
      frame_at(target.place.hops).slots[target.place.slot] = std::move(value);
      return {};
    case Target::Kind::attribute: {
      const Value& space = frame_at(target.place.hops).slots[target.place.slot];
      if (!space.is(Type::space)) return fail("cannot assign attribute on non-namespace object");
      space.as<Space>().set(target.attribute, std::move(value));
      return {};
    }
    case Target::Kind::tuple:
      break;
  }
  if (!is_iterable(value)) return fail("cannot unpack non-iterable {} object", type_name(value));
  TRY(Ref<Iterator> parts, iterate(run_, value));
  for (size_t i = 0; i < target.items.size(); ++i) {
    TRY(Value part, parts->next(run_));
    if (part.is_missing()) {
      return fail("not enough values to unpack (expected {}, got {})", target.items.size(), i);
    }
    TRY_VOID(assign(target.items[i], std::move(part)));
  }
  TRY(Value extra, parts->next(run_));
  if (!extra.is_missing()) return fail("too many values to unpack (expected {})", target.items.size());
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  ENTER_LEVEL(run_);
  for (const auto& statement : body) {
    TRY_VOID(run_.step());
    run_.line = statement->line;
    TRY(Flow flow, std::visit([this](const auto& node) { return execute_node(node); }, statement->node));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const Output& node) {
  for (const auto& piece : node.pieces) {
    if (piece.expression == nullptr) {
      TRY_VOID(emit(piece.text));
      continue;
    }
    TRY(Value value, evaluate(*piece.expression));
    if (value.is_text()) {
      TRY_VOID(emit(text_of(value)));
    } else {
      TRY(std::string text, to_str(run_, value));
      TRY_VOID(emit(text));
    }
  }
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const If& node) {
  for (const auto& branch : node.branches) {
    TRY(bool holds, evaluate_truth(*branch.condition));
    if (holds) return execute(branch.body);
  }
  return execute(node.otherwise);
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const Set& node) {
  const uint32_t line = run_.line;
  TRY(Value value, evaluate(*node.value));
  run_.line = line;
  TRY_VOID(assign(node.target, std::move(value)));
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const SetCapture& node) {
  TRY_VOID(enter_scope(node.scope));
  std::string text;
  TRY(Flow flow, capture(node.body, text));
  if (flow != Flow::normal) return flow;
  TRY(Value value, apply_filters(node.filter, std::move(text)));
  TRY_VOID(assign(node.target, std::move(value)));
  leave_scope(node.scope);
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const FilterStatement& node) {
  TRY_VOID(enter_scope(node.scope));
  std::string text;
  TRY(Flow flow, capture(node.body, text));
  if (flow != Flow::normal) return flow;
  TRY(Value value, apply_filters(node.filter, std::move(text)));
  TRY_VOID(emit_text(value, "the filter"));
  leave_scope(node.scope);
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const With& node) {
  TRY_VOID(enter_scope(node.scope));
  for (const auto& [target, value_node] : node.assignments) {
    TRY(Value value, evaluate(*value_node));
    TRY_VOID(assign(target, std::move(value)));
  }
  TRY(Flow flow, execute(node.body));
  if (flow == Flow::normal) leave_scope(node.scope);
  return flow;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const MacroDefinition& node) {
  Value macro = run_.heap.make<Macro>(0, node.macro, frame_);
  frame_at(node.macro.place.hops).slots[node.macro.place.slot] = std::move(macro);
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const CallStatement& node) {
  const uint32_t line = run_.line;
  const auto& call_node = std::get<Call>(node.call->node);
  Value caller = run_.heap.make<Macro>(0, node.caller, frame_);
  TRY(Value callee, evaluate(*call_node.callee));
  TRY(Arguments arguments, evaluate_arguments(call_node.arguments));
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") return fail("got multiple values for keyword argument 'caller'");
  }
  arguments.named.emplace_back("caller", std::move(caller));
  run_.line = line;
  TRY(Value result, call(callee, std::move(arguments)));
  TRY_VOID(emit_text(result, "the call"));
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const Generation& node) {
  TRY(Ref<Activation> frame, make_frame(node.body.slots, frame_));
  Arguments none;
  TRY_VOID(bind_macro(node.body, none, *frame));
  TRY(std::string text, run_macro_body(node.body, frame));
  TRY_VOID(emit(text));
  return Flow::normal;
}

[[gnu::noinline]] Result<Interpreter::Flow> Interpreter::execute_node(const For& node) {
  const uint32_t line = run_.line;
  TRY(Value iterable, evaluate(*node.iterable));
  run_.line = line;
  if (!node.recursive) return run_loop(node, iterable, 0, frame_);
  TRY(std::string text, run_recursive_loop(node, iterable, 0, frame_));
  TRY_VOID(emit(text));
  return Flow::normal;
}

// A loop over something, in the current frame. `closure` is the frame around the loop, which is another one if the loop
// is recursive and so has its own.
Result<Interpreter::Flow> Interpreter::run_loop(const For& node, const Value& iterable, int64_t depth,
                                                Ref<Activation> closure) {
  TRY(Ref<Iterator> iterator, iterate(run_, iterable));
  Value counted = iterable;
  if (node.condition != nullptr) {
    TRY(Ref<Activation> frame, make_frame(node.condition_slots, closure));
    TRY_VOID(enter_scope_of(node.condition_scope, frame));
    counted = run_.heap.make<ConditionIterator>(0, *this, node, iterator, frame);
    iterator = Ref<Iterator>(&counted.as<Iterator>());
  }
  Ref<Loop> loop;
  if (node.uses_loop) {
    loop = run_.heap.make_ringed<Loop>(0);
    loop->iterable = counted;
    loop->iterator = iterator;
    loop->depth0 = depth;
    loop->recursive = node.recursive ? &node : nullptr;
    if (node.recursive) loop->closure = closure;
  }
  bool completed = false;
  TRY(Flow flow, run_loop_items(node, *iterator, loop.get(), completed));
  leave_scope(node.body_scope);
  if (flow != Flow::normal || completed) return flow;
  TRY_VOID(enter_scope(node.otherwise_scope));
  TRY(flow, execute(node.otherwise));
  if (flow == Flow::normal) leave_scope(node.otherwise_scope);
  return flow;
}

// `completed` tells whether a body ran to its end: Jinja's else part runs if none did, even after a break.
Result<Interpreter::Flow> Interpreter::run_loop_items(const For& node, Iterator& iterator, Loop* loop,
                                                      bool& completed) {
  while (true) {
    TRY(Value item, loop != nullptr ? loop->advance(run_) : iterator.next(run_));
    if (item.is_missing()) return Flow::normal;
    TRY_VOID(assign(node.target, std::move(item)));
    if (loop != nullptr) frame_->slots[node.loop_place.slot] = Value(static_cast<Object*>(loop));
    TRY_VOID(enter_scope(node.body_scope));
    TRY(Flow flow, execute(node.body));
    if (flow == Flow::break_loop) return Flow::normal;
    completed = completed || flow == Flow::normal;
  }
}

Result<bool> Interpreter::evaluate_condition(const For& loop, const Ref<Activation>& frame, const Value& item,
                                             Value& rebuilt) {
  Ref<Activation> outer = std::exchange(frame_, frame);
  TRY_VOID(assign(loop.condition_target, item));
  TRY(bool holds, evaluate_truth(*loop.condition));
  if (holds) rebuilt = target_value(run_, loop.condition_target, *frame);
  frame_ = std::move(outer);
  return holds;
}

}  // namespace millrace::jinja

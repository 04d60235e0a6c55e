#include "text/template/convert.h"
#include "text/template/interpreter.h"

namespace millrace::jinja {

Result<Arguments> Interpreter::evaluate_arguments(const CallArguments& node) {
  Arguments arguments;
  arguments.positional.reserve(node.positional.size());
  for (const auto& each : node.positional) {
    TRY(Value value, evaluate(*each));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, value_node] : node.named) {
    TRY(Value value, evaluate(*value_node));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (node.star != nullptr) {
    TRY(Value rest, evaluate(*node.star));
    TRY_VOID(for_each(run_, rest, [&](Value item) -> Result<void> {
      arguments.positional.push_back(std::move(item));
      return run_.room_for(arguments.positional.size() * sizeof(Value));
    }));
  }
  if (node.star_star != nullptr) {
    TRY(Value rest, evaluate(*node.star_star));
    if (!rest.is(Type::dict)) return fail("argument after ** must be a mapping, not {}", type_name(rest));
    constexpr size_t kMaxKeywords = 1000;  // they are looked up one by one
    if (rest.as<Dict>().entries.size() > kMaxKeywords) return fail("more than {} arguments after **", kMaxKeywords);
    for (const auto& [key, value] : rest.as<Dict>().entries) {
      if (!key.is_text()) return fail("keywords must be strings");
      for (const auto& [name, ignored] : node.named) {
        if (name == text_of(key)) return fail("got multiple values for keyword argument '{}'", name);
      }
      TRY_VOID(run_.step(1 + node.named.size() / 8 + text_of(key).size() / 512));
      arguments.named.emplace_back(text_of(key), value);
    }
  }
  return arguments;
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  ENTER_LEVEL(run_);
  switch (callee.type()) {
    case Type::function: {
      const auto& function = callee.as<Function>();
      return function.builtin->call(run_, function.self, arguments);
    }
    case Type::macro:
      return call_macro(callee.as<Macro>(), std::move(arguments));
    case Type::loop:
      return call_loop(callee.as<Loop>(), std::move(arguments));
    case Type::joiner: {
      TRY_VOID(positional_only("joiner", arguments, 0, 0));
      auto& joiner = callee.as<Joiner>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return run_.heap.text("");
    }
    case Type::undefined:
      return undefined_error(callee);
    default:
      return fail("'{}' object is not callable", type_name(callee));
  }
}

Result<Value> Interpreter::call_macro(const Macro& macro, Arguments arguments) {
  const MacroNode& node = *macro.node;
  TRY(Ref<Activation> frame, make_frame(node.slots, macro.closure));
  TRY_VOID(bind_macro(node, arguments, *frame));
  TRY(std::string text, run_macro_body(node, frame));
  return run_.heap.text(std::move(text));
}

// Python's order: positions, keywords by name, caller, kwargs, varargs.
Result<void> Interpreter::bind_macro(const MacroNode& node, Arguments& arguments, Activation& frame) {
  const size_t count = node.parameters.size();
  const size_t given = std::min(arguments.positional.size(), count);
  TRY_VOID(run_.step((count - given) * (1 + arguments.named.size()) / 8));
  bool found_caller = given == count && node.names_caller;
  for (size_t i = 0; i < count; ++i) {
    const auto& parameter = node.parameters[i];
    if (i >= given && parameter.name == "caller") found_caller = true;
    frame.slots[parameter.place.slot] = i < given ? arguments.positional[i] : arguments.take(parameter.name);
  }
  if (node.uses_caller && !found_caller) {
    Value caller = arguments.take("caller");
    if (caller.is_missing() || caller.is(Type::none)) caller = undefined_hint(run_, "No caller defined");
    frame.slots[node.caller_place.slot] = std::move(caller);
  }
  if (node.uses_kwargs) {
    std::vector<Dict::Entry> entries;
    for (auto& [name, value] : arguments.named) entries.emplace_back(run_.heap.text(name), std::move(value));
    TRY(frame.slots[node.kwargs_place.slot], make_dict(run_, std::move(entries)));
  } else if (!arguments.named.empty()) {
    return fail("macro '{}' takes no keyword argument '{}'", node.name, arguments.named.front().first);
  }
  if (node.uses_varargs) {
    Values rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given), arguments.positional.end());
    frame.slots[node.varargs_place.slot] = run_.heap.tuple(std::move(rest));
  } else if (arguments.positional.size() > count) {
    return fail("macro '{}' takes not more than {} argument(s)", node.name, count);
  }
  return {};
}

Result<std::string> Interpreter::run_macro_body(const MacroNode& node, const Ref<Activation>& frame) {
  Ref<Activation> caller_frame = std::exchange(frame_, frame);
  TRY_VOID(enter_scope(node.scope));
  for (const auto& parameter : node.parameters) {
    Value& value = frame->slots[parameter.place.slot];
    if (!value.is_missing()) continue;
    if (parameter.otherwise == nullptr) {
      value = undefined_hint(run_, fmt::format("parameter '{}' was not provided", parameter.name));
    } else {
      TRY(Value otherwise, evaluate(*parameter.otherwise));
      frame->slots[parameter.place.slot] = std::move(otherwise);
    }
  }
  std::string text;
  TRY_VOID(capture(node.body, text));
  frame_ = std::move(caller_frame);
  return text;
}

Result<Value> Interpreter::call_loop(const Loop& loop, Arguments arguments) {
  if (loop.recursive == nullptr) {
    return fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  static constexpr std::string_view kParameters[] = {"iterable"};
  TRY(Values values, bind_arguments("loop", arguments, kParameters, 1));
  TRY(std::string text, run_recursive_loop(*loop.recursive, values[0], loop.depth0 + 1, loop.closure));
  return run_.heap.text(std::move(text));
}

Result<std::string> Interpreter::run_recursive_loop(const For& node, const Value& iterable, int64_t depth,
                                                    Ref<Activation> closure) {
  ENTER_LEVEL(run_);
  TRY(Ref<Activation> frame, make_frame(node.function_slots, closure));
  Ref<Activation> outer_frame = std::exchange(frame_, frame);
  std::string text;
  std::string* outer_out = std::exchange(out_, &text);
  TRY_VOID(run_loop(node, iterable, depth, closure));
  out_ = outer_out;
  buffered_ -= text.size();
  frame_ = std::move(outer_frame);
  return text;
}

}  // namespace millrace::jinja

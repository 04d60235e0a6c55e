#include "text/template/resolve.h"

#include <algorithm>
#include <unordered_map>

#include "text/template/filters.h"
#include "text/template/names.h"
#include "text/template/symbols.h"
#include "text/template/tests.h"

namespace millrace::jinja {
namespace {

// First half of the work on a scope: what its own statements read and set. What inner scopes do comes when they are
// placed.
class Analysis {
 public:
  explicit Analysis(Symbols& symbols) : symbols_(symbols) {}

  void analyze(const ExpressionPtr& expression) {
    if (expression == nullptr) return;
    visit_names(*expression, [this](std::string_view name, bool) { symbols_.read(name); });
  }
  void analyze(const Body& body) {
    for (const auto& statement : body) {
      std::visit([this](const auto& node) { analyze_node(node); }, statement->node);
    }
  }
  void analyze_target(const Target& target, bool as_parameter) {
    if (target.kind == Target::Kind::attribute) return symbols_.read(target.name);
    for (const Target& item : target.items) analyze_target(item, as_parameter);
    if (target.kind == Target::Kind::tuple) return;
    if (as_parameter) {
      symbols_.declare_parameter(target.name);
    } else {
      symbols_.store(target.name);
    }
  }

 private:
  void analyze_node(const Output& node) {
    for (const auto& piece : node.pieces) analyze(piece.expression);
  }
  void analyze_node(const If& node) {
    analyze(node.branches.front().condition);
    std::vector<Symbols::Branch> branches;
    branches.push_back(branch([&] { analyze(node.branches.front().body); }));
    branches.push_back(branch([&] {
      // Every elif is an `if` of its own, one after the other.
      for (size_t i = 1; i < node.branches.size(); ++i) {
        analyze(node.branches[i].condition);
        symbols_.merge({branch([&] { analyze(node.branches[i].body); }), {}, {}});
      }
    }));
    branches.push_back(branch([&] { analyze(node.otherwise); }));
    symbols_.merge(branches);
  }
  void analyze_node(const For& node) { analyze(node.iterable); }
  void analyze_node(const Set& node) {
    analyze(node.value);
    analyze_target(node.target, false);
  }
  void analyze_node(const SetCapture& node) { analyze_target(node.target, false); }
  void analyze_node(const MacroDefinition& node) { symbols_.store(node.macro.name); }
  void analyze_node(const CallStatement& node) { analyze(node.call); }
  void analyze_node(const Generation&) {}
  void analyze_node(const FilterStatement& node) { analyze(node.filter); }
  void analyze_node(const With& node) {
    for (const auto& [target, value] : node.assignments) analyze(value);
  }
  void analyze_node(const Break&) {}
  void analyze_node(const Continue&) {}

  template <class F>
  Symbols::Branch branch(F run) {
    size_t start = symbols_.start_branch();
    run();
    return symbols_.end_branch(start);
  }

  Symbols& symbols_;
};

// Second half: places in the tree, scope by scope from the outside in. `soft` is Jinja's word for the inside of an
// `if`, where a filter that does not exist is an error only once it is called.
class Placement {
 public:
  explicit Placement(Program& program) : program_(program) {}

  Result<void> run() {
    FunctionSlots function;
    Symbols symbols(nullptr, &function);
    Analysis(symbols).analyze(program_.body);
    TRY_VOID(place_body(program_.body, symbols, false));
    program_.scope = scope_of(symbols);
    program_.slots = function.count();
    return {};
  }

 private:
  Scope scope_of(Symbols& symbols) {
    return symbols.scope([this](std::string_view name) { return global_number(name); });
  }

  uint32_t global_number(std::string_view name) {
    auto [entry, is_new] = globals_.try_emplace(name, static_cast<uint32_t>(program_.globals.size()));
    if (is_new) program_.globals.emplace_back(name);
    return entry->second;
  }

  Result<void> place(const ExpressionPtr& expression, Symbols& symbols, bool soft) {
    if (expression == nullptr) return {};
    line_ = expression->line;
    return std::visit([&](auto& node) { return place_node(node, symbols, soft); }, expression->node);
  }

  Result<void> place_all(const std::vector<ExpressionPtr>& expressions, Symbols& symbols, bool soft) {
    for (const auto& expression : expressions) TRY_VOID(place(expression, symbols, soft));
    return {};
  }

  Result<void> place_arguments(const CallArguments& arguments, Symbols& symbols, bool soft) {
    TRY_VOID(place_all(arguments.positional, symbols, soft));
    for (const auto& [name, value] : arguments.named) TRY_VOID(place(value, symbols, soft));
    TRY_VOID(place(arguments.star, symbols, soft));
    return place(arguments.star_star, symbols, soft);
  }

  Result<void> place_node(Constant&, Symbols&, bool) { return {}; }
  Result<void> place_node(Name& node, Symbols& symbols, bool) {
    node.place = symbols.place(node.name, symbols.function());
    return {};
  }
  Result<void> place_node(SequenceLiteral& node, Symbols& symbols, bool soft) {
    return place_all(node.items, symbols, soft);
  }
  Result<void> place_node(DictLiteral& node, Symbols& symbols, bool soft) {
    for (const auto& [key, value] : node.entries) {
      TRY_VOID(place(key, symbols, soft));
      TRY_VOID(place(value, symbols, soft));
    }
    return {};
  }
  Result<void> place_node(Attribute& node, Symbols& symbols, bool soft) { return place(node.object, symbols, soft); }
  Result<void> place_node(Item& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.object, symbols, soft));
    return place(node.key, symbols, soft);
  }
  Result<void> place_node(Slice& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.object, symbols, soft));
    TRY_VOID(place(node.start, symbols, soft));
    TRY_VOID(place(node.stop, symbols, soft));
    return place(node.step, symbols, soft);
  }
  Result<void> place_node(Call& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.callee, symbols, soft));
    return place_arguments(node.arguments, symbols, soft);
  }
  Result<void> place_node(Filter& node, Symbols& symbols, bool soft) {
    node.entry = find_filter(node.name);
    if (node.entry == nullptr && !soft) return error(Code::invalid, "line {}: No filter named '{}'.", line_, node.name);
    TRY_VOID(place(node.input, symbols, soft));
    return place_arguments(node.arguments, symbols, soft);
  }
  Result<void> place_node(Test& node, Symbols& symbols, bool soft) {
    node.entry = find_test(node.name);
    if (node.entry == nullptr && !soft) return error(Code::invalid, "line {}: No test named '{}'.", line_, node.name);
    TRY_VOID(place(node.input, symbols, soft));
    return place_arguments(node.arguments, symbols, soft);
  }
  Result<void> place_node(Unary& node, Symbols& symbols, bool soft) { return place(node.operand, symbols, soft); }
  Result<void> place_node(Binary& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.left, symbols, soft));
    return place(node.right, symbols, soft);
  }
  Result<void> place_node(Logical& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.left, symbols, soft));
    return place(node.right, symbols, soft);
  }
  Result<void> place_node(Compare& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.first, symbols, soft));
    for (const auto& [op, operand] : node.rest) TRY_VOID(place(operand, symbols, soft));
    return {};
  }
  Result<void> place_node(Concatenation& node, Symbols& symbols, bool soft) {
    return place_all(node.parts, symbols, soft);
  }
  Result<void> place_node(Conditional& node, Symbols& symbols, bool) {
    TRY_VOID(place(node.condition, symbols, true));
    TRY_VOID(place(node.then, symbols, true));
    return place(node.otherwise, symbols, true);
  }

  Result<void> place_body(const Body& body, Symbols& symbols, bool soft) {
    for (const auto& statement : body) {
      line_ = statement->line;
      TRY_VOID(std::visit([&](auto& node) { return place_node(node, symbols, soft); }, statement->node));
    }
    return {};
  }

  Result<void> place_target(Target& target, Symbols& symbols, bool is_store) {
    if (is_store && loops_ > 0 && target.kind == Target::Kind::name && target.name == "loop") {
      return error(Code::invalid, "line {}: Can't assign to special loop variable in for-loop target", target.line);
    }
    for (Target& item : target.items) TRY_VOID(place_target(item, symbols, is_store));
    if (target.kind != Target::Kind::tuple) target.place = symbols.place(target.name, symbols.function());
    return {};
  }

  Result<void> place_node(Output& node, Symbols& symbols, bool soft) {
    for (const auto& piece : node.pieces) TRY_VOID(place(piece.expression, symbols, soft));
    return {};
  }
  Result<void> place_node(If& node, Symbols& symbols, bool) {
    for (const auto& branch : node.branches) {
      TRY_VOID(place(branch.condition, symbols, true));
      TRY_VOID(place_body(branch.body, symbols, true));
    }
    return place_body(node.otherwise, symbols, true);
  }
  Result<void> place_node(Set& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.value, symbols, soft));
    return place_target(node.target, symbols, true);
  }
  Result<void> place_node(SetCapture& node, Symbols& symbols, bool) {
    Symbols inner(&symbols, symbols.function());
    Analysis(inner).analyze(node.body);
    TRY_VOID(place_body(node.body, inner, false));
    TRY_VOID(place_target(node.target, symbols, true));
    TRY_VOID(place(node.filter, inner, false));
    node.scope = scope_of(inner);
    return {};
  }
  Result<void> place_node(FilterStatement& node, Symbols& symbols, bool) {
    Symbols inner(&symbols, symbols.function());
    Analysis analysis(inner);
    analysis.analyze(node.body);
    analysis.analyze(node.filter);
    TRY_VOID(place_body(node.body, inner, false));
    TRY_VOID(place(node.filter, inner, false));
    node.scope = scope_of(inner);
    return {};
  }
  Result<void> place_node(With& node, Symbols& symbols, bool soft) {
    Symbols inner(&symbols, symbols.function());
    Analysis analysis(inner);
    for (const auto& [target, value] : node.assignments) analysis.analyze_target(target, true);
    analysis.analyze(node.body);
    for (auto& [target, value] : node.assignments) {
      TRY_VOID(place_target(target, inner, false));
      TRY_VOID(place(value, symbols, soft));
    }
    TRY_VOID(place_body(node.body, inner, false));
    node.scope = scope_of(inner);
    return {};
  }
  Result<void> place_node(MacroDefinition& node, Symbols& symbols, bool) {
    TRY_VOID(place_macro(node.macro, symbols));
    node.macro.place = symbols.place(node.macro.name, symbols.function());
    return {};
  }
  Result<void> place_node(CallStatement& node, Symbols& symbols, bool soft) {
    TRY_VOID(place_macro(node.caller, symbols));
    return place(node.call, symbols, soft);
  }
  Result<void> place_node(Generation& node, Symbols& symbols, bool) { return place_macro(node.body, symbols); }
  Result<void> place_node(Break&, Symbols&, bool) { return {}; }
  Result<void> place_node(Continue&, Symbols&, bool) { return {}; }

  Result<void> place_node(For& node, Symbols& symbols, bool soft) {
    TRY_VOID(place(node.iterable, symbols, soft));
    ++loops_;
    if (node.condition != nullptr) TRY_VOID(place_condition(node, symbols));
    FunctionSlots own_function{symbols.function(), {}};
    FunctionSlots* function = node.recursive ? &own_function : symbols.function();

    Symbols body(&symbols, function);
    bool mentioned = false, shadowed = false;
    visit_names(node.body, [&](std::string_view name, bool is_read) {
      if (name != "loop") return;
      mentioned = mentioned || (is_read && !shadowed);
      shadowed = shadowed || !is_read;
    });
    node.uses_loop = node.recursive || mentioned;
    if (node.uses_loop) body.declare_parameter("loop");
    Analysis analysis(body);
    analysis.analyze_target(node.target, true);
    analysis.analyze(node.body);
    if (node.uses_loop) node.loop_place = body.place("loop", function);
    TRY_VOID(place_target(node.target, body, true));
    TRY_VOID(place_body(node.body, body, false));
    node.body_scope = scope_of(body);

    Symbols otherwise(&symbols, function);
    Analysis(otherwise).analyze(node.otherwise);
    TRY_VOID(place_body(node.otherwise, otherwise, false));
    node.otherwise_scope = scope_of(otherwise);
    node.function_slots = own_function.count();
    --loops_;
    return {};
  }

  Result<void> place_condition(For& node, Symbols& symbols) {
    FunctionSlots function{symbols.function(), {}};
    Symbols inner(&symbols, &function);
    node.condition_target = node.target;
    Analysis analysis(inner);
    analysis.analyze_target(node.condition_target, true);
    analysis.analyze(node.condition);
    TRY_VOID(place_target(node.condition_target, inner, true));
    TRY_VOID(place(node.condition, inner, false));
    node.condition_scope = scope_of(inner);
    node.condition_slots = function.count();
    return {};
  }

  Result<void> place_macro(MacroNode& macro, Symbols& symbols) {
    FunctionSlots function{symbols.function(), {}};
    Symbols inner(&symbols, &function);
    Analysis analysis(inner);
    for (const auto& parameter : macro.parameters) inner.declare_parameter(parameter.name);
    for (const auto& parameter : macro.parameters) analysis.analyze(parameter.otherwise);
    analysis.analyze(macro.body);
    TRY_VOID(declare_special(macro, inner));
    for (auto& parameter : macro.parameters) {
      parameter.place = inner.place(parameter.name, &function);
      TRY_VOID(place(parameter.otherwise, inner, false));
    }
    TRY_VOID(place_body(macro.body, inner, false));
    macro.scope = scope_of(inner);
    macro.slots = function.count();
    return {};
  }

  // caller, kwargs and varargs exist in a macro that mentions them.
  Result<void> declare_special(MacroNode& macro, Symbols& inner) {
    struct Special {
      std::string_view name;
      bool* used;
      Place* place;
      bool shadowed = false;
    };
    Special specials[] = {{"caller", &macro.uses_caller, &macro.caller_place},
                          {"kwargs", &macro.uses_kwargs, &macro.kwargs_place},
                          {"varargs", &macro.uses_varargs, &macro.varargs_place}};
    visit_names(macro.body, [&](std::string_view name, bool is_read) {
      for (Special& special : specials) {
        if (name != special.name) continue;
        if (is_read && !special.shadowed) *special.used = true;
        if (!is_read) special.shadowed = true;
      }
    });
    for (Special& special : specials) {
      auto named = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                [&](const auto& parameter) { return parameter.name == special.name; });
      const bool is_parameter = named != macro.parameters.end();
      if (special.name == "caller") {
        macro.names_caller = is_parameter;
        if (is_parameter && *special.used && named->otherwise == nullptr) {
          return error(Code::invalid,
                       "line {}: the special \"caller\" argument of a macro must be omitted or be given a default",
                       macro.line);
        }
      } else if (is_parameter) {
        *special.used = false;
      }
      if (!*special.used || is_parameter) continue;
      inner.declare_parameter(special.name);
      *special.place = inner.place(special.name, inner.function());
    }
    return {};
  }

  Program& program_;
  std::unordered_map<std::string_view, uint32_t> globals_;
  uint32_t loops_ = 0;
  uint32_t line_ = 0;
};

}  // namespace

Result<void> resolve(Program& program) { return Placement(program).run(); }

}  // namespace millrace::jinja

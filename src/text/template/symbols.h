// The names of one scope while a template is resolved: which are read, which are set, and what each holds when the
// scope is entered. Follows Jinja's rules: a name that is set somewhere in a scope belongs to that scope from its
// start, with the outer variable's value at first if there is one; a name set in only some branches of an `if` falls
// back to the outer meaning.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "text/template/ast.h"

namespace millrace::jinja {

// Slots of one function, shared by the scopes in it: equal names at equal depth are one variable.
struct FunctionSlots {
  FunctionSlots* parent = nullptr;
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> slots;

  uint32_t count() const { return static_cast<uint32_t>(slots.size()); }
};

class Symbols {
 public:
  Symbols(Symbols* parent, FunctionSlots* function)
      : parent_(parent), function_(function), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  void declare_parameter(std::string_view name) { change(name, {Load::Action::parameter, nullptr, true, true}); }
  void store(std::string_view name);
  void read(std::string_view name);

  // The branches of an `if`: each is run from the same start, then all are merged.
  struct Changed {
    std::string_view name;
    bool newly_stored = false;
    bool referenced = false;
    Load::Action action{};
    const Symbols* source = nullptr;
  };
  using Branch = std::vector<Changed>;
  size_t start_branch() const { return log_.size(); }
  Branch end_branch(size_t start);  // and goes back to the start
  void merge(const std::vector<Branch>& branches);

  // Where a name lies, seen from a function within; defines it as a read if nobody knows it.
  Place place(std::string_view name, const FunctionSlots* from);
  // What to do when the scope is entered. global_number(name) numbers the global names.
  template <class F>
  Scope scope(F global_number);

  FunctionSlots* function() const { return function_; }

 private:
  struct Symbol {
    Load::Action action = Load::Action::missing;
    const Symbols* source = nullptr;  // the scope an alias copies from
    bool referenced = false;
    bool stored = false;
  };

  const Symbols* find(std::string_view name) const;
  void change(std::string_view name, Symbol symbol);
  uint32_t slot(std::string_view name) const { return slot_of(*this, name); }
  static uint32_t slot_of(const Symbols& scope, std::string_view name);
  static uint32_t hops(const FunctionSlots* from, const FunctionSlots* to);

  Symbols* parent_;
  FunctionSlots* function_;
  uint32_t level_;
  std::map<std::string_view, Symbol> names_;
  std::vector<std::pair<std::string_view, Symbol>> log_;  // what each changed name was before
};

template <class F>
Scope Symbols::scope(F global_number) {
  Scope scope;
  for (const auto& [name, symbol] : names_) {
    if (!symbol.referenced) continue;
    Load load;
    load.slot = slot(name);
    load.action = symbol.action;
    if (symbol.action == Load::Action::global) load.global = global_number(name);
    if (symbol.action == Load::Action::alias) {
      load.source = {hops(function_, symbol.source->function_), slot_of(*symbol.source, name)};
    }
    scope.loads.push_back(load);
  }
  return scope;
}

}  // namespace millrace::jinja

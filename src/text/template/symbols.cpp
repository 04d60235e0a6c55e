#include "text/template/symbols.h"

#include "base/check.h"

namespace millrace::jinja {

const Symbols* Symbols::find(std::string_view name) const {
  for (const Symbols* scope = this; scope != nullptr; scope = scope->parent_) {
    auto found = scope->names_.find(name);
    if (found != scope->names_.end() && found->second.referenced) return scope;
  }
  return nullptr;
}

void Symbols::change(std::string_view name, Symbol symbol) {
  Symbol& mine = names_[name];
  log_.emplace_back(name, mine);
  mine = symbol;
}

void Symbols::store(std::string_view name) {
  auto found = names_.find(name);
  if (found != names_.end() && found->second.referenced) {
    Symbol symbol = found->second;
    symbol.stored = true;
    return change(name, symbol);
  }
  const Symbols* outer = parent_ == nullptr ? nullptr : parent_->find(name);
  change(name, {outer == nullptr ? Load::Action::missing : Load::Action::alias, outer, true, true});
}

void Symbols::read(std::string_view name) {
  if (find(name) == nullptr) change(name, {Load::Action::global, nullptr, true, names_[name].stored});
}

Symbols::Branch Symbols::end_branch(size_t start) {
  std::map<std::string_view, Changed> changes;
  for (size_t i = log_.size(); i-- > start;) {
    const auto& [name, before] = log_[i];
    Symbol& now = names_[name];
    auto [entry, is_new] = changes.try_emplace(name);
    if (is_new) entry->second = {name, now.stored, now.referenced, now.action, now.source};
    now = before;
  }
  log_.resize(start);
  Branch branch;
  for (auto& [name, changed] : changes) {
    changed.newly_stored = changed.newly_stored && !names_[name].stored;
    branch.push_back(changed);
  }
  return branch;
}

void Symbols::merge(const std::vector<Branch>& branches) {
  std::map<std::string_view, size_t> storing;  // in how many branches a name not set before is set
  for (const Branch& branch : branches) {
    for (const Changed& changed : branch) {
      if (changed.newly_stored) ++storing[changed.name];
    }
  }
  for (const Branch& branch : branches) {
    for (const Changed& changed : branch) {
      bool stored = names_[changed.name].stored || changed.newly_stored;
      change(changed.name, {changed.action, changed.source, changed.referenced, stored});
    }
  }
  for (const auto& [name, count] : storing) {
    if (count == branches.size()) continue;
    Symbol symbol = names_[name];
    symbol.source = parent_ == nullptr ? nullptr : parent_->find(name);
    symbol.action = symbol.source == nullptr ? Load::Action::global : Load::Action::alias;
    change(name, symbol);
  }
}

Place Symbols::place(std::string_view name, const FunctionSlots* from) {
  const Symbols* scope = find(name);
  if (scope == nullptr) {
    read(name);
    scope = this;
  }
  return {hops(from, scope->function_), slot_of(*scope, name)};
}

uint32_t Symbols::slot_of(const Symbols& scope, std::string_view name) {
  auto& slots = scope.function_->slots;
  return slots.try_emplace({scope.level_, name}, static_cast<uint32_t>(slots.size())).first->second;
}

uint32_t Symbols::hops(const FunctionSlots* from, const FunctionSlots* to) {
  uint32_t count = 0;
  for (; from != to; from = from->parent) {
    CHECK(from != nullptr, "a variable of a function that does not enclose this one");
    ++count;
  }
  return count;
}

}  // namespace millrace::jinja

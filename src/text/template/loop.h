// Jinja's loop variable: where a {% for %} stands, what came before and what comes next. It looks one item ahead only
// when asked, so loops over lazy iterators behave as in Jinja.
#pragma once

#include <optional>

#include "text/template/ast.h"
#include "text/template/iterate.h"

namespace millrace::jinja {

struct Loop : Object {
  Loop() : Object(Type::loop) {}
  void let_go() override;

  Result<Value> advance(Run& run);  // missing at the end
  Result<Value> peek(Run& run);     // missing if there is no next item
  Result<int64_t> length(Run& run);
  // One of loop's attributes; missing if there is no such one.
  Result<Value> attribute(Run& run, const Value& self, std::string_view name);
  Result<Value> changed(Run& run, Values values);
  Result<Value> cycle(const Values& values) const;

  Value iterable;
  Ref<Iterator> iterator;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  Value before, current, after, last_changed;
  std::optional<int64_t> known_length;
  // To call a recursive loop on the items below.
  const For* recursive = nullptr;
  Ref<Activation> closure;
};

}  // namespace millrace::jinja

// A macro as a value: its definition and the variables around it.
#pragma once

#include "text/template/ast.h"
#include "text/template/value.h"

namespace millrace::jinja {

struct Macro : Object {
  Macro(const MacroNode& definition, Ref<Activation> around)
      : Object(Type::macro), node(&definition), closure(std::move(around)) {}
  const MacroNode* node;
  Ref<Activation> closure;
};

}  // namespace millrace::jinja

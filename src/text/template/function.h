// Things a template can call: functions and methods of ours, and how arguments are bound to parameters.
#pragma once

#include <span>

#include "text/template/run.h"

namespace millrace::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // Takes a keyword argument out; missing if it is not there.
  Value take(std::string_view name);
};

struct Builtin {
  std::string_view name;
  Result<Value> (*call)(Run& run, const Value& self, Arguments& arguments);
};

struct Function : Object {
  Function(const Builtin& what, Value bound_to) : Object(Type::function), builtin(&what), self(std::move(bound_to)) {}
  const Builtin* builtin;
  Value self;  // missing for functions that are no methods
};

Value bound(Run& run, const Builtin& builtin, const Value& self);

// Python's binding of arguments to named parameters: one value per parameter, missing where none was given. `what`
// names the function in messages.
Result<Values> bind_arguments(std::string_view what, Arguments& arguments, std::span<const std::string_view> parameters,
                              size_t required);
Result<void> no_keywords(std::string_view what, const Arguments& arguments);
// Only positional arguments, so many of them.
Result<void> positional_only(std::string_view what, const Arguments& arguments, size_t at_least, size_t at_most);

}  // namespace millrace::jinja

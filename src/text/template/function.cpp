#include "text/template/function.h"

#include <algorithm>

namespace millrace::jinja {

Value Arguments::take(std::string_view name) {
  auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == named.end()) return Value();
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

Value bound(Run& run, const Builtin& builtin, const Value& self) { return run.heap.make<Function>(0, builtin, self); }

Result<Values> bind_arguments(std::string_view what, Arguments& arguments, std::span<const std::string_view> parameters,
                              size_t required) {
  if (arguments.positional.size() > parameters.size()) {
    return fail("{} takes at most {} arguments, but {} were given", what, parameters.size(),
                arguments.positional.size());
  }
  Values values = std::move(arguments.positional);
  const size_t given = values.size();
  values.resize(parameters.size());
  for (auto& [name, value] : arguments.named) {
    auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) return fail("{} got an unexpected keyword argument '{}'", what, name);
    auto i = static_cast<size_t>(found - parameters.begin());
    if (i < given) return fail("{} got multiple values for argument '{}'", what, name);
    values[i] = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (values[i].is_missing()) return fail("{} is missing its argument '{}'", what, parameters[i]);
  }
  return values;
}

Result<void> no_keywords(std::string_view what, const Arguments& arguments) {
  if (!arguments.named.empty()) return fail("{} takes no keyword arguments", what);
  return {};
}

Result<void> positional_only(std::string_view what, const Arguments& arguments, size_t at_least, size_t at_most) {
  TRY_VOID(no_keywords(what, arguments));
  size_t given = arguments.positional.size();
  if (given >= at_least && given <= at_most) return {};
  if (at_least == at_most) return fail("{} takes {} arguments, but {} were given", what, at_least, given);
  return fail("{} takes {} to {} arguments, but {} were given", what, at_least, at_most, given);
}

}  // namespace millrace::jinja

// Well-known models by name, as configurations: for benchmarks and plans that need a model's shape and not its file.
#pragma once

#include <span>
#include <string_view>

#include "model/spec.h"

namespace millrace {

struct NamedShape {
  std::string_view name, alias;  // alias may be empty
  std::string_view config;       // as its config.json has it, without what equals the defaults
};

std::span<const NamedShape> named_shapes();

// By name or alias; the error lists what there is.
Result<ModelSpec> named_shape(std::string_view name);

}  // namespace millrace

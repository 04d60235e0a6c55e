// Shapes of well-known models by name, as the configuration values their makers published, so that benchmarks and plans
// need no file. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/spec.h"

namespace millrace {

std::vector<std::string_view> shape_names();

// The configuration, or an error that lists the names. Aliases (llama-1b, llama-8b) are understood.
Result<Json> shape_config(std::string_view name);
Result<ModelSpec> shape_spec(std::string_view name);

}  // namespace millrace

// Bodies of Ollama's interface, read into a RequestBody. Pure (bytes in, values or an ApiError out). Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/ollama/bodies.h"
#include "server/request_body.h"

namespace millrace {

// The body of a chat or of /api/generate. What it does not say about sampling is as in `defaults`.
std::optional<ApiError> read_ollama(std::string_view body, OllamaBody kind, const BodyLimits& limits, RequestBody& out,
                                    const SamplingDefaults& defaults = {});

// The name without ":latest", which these clients add.
std::string bare_model(std::string name);

}  // namespace millrace

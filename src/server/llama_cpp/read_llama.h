// Bodies of llama.cpp's own interface, read into a RequestBody. Pure (bytes in, values or an ApiError out). Any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/llama_cpp/bodies.h"
#include "server/request_body.h"

namespace millrace {

// What it does not say about sampling is as in `defaults`.
std::optional<ApiError> read_llama(std::string_view body, LlamaBody kind, const BodyLimits& limits, RequestBody& out,
                                   const SamplingDefaults& defaults = {});

}  // namespace millrace

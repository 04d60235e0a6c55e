// The body of OpenAI's Responses, read into a RequestBody. Pure (bytes in, values or an ApiError out). Any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/request_body.h"
#include "server/responses/bodies.h"

namespace millrace {

// What it does not say about sampling is as in `defaults`.
std::optional<ApiError> read_response(std::string_view body, const BodyLimits& limits, RequestBody& out,
                                      const SamplingDefaults& defaults = {});

}  // namespace millrace

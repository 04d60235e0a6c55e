// Bodies of Anthropic's Messages, read into a RequestBody. Pure (bytes in, values or an ApiError out). Any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/anthropic/bodies.h"
#include "server/request_body.h"

namespace millrace {

// What it does not say about sampling is as in `defaults`.
std::optional<ApiError> read_messages(std::string_view body, MessagesBody kind, const BodyLimits& limits,
                                      RequestBody& out, const SamplingDefaults& defaults = {});

}  // namespace millrace

// How long an answer may think, as clients of all interfaces say it: tokens of reasoning at most, under one name or
// another; none at all switches it off in the template too. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/api_error.h"
#include "server/request_body.h"

namespace millrace {

// A field that limits reasoning; below 0 it says nothing. Two that disagree are refused with both names.
std::optional<ApiError> limit_thinking(RequestBody& out, int64_t tokens, std::string_view field);

// No reasoning, for templates that can be told so; what `variables` say already stays.
void switch_thinking_off(JsonObject& variables);

}  // namespace millrace

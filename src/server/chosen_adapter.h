// Which adapter a request asks for, by `model` or by llama.cpp's `lora`, among those that the engine has. Any thread.
#pragma once

#include <optional>
#include <string>

#include "server/api_error.h"
#include "server/generation.h"
#include "server/request_body.h"

namespace millrace {

// Fills in the request's adapter. `root` becomes what its prefixes are kept apart by; empty without an adapter.
std::optional<ApiError> choose_adapter(const ServedModel& served, RequestBody& asked, std::string& root);

}  // namespace millrace

// OpenAI's Responses, and the route they are asked for at. Constant; any thread.
#pragma once

#include <span>

#include "server/dialect.h"
#include "server/route.h"

namespace millrace {

const Dialect& openai_responses();
std::span<const Route> responses_routes();

}  // namespace millrace

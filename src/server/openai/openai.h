// OpenAI's interface: chats and completions, and the routes they are asked for at. Constant; any thread.
#pragma once

#include <span>

#include "server/dialect.h"
#include "server/route.h"

namespace millrace {

const Dialect& openai_chat();
const Dialect& openai_completion();
std::span<const Route> openai_routes();

}  // namespace millrace

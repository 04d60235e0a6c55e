// Anthropic's Messages, and the routes they are asked for at. Constant; any thread.
#pragma once

#include <span>

#include "server/dialect.h"
#include "server/route.h"

namespace millrace {

const Dialect& anthropic_messages();
std::span<const Route> anthropic_routes();

}  // namespace millrace

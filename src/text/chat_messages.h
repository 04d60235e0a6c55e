// Messages brought into the shape a template understands, and the probes that find out which shape that is. Pure
// functions; any thread.
#pragma once

#include <functional>

#include "text/chat.h"

namespace millrace {

// The messages of a chat as a template of these abilities wants them. Errors name the message and what to change.
Result<Json> shape_messages(const Json& messages, const ChatAbilities& abilities);

// Renders probe messages: gets variables (messages and tools), gives the text or an error.
using Probe = std::function<Result<std::string>(JsonObject variables)>;
ChatAbilities find_abilities(const Probe& probe);

}  // namespace millrace

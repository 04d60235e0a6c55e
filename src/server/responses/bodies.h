// The body of OpenAI's Responses: a table of everything a client may say in it. Constant; any thread.
#pragma once

#include "server/schema.h"

namespace millrace {

enum ResponsesBody : unsigned { kResponse = 1 };

const Table& responses_bodies();

}  // namespace millrace

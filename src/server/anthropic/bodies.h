// The bodies of Anthropic's Messages: a table of everything a client may say in them. Constant; any thread.
#pragma once

#include "server/schema.h"

namespace millrace {

enum MessagesBody : unsigned {
  kMessagesBody = 1,
  kCountBody = 2,
  kEitherMessages = kMessagesBody | kCountBody,
};

const Table& anthropic_bodies();

}  // namespace millrace

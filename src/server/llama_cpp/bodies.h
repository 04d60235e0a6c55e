// The bodies of llama.cpp's own interface: a table of everything a client may say in them. Constant; any thread.
#pragma once

#include "server/schema.h"

namespace millrace {

enum LlamaBody : unsigned {
  kLlamaCompletion = 1,
  kLlamaInfill = 2,
  kLlamaEither = kLlamaCompletion | kLlamaInfill,
};

const Table& llama_bodies();

}  // namespace millrace

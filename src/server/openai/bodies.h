// The bodies of OpenAI's interface and of the small routes beside it: one table of everything a client may say in
// them, which docs/api.md and /openapi.json are made from. Constant; any thread.
#pragma once

#include "server/schema.h"

namespace millrace {

enum Body : unsigned {
  kChat = 1,
  kCompletion = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kTemplate = 16,
  kEmbed = 32,
  kRerank = 64,
  kScore = 128,
  kLoadAdapter = 256,
  kUnloadAdapter = 512,
  kUpdateWeights = 1024,
  kGenerate = kChat | kCompletion,
  kEncode = kEmbed | kRerank | kScore,
};

const Table& openai_bodies();

}  // namespace millrace

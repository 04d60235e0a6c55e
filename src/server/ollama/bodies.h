// The bodies of Ollama's interface: a table of everything a client may say in them. Constant; any thread.
#pragma once

#include "server/schema.h"

namespace millrace {

enum OllamaBody : unsigned {
  kOllamaChat = 1,
  kOllamaGenerate = 2,
  kOllamaEmbed = 4,
  kOllamaEmbeddings = 8,
  kOllamaShow = 16,
  kOllamaText = kOllamaChat | kOllamaGenerate,
  kOllamaVectors = kOllamaEmbed | kOllamaEmbeddings,
};

const Table& ollama_bodies();

}  // namespace millrace

// GgufVocab: a tokenizer as a GGUF file stores it under tokenizer.ggml.*, so that llama.cpp and we read the same thing.
// A plain value; put_vocab() writes each field under the key beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"

namespace millrace {

enum class GgufTokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct GgufVocab {
  std::string model;                // tokenizer.ggml.model: "gpt2", "llama" or "gemma4"
  std::string pre;                  // tokenizer.ggml.pre: how text is split; empty: leave out
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens, one per id, holes filled with [PADn]
  std::vector<float> scores;        // tokenizer.ggml.scores; empty: leave out
  std::vector<int32_t> types;       // tokenizer.ggml.token_type, numbers of GgufTokenType
  std::vector<std::string> merges;  // tokenizer.ggml.merges: "left right"; empty: leave out
  // -1: leave out.
  Token bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1, sep = -1, mask = -1;  // tokenizer.ggml.X_token_id
  Token fim_pre = -1, fim_suf = -1, fim_mid = -1;  // tokenizer.ggml.fim_pre_token_id ...
  bool add_bos = false;                            // tokenizer.ggml.add_bos_token
  bool add_eos = false;                            // tokenizer.ggml.add_eos_token
  bool add_space_prefix = false;                   // tokenizer.ggml.add_space_prefix
  std::string normalizer;  // millrace.tokenizer.normalizer: "nfc"; empty: leave out. llama.cpp has no such step
};

class GgufWriter;

// Everything but the chat template, which is not the tokenizer's.
Result<void> put_vocab(GgufWriter& writer, const GgufVocab& vocab);

}  // namespace millrace

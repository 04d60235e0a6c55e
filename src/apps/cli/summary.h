// What a person wants to know about a model before running it, read from a checkpoint's metadata and tensor list alone
// (no weights are touched). Fields a file does not state stay empty. Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {

struct TypeShare {
  DType type = DType::f32;
  int64_t tensors = 0, values = 0;
  uint64_t bytes = 0;
};

struct Summary {
  std::string format;  // "GGUF v3", "Hugging Face", "safetensors"
  size_t files = 0;
  uint64_t file_bytes = 0;
  std::string architecture, name, license;
  int64_t parameters = 0;
  std::vector<TypeShare> types;  // largest first
  std::optional<int64_t> layers, width, heads, kv_heads, ffn_width, experts, experts_used, context, vocabulary;
  std::string tokenizer;                          // "BPE, pre-tokenizer llama-bpe"; empty if none
  std::map<std::string, int64_t> special_tokens;  // "bos" -> 1
  std::optional<size_t> chat_template_bytes;
  std::optional<std::string> unusable;  // why these weights cannot be used as they are
};

Result<Summary> summarise(const Checkpoint& checkpoint);

// One line for models whose weights take another size in memory than in their file, since they are packed for the
// arithmetic of the machine; nothing if it is about the same.
std::optional<std::string> packed_note(const Checkpoint& checkpoint, int64_t packed_bytes);

}  // namespace millrace::apps

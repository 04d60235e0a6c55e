// The metadata of a GGUF file as a Config: one table maps llama.cpp's keys to Hugging Face's names; what GGUF leaves to
// the tensors (biases, tied heads, rotary factors) is read off them. Loading thread only.
#pragma once

#include <span>
#include <string_view>

#include "model/architecture.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct GgufKey {
  std::string_view gguf;    // after "{architecture}."
  std::string_view config;  // Hugging Face's name
};

std::span<const GgufKey> gguf_keys();

// The scale of scores in Gemma 2 and 3 files, which do not store it: by head, but by width in the 27B models.
double gemma_attention_scalar(int64_t layers, int64_t width, int64_t heads, int64_t head_dim);

Result<Config> config_from_gguf(const Checkpoint& checkpoint);

}  // namespace millrace

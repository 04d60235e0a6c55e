// An EAGLE-3 head in a GGUF file (llama.cpp's architecture eagle3), told in the words of the Hugging Face layout: what
// its tensors are called there, and its settings as a configuration. Its pairs of rotation are neighbours, and d2t has
// the target's ids themselves. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tensor/checkpoint.h"

namespace millrace {

bool is_gguf_eagle(const Checkpoint& checkpoint);
std::string gguf_head_name(std::string_view name);  // of a tensor; names that mean nothing stay as they are
Result<Json> gguf_head_config(const Metadata& metadata);

}  // namespace millrace

// Heads in GGUF files as llama.cpp writes them, told in the words of the Hugging Face layouts: what their tensors are
// called there, and their settings as a configuration. An EAGLE-3 head has a file of its own (architecture eagle3), in
// which pairs of rotation are neighbours and d2t has the target's ids themselves. An MTP layer is a layer more behind
// the model's own, with blk.N.nextn.*, of whatever architecture that is. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tensor/checkpoint.h"

namespace millrace {

enum class GgufHead : uint8_t { none, eagle, mtp };

GgufHead gguf_head(const Checkpoint& checkpoint);
// Of a tensor; names that mean nothing stay as they are.
std::string gguf_head_name(GgufHead kind, std::string_view name);
Result<Json> gguf_head_config(GgufHead kind, const Metadata& metadata);
// Whether its pairs of rotation are neighbours: those of Llama's own architecture are.
bool gguf_turns_neighbours(GgufHead kind, const Metadata& metadata);

}  // namespace millrace

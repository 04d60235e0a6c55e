// Where files keep a slot: under which name, in which fused tensor, in which order of rows. What a file really has is
// found by ModelSource, and for adapters by model/adapter.h. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/slots.h"

namespace millrace {

struct FileName {
  std::string name;  // a stem; taken per head or expert, {} stands for its number
  Take take = Take::whole;
  bool bare = false, transposed = false;
  Change change = Change::none;
};

// "blk.{}.attn_q" -> "blk.3.attn_q"
std::string numbered(std::string_view pattern, int64_t number);

// The names a slot may have, the likeliest first. `fused_ffn`: a GGUF whose gate lies with `up`.
std::vector<FileName> file_names(const Architecture& architecture, const Slot& slot, bool gguf, bool fused_ffn);
// Rows of the tensor that the slot is taken from, and which of them it is, or of each expert; empty: all in order.
int64_t stored_rows(const ModelSpec& spec, const Slot& slot, Take take);
std::vector<int64_t> stored_order(const ModelSpec& spec, const Slot& slot, Take take, bool permuted);

}  // namespace millrace

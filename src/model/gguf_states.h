// What GGUF files say about layers with a state. Reading: llama.cpp's keys, and which tensors a layer has, become the
// settings that the architecture's own configuration has for the same. Writing: the other way round. One thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/gguf_writing.h"
#include "model/slots.h"
#include "model/spec.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Whether files of this architecture have layers with a state.
bool has_states(std::string_view gguf);

// `values` has what was read of the keys that all architectures share, and is added to.
Result<void> read_states(const Checkpoint& file, std::string_view gguf, JsonObject& values);

// Keys of the states, and of what is said by layer in such files.
void put_states(GgufKeys& keys, const ModelSpec& spec);

// What a file of the architecture cannot say of its layers with states; empty: nothing.
std::string_view unsayable_states(const ModelSpec& spec, std::string_view gguf);

// The shape a vector of a layer with a state has in files; empty: one dimension.
std::vector<int64_t> state_shape(const ModelSpec& spec, int32_t layer, std::string_view stem, int64_t size,
                                 int32_t turned);

// What each row of a slot is multiplied with in a file whose architecture has no word for the model's factors; empty:
// nothing. `tensor` is the name in the file, without .weight: the table may be the head too.
std::vector<float> folded_factors(const ModelSpec& spec, const Slot& slot, std::string_view gguf,
                                  std::string_view tensor);

// A slot that lies in one tensor with those after it, part by part in turn.
struct Woven {
  size_t slots = 0;  // how many lie together, itself included; 0: it lies alone
  int64_t parts = 0;
  std::string_view name;  // of the tensor, after "blk.N."
};
Woven woven_slots(const ModelSpec& spec, const Slot& slot, std::string_view gguf);

// Whether value heads that share a key stand apart in files of the architecture (DeltaSpec::striped).
bool stripes_values(std::string_view gguf);
// Of a slot of the gated delta rule whose value heads stand in another order there: which of the model's rows (or
// numbers, or with `columns` columns) each of the file's is; empty: the same.
std::vector<int64_t> striped_order(const ModelSpec& spec, const Slot& slot, std::string_view gguf, bool columns);

}  // namespace millrace

// Adapter: what a LoRA file changes of one model's matrices: a PEFT directory (adapter_config.json and
// adapter_model.safetensors) or a GGUF file of llama.cpp's. Everything is found and checked when it is read: an adapter
// for another model, a tensor of another shape, or a part that is not built (DoRA, biases, whole modules) is refused by
// name. Values; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "backend/delta.h"
#include "base/json.h"
#include "base/result.h"
#include "cache/identity.h"
#include "model/spec.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Of one matrix: y = W x + scale * up (down x).
struct AdapterPart {
  std::string slot;  // "blk.3.attn_q"
  int32_t rank = 0;
  float scale = 0;
  bool table = false;       // of a table whose rows are looked up (embeddings)
  std::vector<float> down;  // [rank, inputs]; of a table [its rows, rank]
  std::vector<float> up;    // [rank, outputs]
  // How its numbers can lie without a loss, the smallest way there is.
  DeltaNumbers numbers = DeltaNumbers::f32;

  int64_t bytes() const;  // of its numbers, as they lie on a backend
};

struct Adapter {
  std::vector<AdapterPart> parts;  // ordered by slot
  Identity content;                // of all of it

  int32_t rank() const;   // the largest
  int64_t bytes() const;  // of its numbers
};

Result<Adapter> read_adapter(const std::filesystem::path& path, const ModelSpec& spec);
// The same of a file that is open; `config` is adapter_config.json, which a GGUF file does without.
Result<Adapter> read_adapter(const Checkpoint& file, const Json& config, const ModelSpec& spec);

// Several as one, each times its strength: their ranks one after another.
struct WeightedAdapter {
  const Adapter* adapter = nullptr;
  float strength = 1;
};
Result<Adapter> joined_adapter(std::span<const WeightedAdapter> adapters);

// One of that rank for every matrix of the model that adapters may change, of small numbers that follow from the seed;
// for measuring.
Adapter random_adapter(const ModelSpec& spec, int32_t rank, uint64_t seed);

}  // namespace millrace

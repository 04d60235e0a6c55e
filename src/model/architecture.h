// Architecture: what is particular to a family of models, as data: how its configuration becomes a ModelSpec and where
// its files keep each tensor. One file per family in model/archs; the registry lists them. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/spec.h"

namespace millrace {

// Which rows of a stored tensor make a slot.
enum class Take : uint8_t {
  whole,
  q,
  k,
  v,  // of queries, keys, values, one after the other
  grouped_q,
  grouped_k,
  grouped_v,  // of groups, one per key/value head: its queries, its key, its value
  first_half,
  second_half,  // gate, then up
  even,
  odd,         // gate and up in turn
  per_head,    // one tensor for each head; the second {} is its number
  per_expert,  // one tensor for each expert; the second {} is its number
  latent_k,    // of keys and values that come out of a latent, head by head: the keys, transposed
  latent_v,
  head_q,
  head_gate,  // of heads, each its queries, then its gate
  delta_qkv,
  delta_gate,  // of key heads, each its query, its key, its values, their gates
  delta_beta,
  delta_steps,  // of key heads, each the shares of its values, then their steps
};

// What is done to a vector's numbers as they are read.
enum class Change : uint8_t { none, minus_exp, lru_rate };  // -e^x; -8 log(1 + e^x)

// A slot's stem (without .weight or .bias) and the stem it has in a file; {} is the layer. Where a slot has several
// entries, the first that the file has counts.
struct TensorName {
  std::string_view slot, file;
  Take take = Take::whole;
  bool bare = false;        // the weight has the stem's own name, the bias the stem's with _bias
  bool transposed = false;  // the matrix, or every expert's, lies [inputs, outputs]
  Change change = Change::none;
};

// How llama.cpp lays the architecture out in GGUF files.
struct GgufLayout {
  std::string_view name;                   // general.architecture; empty: GGUF has none for it
  bool permuted = false;                   // rows of q and k are in the order of neighbouring rotary pairs
  bool fused_qkv = false;                  // one attn_qkv: q, k, v
  bool fused_ffn = false;                  // one ffn_up: gate, up
  bool biased = false;                     // always has every bias; elsewhere the tensors tell
  std::span<const TensorName> names = {};  // where they differ from the slots' own
};

struct Architecture {
  std::string_view name;  // model_type in config.json
  void (*describe)(Config& config, ModelSpec& spec);
  std::span<const TensorName> names = {};  // Hugging Face, where they differ from Llama's
  bool transposed = false;                 // matrices of layers lie [inputs, outputs] (GPT-2)
  bool norms_plus_one = false;             // norm weights are stored less one (Gemma)
  GgufLayout gguf = {};
};

std::span<const Architecture* const> architectures();
std::span<const TensorName> llama_names();  // what every table of Hugging Face names falls back to

// By model_type or by general.architecture. The error names the architecture and the nearest that is supported.
Result<const Architecture*> find_architecture(std::string_view model_type);
Result<const Architecture*> find_gguf_architecture(std::string_view name);

// The spec of a configuration, checked.
Result<ModelSpec> describe(Config& config);

}  // namespace millrace

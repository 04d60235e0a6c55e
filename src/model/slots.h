// Slots: every tensor a spec calls for, under GGUF's names. One list drives loading, checking, counting, converting and
// sharding. A slot is a module: a matrix or a norm, with its weight and perhaps its bias.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/spec.h"
#include "model/weights.h"

namespace millrace {

enum class SlotKind : uint8_t { matrix, norm };

// How it would be divided among ranks: not at all, by outputs, by inputs, by tokens of the vocabulary.
enum class Shard : uint8_t { none, rows, cols, vocab };

struct Slot {
  std::string name;  // "blk.3.attn_q": without .weight and .bias
  SlotKind kind = SlotKind::matrix;
  int32_t layer = -1;
  int64_t rows = 0, cols = 0;  // of the weight; a norm is one row
  bool weight = true, bias = false;
  WeightUse use = WeightUse::linear;
  Shard shard = Shard::none;
  int32_t heads = 0;  // of q and k (their rows) and of their norms; 0 elsewhere

  int64_t bias_size() const { return kind == SlotKind::norm ? cols : rows; }
  int64_t values() const { return (weight ? rows * cols : 0) + (bias ? bias_size() : 0); }
};

// Every slot with its place among the weights: exactly one of the two places is given.
using SlotVisitor = std::function<void(const Slot& slot, Weight* matrix, Norm* norm)>;
void visit_slots(const ModelSpec& spec, ModelWeights& weights, const SlotVisitor& visit);

std::vector<Slot> slots(const ModelSpec& spec);  // in the order of the file: embedding, layers, head
int64_t parameters(const ModelSpec& spec);       // tied heads count once

}  // namespace millrace

// Streaming layers: which layers may forget, ranked by what it costs. Each layer in turn keeps sinks and a window only
// while the others keep everything, and the KL from the model that forgets nothing is its rank; then the cheapest few
// together, the cheapest half, and so on. Layers, not heads: a page holds all kv heads of a layer, so that a single
// head that forgets gives no byte back. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/kv_keep.h"

namespace millrace {

// What it costs and saves if these layers forget.
struct StreamingCost {
  KvKeep keep;
  double kl = 0, kl_error = 0;  // mean, and its standard error
  double flips = 0;             // share of tokens that would be others
  int64_t bytes = 0;            // of the cache of a sequence
};

struct StreamingRank {
  std::vector<StreamingCost> alone;     // one layer each, cheapest first
  std::vector<StreamingCost> together;  // ever more of them, in that order; the last has all
};

// The layers of a model that can keep sinks and a window.
std::vector<int32_t> streaming_layers(const ModelSpec& spec, const KvKeep& keep);

// Ranks the layers and measures so many sets of them, or as many as there are layers.
Result<StreamingRank> rank_streaming(std::span<const int32_t> layers, const KvKeep& keep, int32_t sets,
                                     const std::function<Result<StreamingCost>(const KvKeep&)>& measure);

}  // namespace millrace

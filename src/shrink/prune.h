// Pruning: fewer layers, narrower feed-forward parts, fewer key/value heads. What goes is chosen by what it is worth on
// a text: layers one by one by the KL that their removal costs, columns and groups of heads by how strongly they are
// read and what they write. The source is changed in place and stays a model of its architecture. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "shrink/journal.h"
#include "shrink/judge.h"
#include "shrink/student.h"
#include "shrink/sums.h"

namespace millrace {

// One candidate of the search for layers to drop.
struct DropTrial {
  int32_t layer = 0;  // as the teacher numbers it
  double kl = 0;
};

struct DropSearch {
  std::vector<int32_t> kept;  // of the teacher's layers, ascending
  std::vector<std::vector<DropTrial>> rounds;
};

// Layers go one at a time, each the one whose removal moves the rest least from the teacher. `tried` hears of every
// candidate, false stops.
Result<DropSearch> choose_layers(const ModelSource& source, int32_t remove, Judge& judge, const StudentOptions& options,
                                 const std::function<bool(const DropTrial& trial)>& tried, Journal* journal = nullptr);

// Block Influence of every layer: 1 - the mean cosine between the stream before and after it. Others drop the layers
// where it is least; `choose_layers` is compared with that.
Result<std::vector<double>> layer_influence(const Loaded& model, std::span<const ScoredText> texts,
                                            const PassProgress& progress);
// The layers that stay if `remove` of the least influence go.
std::vector<int32_t> kept_by_influence(const std::vector<double>& influence, int32_t remove);

// Columns of the feed-forward part that stay in each layer, the most valuable: how strongly they are read (root of the
// mean of squares) times the length of what they write. `keep` of them everywhere.
Result<void> narrow_ffn(ModelSource& source, InputSums& sums, int32_t keep);
// Key/value heads that stay in each layer, with the queries that read them.
Result<void> fewer_kv_heads(ModelSource& source, InputSums& sums, int32_t keep);

// How many columns a share comes to: a multiple of 256 where the width is one, else of 32, at least one such.
Result<int32_t> ffn_width(const ModelSpec& spec, double share);

}  // namespace millrace

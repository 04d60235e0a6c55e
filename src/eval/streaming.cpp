#include "eval/streaming.h"

#include <algorithm>

namespace millrace {

std::vector<int32_t> streaming_layers(const ModelSpec& spec, const KvKeep& keep) {
  std::vector<int32_t> layers;
  for (int32_t layer = 0; layer < static_cast<int32_t>(spec.layers.size()); ++layer) {
    ModelSpec tried = spec;
    const KvKeep one = {.sinks = keep.sinks, .window = keep.window, .layers = {layer}};
    if (std::holds_alternative<NoMixer>(spec.layers[static_cast<size_t>(layer)].mixer)) continue;  // nothing to forget
    if (forget(tried, one).ok()) layers.push_back(layer);
  }
  return layers;
}

Result<StreamingRank> rank_streaming(std::span<const int32_t> layers, const KvKeep& keep, int32_t sets,
                                     const std::function<Result<StreamingCost>(const KvKeep&)>& measure) {
  if (layers.empty()) return error(Code::unsupported, "no layer of it can forget");
  StreamingRank rank;
  for (const int32_t layer : layers) {
    TRY(StreamingCost cost, measure({.sinks = keep.sinks, .window = keep.window, .layers = {layer}}));
    rank.alone.push_back(std::move(cost));
  }
  std::stable_sort(rank.alone.begin(), rank.alone.end(),
                   [](const StreamingCost& a, const StreamingCost& b) { return a.kl < b.kl; });
  const auto count = static_cast<int32_t>(layers.size());
  sets = std::clamp(sets, 1, count);
  for (int32_t i = 1; i <= sets; ++i) {
    KvKeep some = {.sinks = keep.sinks, .window = keep.window, .layers = {}};
    for (int32_t j = 0; j < int64_t{count} * i / sets; ++j)
      some.layers.push_back(rank.alone[static_cast<size_t>(j)].keep.layers.front());
    std::sort(some.layers.begin(), some.layers.end());
    TRY(StreamingCost cost, measure(some));
    rank.together.push_back(std::move(cost));
  }
  return rank;
}

}  // namespace millrace

#include "model/shared.h"

#include <algorithm>

#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {

void visit_shared(SlotWalk& walk, const SharedSpec& spec, int32_t index, SharedWeights& weights) {
  const int64_t width = walk.spec().width, both = 2 * width, ffn = spec.ffn.width;
  const int64_t q = int64_t{spec.gqa.heads} * spec.gqa.head_dim, kv = int64_t{spec.gqa.kv_heads} * spec.gqa.head_dim;
  walk.matrix("shared_out", width, width, weights.out, {});
  if (spec.from < 0) {
    walk.norm("shared_norm", both, spec.norm, weights.norm);
    walk.matrix("shared_q", q, both, weights.attention.q, {.heads = spec.gqa.heads});
    walk.matrix("shared_k", kv, both, weights.attention.k, {.heads = spec.gqa.kv_heads});
    walk.matrix("shared_v", kv, both, weights.attention.v, {});
    walk.matrix("shared_output", width, q, weights.attention.out, {});
    walk.norm("shared_ffn_norm", width, spec.norm, weights.ffn_norm);
    walk.matrix("shared_ffn_up", 2 * ffn, width, weights.gate_up, {});
    walk.matrix("shared_ffn_down", width, ffn, weights.down, {});
  }
  walk.set_layer(index, spec.from < 0 ? index : spec.from);  // files keep them with the shared weights
  walk.matrix(fmt::format("shared_low.{}", spec.use), spec.rank, width, weights.low, {});
  walk.matrix(fmt::format("shared_high.{}", spec.use), 2 * ffn, spec.rank, weights.high, {});
  walk.set_layer(index, index);
}

Result<void> check_shared(const ModelSpec& spec, int32_t index) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  const SharedSpec& shared = *layer.shared;
  if (!layer.mixer_norm || layer.stream_norms || layer.beside || is_absent(layer.mixer) ||
      kv_shape(LayerSpec{.mixer = layer.mixer}, DType::f16).kv_heads > 0)
    return error(Code::unsupported, "shared attention goes with a normed layer that has a state and no keys");
  TRY_VOID(check_mixer(spec, shared.gqa, index));
  if (shared.gqa.kv_from >= 0 || !shared.gqa.causal || shared.gqa.qkv_bias || shared.gqa.out_bias || shared.gqa.gated)
    return error(Code::unsupported, "shared attention has no biases, gates or keys of other layers");
  TRY_VOID(in_range("the width of the shared feed-forward part", shared.ffn.width, kMaxWidth));
  TRY_VOID(in_range("the rank of a use of shared weights", shared.rank, kMaxWidth));
  TRY_VOID(check_norm(shared.norm));
  if (shared.from < 0) return {};
  const bool there = shared.from < index && spec.layers[static_cast<size_t>(shared.from)].shared &&
                     spec.layers[static_cast<size_t>(shared.from)].shared->from < 0;
  if (!there) return error(Code::invalid, "shares weights of layer {}, which has none before it", shared.from);
  return {};
}

void settle_shared(const Checkpoint& checkpoint, ModelSpec& spec) {
  auto start_of = [](size_t layer) { return fmt::format("model.layers.{}.shared_transformer.", layer); };
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& shared = spec.layers[i].shared;
    if (!shared || shared->from < 0) continue;
    const std::string own = start_of(i), home = start_of(static_cast<size_t>(shared->from));
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      if (!tensor.name.starts_with(own)) continue;
      const StoredTensor* other = checkpoint.find(home + std::string(tensor.name.substr(own.size())));
      if (other != nullptr && std::ranges::equal(tensor.bytes, other->bytes)) continue;
      shared->from = -1;
      break;
    }
  }
}

void hand_out_shared(const ModelSpec& spec, ModelWeights& weights) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& shared = spec.layers[i].shared;
    if (!shared || shared->from < 0) continue;
    SharedWeights own = weights.layers[static_cast<size_t>(shared->from)].shared;
    own.low = weights.layers[i].shared.low;
    own.high = weights.layers[i].shared.high;
    own.out = weights.layers[i].shared.out;
    weights.layers[i].shared = own;
  }
}

void run_shared(Ops& ops, const SharedSpec& spec, const SharedWeights& weights, const KvView& kv, Tensor x,
                Tensor embedded, Tensor out) {
  const int64_t start = ops.mark(), width = x.cols, ffn = spec.ffn.width;
  Tensor both = ops.scratch(x.rows, 2 * width), y = ops.scratch(x.rows, width);
  ops.copy_heads(1, width, x, columns(both, 0, width));
  ops.copy_heads(1, width, embedded, columns(both, width, width));
  ops.norm(weights.norm, 1, both, both);
  run(ops, spec.gqa, weights.attention, kv, both, y);
  ops.norm(weights.ffn_norm, 1, y, y);
  Tensor up = ops.scratch(x.rows, 2 * ffn), more = ops.scratch(x.rows, 2 * ffn), low = ops.scratch(x.rows, spec.rank);
  ops.linear(weights.gate_up, y, up);
  ops.linear(weights.low, y, low);
  ops.linear(weights.high, low, more);
  ops.add(more, 1, up);
  Tensor inner = ops.scratch(x.rows, ffn);
  ops.glu(spec.ffn.activation, columns(up, 0, ffn), columns(up, ffn, ffn), inner);
  ops.linear(weights.down, inner, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

}  // namespace millrace

// One feed-forward network that every token passes.
#include <cmath>

#include "model/ffns/ffns.h"
#include "model/limits.h"

namespace millrace {

void visit(SlotWalk& walk, const DenseSpec& dense, DenseWeights& weights) {
  const int64_t width = walk.spec().width;
  const SlotWalk::Traits inner = {.bias = dense.up_bias};
  if (dense.gated) walk.matrix("ffn_gate", dense.width, width, weights.gate, inner);
  walk.matrix("ffn_up", dense.width, width, weights.up, inner);
  walk.norm("ffn_sub_norm", dense.width, dense.inner_norm, weights.inner_norm);
  walk.matrix("ffn_down", width, dense.width, weights.down, {.bias = dense.down_bias});
}

Result<void> check(const DenseSpec& dense) {
  TRY_VOID(in_range("the feed-forward width", dense.width, kMaxWidth * 8));
  if (!std::isfinite(dense.sparsity) || (dense.sparsity != 0 && !dense.gated))
    return error(Code::invalid, "the feed-forward part keeps what exceeds its mean by {} deviations", dense.sparsity);
  if (!std::isfinite(dense.gate_scale) || !std::isfinite(dense.out_scale))
    return error(Code::invalid, "the feed-forward part is scaled by {} and {}", dense.gate_scale, dense.out_scale);
  return check_norm(dense.inner_norm);
}

void run(Ops& ops, const DenseSpec& spec, const DenseWeights& weights, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor inner = ops.scratch(in.rows, spec.width);
  if (spec.gated && (spec.sparsity != 0 || spec.gate_scale != 1)) {
    Tensor gate = ops.scratch(in.rows, spec.width);
    ops.linear(weights.gate, in, gate);
    if (spec.sparsity != 0) ops.sparsify(spec.sparsity, gate);
    if (spec.gate_scale != 1) ops.finish_logits(spec.gate_scale, 0, gate);
    ops.linear(weights.up, in, inner);
    ops.glu(spec.activation, gate, inner, inner);
  } else if (spec.gated) {
    ops.linear_glu(weights.gate, weights.up, spec.activation, in, inner);
  } else {
    ops.linear(weights.up, in, inner);
    ops.activate(spec.activation, inner, inner);
  }
  if (spec.inner_norm) ops.norm(weights.inner_norm, 1, inner, inner);
  ops.linear(weights.down, inner, out);
  if (spec.out_scale != 1) ops.finish_logits(spec.out_scale, 0, out);
  ops.restore(start);
}

void put_keys(GgufKeys& keys, const DenseSpec& spec) { keys.put("feed_forward_length", spec.width); }

void settle_biases(DenseSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  auto there = [&](std::string_view stem) {
    return checkpoint.find(fmt::format("blk.{}.{}.bias", layer, stem)) != nullptr;
  };
  spec.down_bias = there("ffn_down");
  spec.up_bias = there("ffn_up");
}

Result<void> shard(DenseSpec& spec, int32_t ranks) {
  TRY_VOID(check_divides("columns of the feed-forward part", spec.width, ranks));
  spec.width /= ranks;
  return {};
}

}  // namespace millrace

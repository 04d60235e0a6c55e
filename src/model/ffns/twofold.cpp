// A dense network and a mixture of experts side by side, with norms of their own.
#include "model/ffns/ffns.h"
#include "model/limits.h"

namespace millrace {

void visit(SlotWalk& walk, const TwofoldSpec& spec, TwofoldWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.norm("ffn_norm", width, spec.norm, weights.dense_norm);
  visit(walk, spec.dense, weights.dense);
  walk.norm("post_ffw_norm_1", width, spec.norm, weights.dense_post_norm);
  walk.norm("ffn_gate_inp_scale", width, spec.norm, weights.router_norm);
  walk.norm("pre_ffw_norm_2", width, spec.norm, weights.moe_norm);
  visit(walk, spec.moe, weights.moe);
  walk.norm("post_ffw_norm_2", width, spec.norm, weights.moe_post_norm);
}

Result<void> check(const TwofoldSpec& spec) {
  TRY_VOID(check(spec.dense));
  TRY_VOID(check(spec.moe));
  return check_norm(spec.norm);
}

void run(Ops& ops, const TwofoldSpec& spec, const TwofoldWeights& weights, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor read = ops.scratch(in.rows, in.cols), asked = ops.scratch(in.rows, in.cols);
  Tensor mixed = ops.scratch(out.rows, out.cols);
  ops.norm(weights.router_norm, 1, in, asked);
  ops.norm(weights.moe_norm, 1, in, read);
  run_routed(ops, spec.moe, weights.moe, asked, read, mixed);
  ops.norm(weights.moe_post_norm, 1, mixed, mixed);
  ops.norm(weights.dense_norm, 1, in, read);
  run(ops, spec.dense, weights.dense, read, out);
  ops.norm(weights.dense_post_norm, 1, out, out);
  ops.add(mixed, 1, out);
  ops.restore(start);
}

// The dense part's width is said of every layer elsewhere.
void put_keys(GgufKeys& keys, const TwofoldSpec& spec) { put_keys(keys, spec.moe); }

void settle_biases(TwofoldSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  settle_biases(spec.dense, checkpoint, layer);
  settle_biases(spec.moe, checkpoint, layer);
}

Result<void> shard(TwofoldSpec& spec, int32_t ranks) {
  TRY_VOID(shard(spec.dense, ranks));
  return shard(spec.moe, ranks);
}

}  // namespace millrace

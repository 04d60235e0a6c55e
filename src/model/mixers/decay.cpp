// Linear attention whose heads forget at fixed rates.
#include <cmath>

#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {

void visit(SlotWalk& walk, const DecaySpec& decay, DecayWeights& weights) {
  const int64_t width = walk.spec().width, inner = int64_t{decay.heads} * decay.head_dim;
  walk.matrix("attn_q", inner, width, weights.q, {});
  walk.matrix("attn_k", inner, width, weights.k, {});
  walk.matrix("attn_v", inner, width, weights.v, {});
  walk.matrix("attn_gate", inner, width, weights.gate, {});
  walk.norm("ssm_norm", inner, decay.norm, weights.norm, 0, true);
  walk.matrix("attn_output", width, inner, weights.out, {});
}

Result<void> check(const ModelSpec&, const DecaySpec& decay, int32_t) {
  TRY_VOID(in_range("the heads of linear attention", decay.heads, kMaxWidth));
  TRY_VOID(in_range("the width of a linear attention head", decay.head_dim, 1024));
  TRY_VOID(in_range("heads * head dimension", int64_t{decay.heads} * decay.head_dim, kMaxWidth));
  if (decay.rates.size() != static_cast<size_t>(decay.heads))
    return error(Code::invalid, "{} rates for {} heads", decay.rates.size(), decay.heads);
  for (float rate : decay.rates) {
    if (!(rate <= 0) || !std::isfinite(rate)) return error(Code::invalid, "a head forgets at the rate {}", rate);
  }
  return check_norm(decay.norm);
}

void run(Ops& ops, const DecaySpec& spec, const DecayWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark(), inner = int64_t{spec.heads} * spec.head_dim;
  Tensor q = ops.scratch(in.rows, inner), k = ops.scratch(in.rows, inner), v = ops.scratch(in.rows, inner);
  Tensor gate = ops.scratch(in.rows, inner), y = ops.scratch(in.rows, inner);
  ops.linear_qkv(weights.q, weights.k, weights.v, in, q, k, v);
  for (const Tensor each : {q, k, v}) ops.activate(spec.activation, each, each);
  const HeadScan scan = {.heads = spec.heads,
                         .key_heads = spec.heads,
                         .key_dim = spec.head_dim,
                         .value_dim = spec.head_dim,
                         .rate = weights.rate};
  ops.scan_heads(scan, {.q = q, .k = k, .v = v, .steps = {}, .beta = {}}, kv.state, y);
  ops.norm(weights.norm, 1, y, y);
  ops.linear(weights.gate, in, gate);
  ops.glu(Activation::sigmoid, gate, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const DecaySpec& decay, const KvForm& form) {
  return {.form = form,
          .state = {.scan = int64_t{decay.heads} * decay.head_dim * decay.head_dim, .heads = even_cuts({decay.heads})}};
}

int64_t count_constants(const DecaySpec& decay) { return decay.heads; }

Result<void> upload_constants(Backend& backend, const DecaySpec& decay, std::span<const Rope>, DecayWeights& weights) {
  TRY(weights.rate, backend.upload_vector(decay.rates));
  return {};
}

// Fused by heads: each has its query, its key, its value.
TakenRows taken_rows(const DecaySpec& decay, Take take) {
  const int64_t dim = decay.head_dim, first = take == Take::grouped_q ? 0 : take == Take::grouped_k ? dim : 2 * dim;
  TakenRows taken = {.stored = 3 * dim * decay.heads};
  for (int64_t head = 0; head < decay.heads; ++head) {
    for (int64_t i = 0; i < dim; ++i) taken.rows.push_back(head * 3 * dim + first + i);
  }
  return taken;
}

}  // namespace millrace

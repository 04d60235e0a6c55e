// The gated delta rule: every head corrects its state by the difference between a value and what the state would have
// answered to its key, and forgets at a rate of the token's own.
#include <cmath>

#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

int64_t keys_of(const DeltaSpec& delta) { return int64_t{delta.k_heads} * delta.k_dim; }
int64_t values_of(const DeltaSpec& delta) { return int64_t{delta.v_heads} * delta.v_dim; }
int64_t convolved(const DeltaSpec& delta) { return 2 * keys_of(delta) + values_of(delta); }

}  // namespace

void visit(SlotWalk& walk, const DeltaSpec& delta, DeltaWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.matrix("attn_qkv", convolved(delta), width, weights.qkv, {});
  walk.matrix("attn_gate", values_of(delta), width, weights.gate, {});
  walk.vector("ssm_conv1d", convolved(delta) * delta.conv, weights.conv.weight, delta.conv);
  walk.matrix("ssm_beta", delta.v_heads, width, weights.beta, {});
  walk.matrix("ssm_alpha", delta.v_heads, width, weights.steps, {});
  walk.vector("ssm_dt_b", delta.v_heads, weights.step_bias);
  walk.vector("ssm_a", delta.v_heads, weights.rate);
  walk.norm("ssm_norm", delta.v_dim, delta.norm, weights.norm, 0, true);
  // To length one: a mean instead of a sum, which the scan's scales make good.
  const NormSpec unit = {.epsilon = 1e-6f / static_cast<float>(delta.k_dim), .weight = false};
  walk.norm("unit", delta.k_dim, unit, weights.unit);
  walk.matrix("ssm_out", width, values_of(delta), weights.out, {});
}

Result<void> check(const ModelSpec&, const DeltaSpec& delta, int32_t) {
  TRY_VOID(in_range("the key heads of linear attention", delta.k_heads, kMaxWidth));
  TRY_VOID(in_range("the value heads of linear attention", delta.v_heads, kMaxWidth));
  TRY_VOID(in_range("the width of a linear attention head's keys", delta.k_dim, 1024));
  TRY_VOID(in_range("the width of a linear attention head's values", delta.v_dim, 1024));
  TRY_VOID(in_range("rows of linear attention's product", convolved(delta), kMaxWidth));
  TRY_VOID(check_taps(delta.conv));
  if (delta.v_heads % delta.k_heads != 0)
    return error(Code::invalid, "{} value heads cannot share {} key heads: expected a divisor", delta.v_heads,
                 delta.k_heads);
  return check_norm(delta.norm);
}

void run(Ops& ops, const DeltaSpec& spec, const DeltaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark(), keys = keys_of(spec), values = values_of(spec);
  Tensor qkv = ops.scratch(in.rows, convolved(spec)), mixed = ops.scratch(in.rows, convolved(spec));
  Tensor gate = ops.scratch(in.rows, values), y = ops.scratch(in.rows, values);
  Tensor beta = ops.scratch(in.rows, spec.v_heads), steps = ops.scratch(in.rows, spec.v_heads);
  ops.linear(weights.qkv, in, qkv);
  ops.linear(weights.gate, in, gate);
  ops.linear(weights.beta, in, beta);
  ops.linear(weights.steps, in, steps);
  ops.convolve({.taps = spec.conv, .weight = weights.conv.weight, .silu = true}, qkv, kv.state, mixed);
  const Tensor q = columns(mixed, 0, keys), k = columns(mixed, keys, keys), v = columns(mixed, 2 * keys, values);
  ops.norm(weights.unit, spec.k_heads, q, q);
  ops.norm(weights.unit, spec.k_heads, k, k);
  const auto dim = static_cast<float>(spec.k_dim);
  const HeadScan scan = {.heads = spec.v_heads,
                         .key_heads = spec.k_heads,
                         .striped = spec.striped,
                         .key_dim = spec.k_dim,
                         .value_dim = spec.v_dim,
                         .rate = weights.rate,
                         .step_bias = weights.step_bias,
                         .q_scale = 1 / dim,
                         .k_scale = 1 / std::sqrt(dim),
                         .delta = true};
  ops.scan_heads(scan, {.q = q, .k = k, .v = v, .steps = steps, .beta = beta}, kv.state, y);
  ops.norm(weights.norm, spec.v_heads, y, y);
  ops.glu(Activation::silu, gate, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const DeltaSpec& delta, const KvForm& form) {
  return {.form = form,
          .state = {.convolution = convolved(delta) * (delta.conv - 1),
                    .scan = values_of(delta) * delta.k_dim,
                    .heads = even_cuts({convolved(delta), delta.v_heads})}};
}

// Fused by key heads: each has its query, its key, its values and their gates; or shares and steps of its values.
TakenRows taken_rows(const DeltaSpec& delta, Take take) {
  const int64_t key = delta.k_dim, heads = delta.k_heads, shared = delta.v_heads / heads, value = shared * delta.v_dim;
  const int64_t group = 2 * key + 2 * value;
  TakenRows taken = {.stored =
                         take == Take::delta_beta || take == Take::delta_steps ? 2 * delta.v_heads : heads * group};
  auto add = [&](int64_t first, int64_t apart, int64_t count) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < count; ++i) taken.rows.push_back(first + head * apart + i);
    }
  };
  if (take == Take::delta_qkv) {
    add(0, group, key);
    add(key, group, key);
    add(2 * key, group, value);
  }
  if (take == Take::delta_gate) add(2 * key + value, group, value);
  if (take == Take::delta_beta) add(0, 2 * shared, shared);
  if (take == Take::delta_steps) add(shared, 2 * shared, shared);
  return taken;
}

}  // namespace millrace

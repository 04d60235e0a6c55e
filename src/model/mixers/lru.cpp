// A linear recurrence of channels whose rates are gated by the token (RG-LRU), after a short convolution.
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {

void visit(SlotWalk& walk, const LruSpec& lru, LruWeights& weights) {
  const int64_t width = walk.spec().width, each = lru.inner / lru.heads;
  walk.matrix("lru_gate", lru.inner, width, weights.gate, {.bias = true});
  walk.matrix("lru_x", lru.inner, width, weights.x, {.bias = true});
  walk.vector("ssm_conv1d", int64_t{lru.inner} * lru.conv, weights.conv.weight, lru.conv);
  walk.vector("ssm_conv1d_b", lru.inner, weights.conv.bias);
  const SlotWalk::Traits by_head = {.experts = lru.heads, .routed = false};
  walk.matrix("lru_input_gate", each, each, weights.input_gate, by_head);
  walk.vector("lru_input_gate_b", lru.inner, weights.input_bias);
  walk.matrix("lru_keep_gate", each, each, weights.keep_gate, by_head);
  walk.vector("lru_keep_gate_b", lru.inner, weights.keep_bias);
  walk.vector("lru_rate", lru.inner, weights.rate);
  walk.matrix("lru_out", width, lru.inner, weights.out, {.bias = true});
}

Result<void> check(const ModelSpec&, const LruSpec& lru, int32_t) {
  TRY_VOID(in_range("the channels of a recurrent layer", lru.inner, kMaxWidth));
  TRY_VOID(in_range("the heads of a recurrent layer", lru.heads, lru.inner));
  if (lru.inner % lru.heads != 0)
    return error(Code::invalid, "{} channels in {} heads: expected a divisor", lru.inner, lru.heads);
  return check_taps(lru.conv);
}

void run(Ops& ops, const LruSpec& spec, const LruWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark(), inner = spec.inner;
  Tensor gate = ops.scratch(in.rows, inner), x = ops.scratch(in.rows, inner), mixed = ops.scratch(in.rows, inner);
  Tensor input = ops.scratch(in.rows, inner), keep = ops.scratch(in.rows, inner), y = ops.scratch(in.rows, inner);
  ops.linear(weights.gate, in, gate);
  ops.linear(weights.x, in, x);
  ops.convolve({.taps = spec.conv, .weight = weights.conv.weight, .bias = weights.conv.bias}, x, kv.state, mixed);
  ops.linear_heads(weights.input_gate, mixed, input);
  ops.linear_heads(weights.keep_gate, mixed, keep);
  const ChannelScan scan = {.kind = ChannelScanKind::gated, .states = 1, .constants = {weights.rate, nullptr, nullptr}};
  ops.scan_channels(scan, {.a = mixed, .b = keep, .c = input, .d = {}}, kv.state, y);
  ops.glu(spec.activation, gate, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const LruSpec& lru, const KvForm& form) {
  return {.form = form,
          .state = {
              .convolution = int64_t{lru.inner} * (lru.conv - 1), .scan = lru.inner, .heads = even_cuts({lru.inner})}};
}

// Files keep the gates' biases beside their matrices.
Result<void> upload_constants(Backend&, const LruSpec&, std::span<const Rope>, LruWeights& weights) {
  weights.input_gate.bias = weights.input_bias;
  weights.keep_gate.bias = weights.keep_bias;
  return {};
}

}  // namespace millrace

// RWKV 4: both halves of a layer mix a token with the one before it; the first averages values by keys that fade.
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {

void visit(SlotWalk& walk, const TimeMixSpec& mix, TimeMixWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.vector("time_mix_key_share", width, weights.key_share);
  walk.vector("time_mix_value_share", width, weights.value_share);
  walk.vector("time_mix_receptance_share", width, weights.receptance_share);
  walk.vector("time_mix_decay", mix.inner, weights.decay);
  walk.vector("time_mix_first", mix.inner, weights.first);
  walk.matrix("time_mix_key", mix.inner, width, weights.key, {});
  walk.matrix("time_mix_value", mix.inner, width, weights.value, {});
  walk.matrix("time_mix_receptance", mix.inner, width, weights.receptance, {});
  walk.matrix("time_mix_output", width, mix.inner, weights.out, {});
}

Result<void> check(const ModelSpec& spec, const TimeMixSpec& mix, int32_t) {
  if (mix.width != spec.width) return error(Code::invalid, "{} columns in a model of {}", mix.width, spec.width);
  return in_range("the width of the time mixing part", mix.inner, kMaxWidth);
}

void run(Ops& ops, const TimeMixSpec& spec, const TimeMixWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark(), width = in.cols;
  Tensor mixed = ops.scratch(in.rows, 3 * width), y = ops.scratch(in.rows, spec.inner);
  Tensor key = ops.scratch(in.rows, spec.inner), value = ops.scratch(in.rows, spec.inner);
  Tensor receptance = ops.scratch(in.rows, spec.inner);
  ops.convolve({.taps = 2, .shares = {weights.key_share, weights.value_share, weights.receptance_share}}, in, kv.state,
               mixed);
  ops.linear(weights.key, columns(mixed, 0, width), key);
  ops.linear(weights.value, columns(mixed, width, width), value);
  ops.linear(weights.receptance, columns(mixed, 2 * width, width), receptance);
  const ChannelScan scan = {
      .kind = ChannelScanKind::wkv, .states = 3, .constants = {weights.decay, weights.first, nullptr}};
  ops.scan_channels(scan, {.a = key, .b = value, .c = {}, .d = {}}, kv.state, y);
  ops.glu(Activation::sigmoid, receptance, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const TimeMixSpec& mix, const KvForm& form) {
  return {
      .form = form,
      .state = {.convolution = mix.width, .scan = 3 * int64_t{mix.inner}, .heads = even_cuts({mix.width, mix.inner})}};
}

void visit(SlotWalk& walk, const ChannelMixSpec& mix, ChannelMixWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.vector("channel_mix_key_share", width, weights.key_share);
  walk.vector("channel_mix_receptance_share", width, weights.receptance_share);
  walk.matrix("channel_mix_key", mix.inner, width, weights.key, {});
  walk.matrix("channel_mix_receptance", width, width, weights.receptance, {});
  walk.matrix("channel_mix_value", width, mix.inner, weights.value, {});
}

Result<void> check(const ModelSpec& spec, const ChannelMixSpec& mix, int32_t) {
  if (mix.width != spec.width) return error(Code::invalid, "{} columns in a model of {}", mix.width, spec.width);
  return in_range("the width of the channel mixing part", mix.inner, kMaxWidth * 8);
}

void run(Ops& ops, const ChannelMixSpec& spec, const ChannelMixWeights& weights, const KvView& kv, Tensor in,
         Tensor out) {
  const int64_t start = ops.mark(), width = in.cols;
  Tensor mixed = ops.scratch(in.rows, 2 * width), key = ops.scratch(in.rows, spec.inner);
  Tensor receptance = ops.scratch(in.rows, width);
  ops.convolve({.taps = 2, .shares = {weights.key_share, weights.receptance_share, nullptr}}, in, kv.state, mixed);
  ops.linear(weights.key, columns(mixed, 0, width), key);
  ops.activate(Activation::relu_squared, key, key);
  ops.linear(weights.value, key, out);
  ops.linear(weights.receptance, columns(mixed, width, width), receptance);
  ops.glu(Activation::sigmoid, receptance, out, out);
  ops.restore(start);
}

KvShape kv_shape(const ChannelMixSpec& mix, const KvForm& form) {
  return {.form = form, .state = {.convolution = mix.width, .heads = even_cuts({mix.width})}};
}

}  // namespace millrace

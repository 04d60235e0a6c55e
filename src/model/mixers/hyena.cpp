// Hyena as it is run: the product's columns pass a short convolution, then what enters times x goes through a long
// convolution that is a sum of decaying modes, token by token, and what leaves multiplies the result.
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

constexpr int64_t kMostModes = 64;

// Of every head's [what leaves | what enters | x], one of the three, heads side by side.
Tensor part_of(Ops& ops, const HyenaSpec& spec, Tensor all, int64_t part) {
  const int64_t each = spec.width / spec.heads;
  Tensor from = all, out = ops.scratch(all.rows, spec.width);
  if (from.data != nullptr) from.data += part * each * static_cast<int64_t>(sizeof(float));  // nothing under trace
  ops.copy_heads(spec.heads, each, from, out);
  return out;
}

}  // namespace

void visit(SlotWalk& walk, const HyenaSpec& hyena, HyenaWeights& weights) {
  const int64_t width = hyena.width;
  walk.matrix("hyena_in", 3 * width, width, weights.in, {.bias = true});
  walk.vector("hyena_conv", 3 * width * hyena.conv, weights.conv.weight, hyena.conv);
  if (hyena.conv_bias) walk.vector("hyena_conv_b", 3 * width, weights.conv.bias);
  walk.vector("hyena_poles", width * hyena.modes * 2, weights.poles, 2 * hyena.modes);
  walk.vector("hyena_residues", width * hyena.modes * 2, weights.residues, 2 * hyena.modes);
  walk.vector("hyena_d", width, weights.skip);
  walk.matrix("hyena_out", width, width, weights.out, {.bias = true});
}

Result<void> check(const ModelSpec& spec, const HyenaSpec& hyena, int32_t) {
  if (hyena.width != spec.width)
    return error(Code::invalid, "a Hyena layer of {} columns in a model of {}", hyena.width, spec.width);
  TRY_VOID(in_range("the modes of a Hyena layer (state_size)", hyena.modes, kMostModes));
  TRY_VOID(in_range("the heads of a Hyena layer", hyena.heads, hyena.width));
  if (hyena.width % hyena.heads != 0)
    return error(Code::invalid, "{} columns in {} heads: expected a divisor", hyena.width, hyena.heads);
  return check_taps(hyena.conv);
}

void run(Ops& ops, const HyenaSpec& spec, const HyenaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor all = ops.scratch(in.rows, 3 * int64_t{spec.width}), mixed = ops.scratch(in.rows, all.cols);
  ops.linear(weights.in, in, all);
  ops.convolve({.taps = spec.conv, .weight = weights.conv.weight, .bias = weights.conv.bias}, all, kv.state, mixed);
  const Tensor leaves = part_of(ops, spec, mixed, 0), enters = part_of(ops, spec, mixed, 1);
  const Tensor x = part_of(ops, spec, mixed, 2), y = ops.scratch(in.rows, spec.width);
  ops.glu(Activation::none, enters, x, x);
  const ChannelScan scan = {.kind = ChannelScanKind::modal,
                            .states = 2 * spec.modes,
                            .constants = {weights.poles, weights.residues, weights.skip}};
  ops.scan_channels(scan, {.a = x, .b = {}, .c = {}, .d = {}}, kv.state, y);
  ops.glu(Activation::none, leaves, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const HyenaSpec& hyena, const KvForm& form) {
  return {.form = form,
          .state = {.convolution = 3 * int64_t{hyena.width} * (hyena.conv - 1),
                    .scan = 2 * int64_t{hyena.width} * hyena.modes,
                    .heads = even_cuts({hyena.width})}};
}

}  // namespace millrace

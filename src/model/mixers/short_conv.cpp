// A short convolution between two gates, and nothing else.
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {

void visit(SlotWalk& walk, const ShortConvSpec& conv, ShortConvWeights& weights) {
  const int64_t width = walk.spec().width;
  walk.matrix("shortconv.in_proj", 3 * width, width, weights.in, {.bias = conv.bias});
  walk.vector("shortconv.conv", width * conv.conv, weights.conv.weight, conv.conv);
  if (conv.bias) walk.vector("shortconv.conv_b", width, weights.conv.bias);
  walk.matrix("shortconv.out_proj", width, width, weights.out, {.bias = conv.bias});
}

Result<void> check(const ModelSpec& spec, const ShortConvSpec& conv, int32_t) {
  if (conv.width != spec.width)
    return error(Code::invalid, "a convolution of {} columns in a model of {}", conv.width, spec.width);
  return check_taps(conv.conv);
}

void run(Ops& ops, const ShortConvSpec& spec, const ShortConvWeights& weights, const KvView& kv, Tensor in,
         Tensor out) {
  const int64_t start = ops.mark(), width = in.cols;
  Tensor all = ops.scratch(in.rows, 3 * width), y = ops.scratch(in.rows, width);
  ops.linear(weights.in, in, all);
  const Tensor enters = columns(all, 0, width), leaves = columns(all, width, width), x = columns(all, 2 * width, width);
  ops.glu(Activation::none, enters, x, x);
  ops.convolve({.taps = spec.conv, .weight = weights.conv.weight, .bias = weights.conv.bias}, x, kv.state, y);
  ops.glu(Activation::none, leaves, y, y);
  ops.linear(weights.out, y, out);
  ops.restore(start);
}

KvShape kv_shape(const ShortConvSpec& conv, const KvForm& form) {
  return {.form = form,
          .state = {.convolution = int64_t{conv.width} * (conv.conv - 1), .heads = even_cuts({conv.width})}};
}

}  // namespace millrace

#include "model/forward.h"

namespace millrace {

void run_dense(Ops& ops, const DenseSpec& spec, const DenseWeights& weights, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor inner = ops.scratch(in.rows, spec.width);
  if (spec.gated) {
    ops.linear_glu(weights.gate, weights.up, spec.activation, in, inner);
  } else {
    ops.linear(weights.up, in, inner);
    ops.activate(spec.activation, inner, inner);
  }
  if (spec.inner_norm) ops.norm(weights.inner_norm, 1, inner, inner);
  ops.linear(weights.down, inner, out);
  ops.restore(start);
}

}  // namespace millrace

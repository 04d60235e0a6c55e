#include <algorithm>
#include <cmath>

#include "model/forward.h"

namespace millrace {
namespace {

Weight expert(const Weight& all, int64_t index, int64_t experts) {
  Weight one = all;
  one.rows = all.rows / experts;
  one.bytes = all.bytes / experts;
  one.data += index * one.bytes;
  return one;
}

// Different experts that so many tokens need, if every token chooses evenly and by itself: the expected number.
int64_t touched_experts(const MoeSpec& spec, int64_t tokens) {
  const double experts = spec.experts, missed = std::pow(1 - spec.chosen / experts, static_cast<double>(tokens));
  return std::clamp<int64_t>(std::llround(experts * (1 - missed)), spec.chosen, spec.experts);
}

}  // namespace

// So far as trace needs it: which expert a row goes to is a value, which trace has not, so rows are spread evenly over
// as many experts as they would need on average.
void run_moe(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  ops.linear(weights.router, in, ops.scratch(in.rows, spec.experts));
  if (weights.shared_up) {
    Tensor inner = ops.scratch(in.rows, spec.shared_width);
    ops.linear_glu(weights.shared_gate, weights.shared_up, spec.activation, in, inner);
    ops.linear(weights.shared_down, inner, out);
  }
  const int64_t touched = touched_experts(spec, in.rows), all = in.rows * spec.chosen;
  for (int64_t e = 0; e < touched; ++e) {
    const int64_t room = ops.mark(), rows = all / touched + (e < all % touched ? 1 : 0);
    Tensor some = ops.scratch(rows, in.cols), inner = ops.scratch(rows, spec.width), given = ops.scratch(rows, in.cols);
    ops.gather(nullptr, in, some);
    ops.linear_glu(expert(weights.gate, e, spec.experts), expert(weights.up, e, spec.experts), spec.activation, some,
                   inner);
    ops.linear(expert(weights.down, e, spec.experts), inner, given);
    ops.add(given, 1, out);
    ops.restore(room);
  }
  ops.restore(start);
}

}  // namespace millrace

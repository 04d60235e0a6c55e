#include "model/adapted_ops.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {

void AdaptedOps::begin(const Step& step) {
  step_ = &step;
  present_.clear();
  for (int32_t row = 0; row < step.rows; ++row) {
    const int32_t adapter = step.adapters[row];
    if (adapter >= 0 && std::ranges::find(present_, adapter) == present_.end()) present_.push_back(adapter);
  }
  inner_.begin(step);
  recorded_ = inner_.recording();
}

const Delta* AdaptedOps::changes(const Weight& weight) const {
  const Delta* listed = adapters_.listed(weight);
  if (listed == nullptr || recorded_) return listed;
  const bool any = std::ranges::any_of(present_, [&](int32_t adapter) { return listed[adapter].rank > 0; });
  return any ? listed : nullptr;
}

// Rows are those of the step, or the wanted ones: if as many are wanted as there are, both are the same.
void AdaptedOps::change(const Delta* listed, Tensor in, Tensor out, const int32_t* ids) {
  if (listed == nullptr) return;
  const bool all = out.rows == step_->rows;
  CHECK(all || out.rows == step_->wanted, "{} rows of a step of {}", out.rows, step_->rows);
  RowDeltas deltas = adapters_.deltas(listed);
  deltas.adapters = all ? step_->adapters : step_->wanted_adapters;
  deltas.strengths = all ? step_->strengths : step_->wanted_strengths;
  deltas.ids = ids;
  inner_.linear_delta(deltas, in, out);
}

void AdaptedOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  inner_.embed(table, ids, offset, scale, add, out);
  change(changes(table), {}, out, ids);
}

void AdaptedOps::linear(const Weight& weight, Tensor in, Tensor out) {
  inner_.linear(weight, in, out);
  change(changes(weight), in, out);
}

void AdaptedOps::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                            Tensor v_out) {
  inner_.linear_qkv(q, k, v, in, q_out, k_out, v_out);
  change(changes(q), in, q_out);
  change(changes(k), in, k_out);
  change(changes(v), in, v_out);
}

void AdaptedOps::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  // Whatever is loaded decides, not who takes part in the step: a GPU's fused result is rounded to 16 bits, and the
  // next product's change reads it.
  if (adapters_.listed(gate) != nullptr || adapters_.listed(up) != nullptr)
    return Ops::linear_glu(gate, up, activation, in, out);
  inner_.linear_glu(gate, up, activation, in, out);
}

}  // namespace millrace

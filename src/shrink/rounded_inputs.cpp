#include "shrink/rounded_inputs.h"

#include <algorithm>
#include <cmath>

#include "model/slots.h"

namespace millrace {

void round_to_8_bits(const float* in, float* out, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(in[i]));
  const float scale = most / 127;
  if (!(scale > 0)) {
    std::copy(in, in + count, out);
    return;
  }
  for (int64_t i = 0; i < count; ++i) out[i] = std::nearbyint(in[i] / scale) * scale;
}

RoundedInputs::RoundedInputs(const Model& model) {
  for (const PlacedSlot& each : placed_slots(model.spec(), model.weights())) {
    const Slot& slot = each.slot;
    if (slot.kind == SlotKind::matrix && slot.layer >= 0 && !slot.float32 && slot.use == WeightUse::linear)
      weights_.insert(static_cast<const Weight*>(each.place)->data);
  }
}

Tensor RoundedInputs::instead(const Weight& weight, Tensor in) {
  if (!weights_.contains(weight.data)) return in;
  rows_.resize(static_cast<size_t>(in.rows * in.cols));
  for (int64_t r = 0; r < in.rows; ++r) round_to_8_bits(in.row(r), &rows_[static_cast<size_t>(r * in.cols)], in.cols);
  return {reinterpret_cast<std::byte*>(rows_.data()), DType::f32, in.rows, in.cols,
          in.cols * static_cast<int64_t>(sizeof(float))};
}

}  // namespace millrace

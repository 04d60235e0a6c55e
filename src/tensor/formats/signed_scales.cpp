#include "tensor/formats/signed_scales.h"

#include <algorithm>
#include <cmath>

#include "tensor/formats/fit.h"
#include "tensor/half.h"

namespace millrace::formats {
namespace {

constexpr int kSubgroups = 16, kSubgroup = 16;

// The best whole scale around the wanted one, and its error.
float refine(const float* x, const float* w, float wanted, float unit, int most, int low, int high, int8_t& chosen) {
  const int near = fit::nearest(wanted * fit::inverse(unit), -most - 1, most);
  float best = -1.0f;
  for (int s = std::max(-most - 1, near - 1); s <= std::min(most, near + 1); ++s) {
    const float error = fit::error(x, w, kSubgroup, unit * static_cast<float>(s), 0.0f, low, high);
    if (best >= 0.0f && !(error < best)) continue;
    best = error;
    chosen = static_cast<int8_t>(s);
  }
  return best;
}

}  // namespace

SignedScales choose_signed_scales(const float* x, const float* w, int most, int low, int high) {
  auto weights = [&](int j) { return w != nullptr ? w + j * kSubgroup : nullptr; };
  float wanted[kSubgroups], extreme = 0.0f;
  for (int j = 0; j < kSubgroups; ++j) {
    wanted[j] = fit::scale(x + j * kSubgroup, weights(j), kSubgroup, low, high);
    if (std::fabs(wanted[j]) > std::fabs(extreme)) extreme = wanted[j];
  }
  // The range of scales has one step more below zero than above, so the extreme one goes there.
  SignedScales out;
  out.unit = fit::to_f16(extreme / static_cast<float>(-most - 1));
  const float unit = f16_to_f32(out.unit);
  for (int j = 0; j < kSubgroups; ++j) {
    const float* part = x + j * kSubgroup;
    refine(part, weights(j), wanted[j], unit, most, low, high, out.scales[j]);
    fit::codes(part, kSubgroup, unit * static_cast<float>(out.scales[j]), 0.0f, low, high, out.codes + j * kSubgroup);
  }
  return out;
}

void signed_grid(float unit, const int8_t* scales, int low, int high, Grid& grid) {
  grid.low = low, grid.high = high, grid.levels = nullptr;
  for (int i = 0; i < 256; ++i) {
    grid.step[i] = unit * static_cast<float>(scales[i / kSubgroup]);
    grid.offset[i] = 0.0f;
  }
}

}  // namespace millrace::formats

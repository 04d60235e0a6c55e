// Products in floating point as outer products: a panel holds eight outputs side by side for every input, so each input
// of a row is multiplied into eight outputs at once. Every output has one accumulator and takes its inputs in ascending
// order: the bits cannot depend on how many rows or panels are in flight. Panels: [inputs rounded up][8], zeros where
// there is no output.
#pragma once

#include <algorithm>

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

constexpr int kPanel = 8;

inline int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// acc [Rows, Panels * 8] += a [Rows, count] x w. `count` inputs; the panels' inputs are padded to a multiple of 4.
template <int Rows, int Panels>
inline void multiply_f32(const float* a, int64_t a_stride, const float* w, int64_t panel_floats, int64_t count,
                         float* acc) {
  float32x4_t sum[Rows][Panels * 2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < Panels * 2; ++n) sum[r][n] = vld1q_f32(acc + (r * Panels * 2 + n) * 4);
  }
  for (int64_t k = 0; k < count; k += 4) {
    float32x4_t x[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) x[r] = load_some(a + r * a_stride + k, count - k);
#pragma GCC unroll 4
    for (int lane = 0; lane < 4; ++lane) {
#pragma GCC unroll 8
      for (int n = 0; n < Panels * 2; ++n) {
        float32x4_t weights = vld1q_f32(w + (n / 2) * panel_floats + (k + lane) * kPanel + n % 2 * 4);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          float value = lane == 0   ? vgetq_lane_f32(x[r], 0)
                        : lane == 1 ? vgetq_lane_f32(x[r], 1)
                        : lane == 2 ? vgetq_lane_f32(x[r], 2)
                                    : vgetq_lane_f32(x[r], 3);
          sum[r][n] = vfmaq_n_f32(sum[r][n], weights, value);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < Panels * 2; ++n) vst1q_f32(acc + (r * Panels * 2 + n) * 4, sum[r][n]);
  }
}

// Writes a tile's sums, times a factor per row, with the bias, to where outputs exist.
inline void write_outputs(const LinearPart& part, int64_t row, int64_t rows, int64_t output, int64_t outputs,
                          const float* sums, int64_t sums_stride, const float* factors) {
  const float* bias = part.weight->bias;
  for (int64_t r = 0; r < rows; ++r) {
    float factor = factors != nullptr ? factors[r] : 1.0f;
    float* out = part.out.row(row + r) + output;
    for (int64_t n = 0; n < outputs; ++n) {
      float value = sums[r * sums_stride + n] * factor;
      out[n] = bias != nullptr ? value + bias[output + n] : value;
    }
  }
}

}  // namespace
}  // namespace millrace::cpu

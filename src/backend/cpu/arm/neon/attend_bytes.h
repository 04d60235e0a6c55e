// Products of a cache of eight bits with numbers that are split into two bytes: x = scale * (high + low / 254). Sums of
// bytes are exact, so their order cannot show, and what splitting rounds is below a 60 thousandth of the largest.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

constexpr float kOfLow = 1.0f / 254;

inline int8x16_t narrowed(const int32x4_t (&x)[4]) {
  const int16x8_t a = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1])),
                  b = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
  return vcombine_s8(vmovn_s16(a), vmovn_s16(b));
}

// `count` numbers, a multiple of 16. Returns the scale; NaN if one of them is no number.
inline float split(const float* in, int32_t count, int8_t* high, int8_t* low) {
  float32x4_t largest = vdupq_n_f32(0);
  for (int32_t i = 0; i < count; i += 4) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(in + i)));
  const float most = vmaxvq_f32(largest);
  const bool usable = most > 1e-30f && most < 1e30f;
  const float over = usable ? 127 / most : 0.0f;
  for (int32_t i = 0; i < count; i += 16) {
    int32x4_t first[4], second[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const float32x4_t x = vmulq_n_f32(vld1q_f32(in + i + 4 * n), over);
      first[n] = vcvtnq_s32_f32(x);
      second[n] = vcvtnq_s32_f32(vmulq_n_f32(vsubq_f32(x, vcvtq_f32_s32(first[n])), 254));
    }
    vst1q_s8(high + i, usable ? narrowed(first) : vdupq_n_s8(0));
    vst1q_s8(low + i, usable ? narrowed(second) : vdupq_n_s8(0));
  }
  return usable ? most / 127 : most <= 1e-30f ? 0.0f : NAN;
}

// A key with a split query, without their scales; `dim` is a multiple of 16.
inline float product(const int8_t* key, const int8_t* high, const int8_t* low, int32_t dim) {
  int32x4_t a = vdupq_n_s32(0), b = vdupq_n_s32(0);
  for (int32_t i = 0; i < dim; i += 16) {
    const int8x16_t k = vld1q_s8(key + i);
    a = vdotq_s32(a, k, vld1q_s8(high + i));
    b = vdotq_s32(b, k, vld1q_s8(low + i));
  }
  return static_cast<float>(vaddvq_s32(a)) + static_cast<float>(vaddvq_s32(b)) * kOfLow;
}

// Sixteen numbers of four positions, those of a dimension together.
struct FourPositions {
  int8x16_t part[4];
  FourPositions(const int8_t* const* values, int32_t dim) {
    int8x16_t at[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) at[p] = values[p] != nullptr ? vld1q_s8(values[p] + dim) : vdupq_n_s8(0);
    const auto low = [](int8x16_t a, int8x16_t b) { return vreinterpretq_s16_s8(vzip1q_s8(a, b)); };
    const auto high = [](int8x16_t a, int8x16_t b) { return vreinterpretq_s16_s8(vzip2q_s8(a, b)); };
    const int16x8_t a = low(at[0], at[1]), b = low(at[2], at[3]), c = high(at[0], at[1]), d = high(at[2], at[3]);
    part[0] = vreinterpretq_s8_s16(vzip1q_s16(a, b));
    part[1] = vreinterpretq_s8_s16(vzip2q_s16(a, b));
    part[2] = vreinterpretq_s8_s16(vzip1q_s16(c, d));
    part[3] = vreinterpretq_s8_s16(vzip2q_s16(c, d));
  }
};

// The weights of a query over the positions of a chunk, split; positions are a multiple of 4, zero where there is none.
struct SplitWeights {
  int8_t high[kAttendChunk], low[kAttendChunk];
  float scale;
};

inline int8x16_t four_of(const int8_t* weights) {
  int32_t four;
  std::memcpy(&four, weights, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// sums [v_dim] of each of `kQueries` queries = their weights x values; v_dim is a multiple of 16.
template <int kQueries>
void weigh_bytes(const SplitWeights* weights, const int8_t* const* values, int32_t positions, int32_t v_dim,
                 float* sums, int64_t sums_stride) {
  for (int32_t dim = 0; dim < v_dim; dim += 16) {
    int32x4_t high[kQueries][4], low[kQueries][4];
    for (int q = 0; q < kQueries; ++q)
      for (int n = 0; n < 4; ++n) high[q][n] = low[q][n] = vdupq_n_s32(0);
    for (int32_t p = 0; p < positions; p += 4) {
      const FourPositions four(values + p, dim);
#pragma GCC unroll 2
      for (int q = 0; q < kQueries; ++q) {
        const int8x16_t h = four_of(weights[q].high + p), l = four_of(weights[q].low + p);
#pragma GCC unroll 4
        for (int n = 0; n < 4; ++n) {
          high[q][n] = vdotq_s32(high[q][n], four.part[n], h);
          low[q][n] = vdotq_s32(low[q][n], four.part[n], l);
        }
      }
    }
    for (int q = 0; q < kQueries; ++q) {
      for (int n = 0; n < 4; ++n) {
        const float32x4_t sum = vfmaq_n_f32(vcvtq_f32_s32(high[q][n]), vcvtq_f32_s32(low[q][n]), kOfLow);
        vst1q_f32(sums + q * sums_stride + dim + 4 * n, vmulq_n_f32(sum, weights[q].scale));
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cpu

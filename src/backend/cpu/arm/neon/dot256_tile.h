// One group of 256 inputs of a panel, met by one to four rows: the arithmetic of dot256.h. Weights come from a Source,
// either packed (taken apart on the way) or wide.
#pragma once

#include "backend/cpu/arm/neon/dot256_rows.h"

namespace millrace::cpu {
namespace {

// sums [R][2] += sixteen inputs of R rows times those of eight outputs.
template <int R>
[[gnu::always_inline]] inline void add_sixteen(const std::byte* rows, const int8x16_t (&w)[4][kQuads],
                                               int32x4_t (&sums)[R][kQuads]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    int8x16_t x = load_s8(rows + r * 16);
#pragma GCC unroll 2
    for (int n = 0; n < kQuads; ++n) {
      sums[r][n] = add_dot<0>(sums[r][n], w[0][n], x);
      sums[r][n] = add_dot<1>(sums[r][n], w[1][n], x);
      sums[r][n] = add_dot<2>(sums[r][n], w[2][n], x);
      sums[r][n] = add_dot<3>(sums[r][n], w[3][n], x);
    }
  }
}

// Subgroups times their scales.
template <class Source, int R>
[[gnu::always_inline]] inline void scaled_sums(const std::byte* rows, const std::byte* group,
                                               int32x4_t (&whole)[R][kQuads]) {
  constexpr int kSpansOf32 = 8;
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) whole[i / kQuads][i % kQuads] = vdupq_n_s32(0);
#pragma GCC unroll 8
  for (int span = 0; span < kSpansOf32; ++span) {
#pragma GCC unroll 2
    for (int half = 0; half < Source::kHalves; ++half) {
      int32x4_t sums[R][kQuads];
#pragma GCC unroll 8
      for (int i = 0; i < R * kQuads; ++i) sums[i / kQuads][i % kQuads] = vdupq_n_s32(0);
#pragma GCC unroll 2
      for (int j = Source::kHalves == 2 ? half : 0; j < (Source::kHalves == 2 ? half + 1 : 2); ++j) {
        int8x16_t w[4][kQuads];
        Source::values(group, span, j, w);
        add_sixteen<R>(rows + (span * 2 + j) * R * 16, w, sums);
      }
      int32x4_t scale[kQuads];
      Source::scales(group, span, half, scale);
#pragma GCC unroll 8
      for (int i = 0; i < R * kQuads; ++i) {
        int r = i / kQuads, n = i % kQuads;
        whole[r][n] = vmlaq_s32(whole[r][n], sums[r][n], scale[n]);
      }
    }
  }
}

// The sum of minimum * sum of the row's integers: of one row and four outputs.
template <class Source, int R>
[[gnu::always_inline]] inline int32x4_t minimum_sums(const std::byte* tile, int r, int n, const std::byte* group) {
  int32x4_t sum = vdupq_n_s32(0);
  if constexpr (Source::kHalves == 1) {
    int8x16_t x = load_s8(tile + DotRows<R>::kSums32 + r * 16);
    int8x16_t a = Source::minimums(group, 0, n), b = Source::minimums(group, 1, n);
    sum = add_dot<2>(add_dot<3>(sum, b, x), a, x);
    sum = vshlq_n_s32(sum, kDotLowBits);
    return add_dot<0>(add_dot<1>(sum, b, x), a, x);
  } else {
    int8x16_t low = load_s8(tile + DotRows<R>::kSums16 + r * 32),
              high = load_s8(tile + DotRows<R>::kSums16 + r * 32 + 16);
    int8x16_t m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) m[i] = Source::minimums(group, i, n);
    sum = add_dot<3>(add_dot<2>(add_dot<1>(add_dot<0>(sum, m[0], high), m[1], high), m[2], high), m[3], high);
    sum = vshlq_n_s32(sum, kDotLowBits);
    return add_dot<3>(add_dot<2>(add_dot<1>(add_dot<0>(sum, m[0], low), m[1], low), m[2], low), m[3], low);
  }
}

// sums [R][8] += a group of R rows times that of a panel.
template <class Source, int R>
[[gnu::always_inline]] inline void multiply_group(const std::byte* tile, const std::byte* group, float* sums) {
  int32x4_t whole[R][kQuads];
  scaled_sums<Source, R>(tile + DotRows<R>::kValues, group, whole);
  float32x4_t factor[kQuads], least[kQuads], of_rows = load_f32(tile);
  Source::factors(group, factor);
  if constexpr (Source::kMins) Source::minimum_factors(group, least);
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    int r = i / kQuads, n = i % kQuads;
    float of_row = vgetq_lane_f32(of_rows, r);
    float32x4_t sum = vld1q_f32(sums + 4 * i);
    sum = vfmaq_f32(sum, vcvtq_f32_s32(whole[r][n]), vmulq_n_f32(factor[n], of_row));
    if constexpr (Source::kMins) {
      int32x4_t minimums = minimum_sums<Source, R>(tile, r, n, group);
      sum = vfmsq_f32(sum, vcvtq_f32_s32(minimums), vmulq_n_f32(least[n], of_row));
    }
    vst1q_f32(sums + 4 * i, sum);
  }
}

}  // namespace
}  // namespace millrace::cpu

// One group of 256 inputs of a panel, met by one to four rows: the arithmetic of dot256.h. Weights come from a Source,
// either packed (taken apart on the way) or wide.
#pragma once

#include "backend/cpu/arm/neon/dot256_rows.h"

namespace millrace::cpu {
namespace {

// Instructions in the order they are written: g++ 12 left to itself moves products apart and runs out of registers.
template <int lane>
[[gnu::always_inline]] inline void dot_in_order(int32x4_t& sum, int8x16_t weights, int8x16_t row) {
  asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(weights), "w"(row), "i"(lane));
}
[[gnu::always_inline]] inline void scale_in_order(int32x4_t& whole, int32x4_t sum, int32x4_t scale) {
  asm volatile("mla %0.4s, %1.4s, %2.4s" : "+w"(whole) : "w"(sum), "w"(scale));
}
[[gnu::always_inline]] inline void clear_in_order(int32x4_t& sum) { asm volatile("movi %0.4s, #0" : "=w"(sum)); }

// Subgroups times their scales. A subgroup is scaled while the next one's products start.
template <class Source, int R>
[[gnu::always_inline]] inline void scaled_sums(const std::byte* rows, const std::byte* group,
                                               int32x4_t (&whole)[R][kQuads]) {
  constexpr int kSixteens = 16, kOfSubgroup = Source::kHalves == 2 ? 1 : 2;
  int32x4_t sums[R][kQuads], scale[kQuads];
#pragma GCC unroll 16
  for (int i = 0; i < kSixteens; ++i) {
    int8x16_t w[4][kQuads];
    Source::values(group, i / 2, i % 2, w);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      int8x16_t x = load_s8(rows + (i * R + r) * 16);
      if (i % kOfSubgroup == 0) {
        i == 0 ? clear_in_order(whole[r][0]) : scale_in_order(whole[r][0], sums[r][0], scale[0]);
        i == 0 ? clear_in_order(whole[r][1]) : scale_in_order(whole[r][1], sums[r][1], scale[1]);
        clear_in_order(sums[r][0]);
        clear_in_order(sums[r][1]);
      }
      dot_in_order<0>(sums[r][0], w[0][0], x);
      dot_in_order<0>(sums[r][1], w[0][1], x);
      dot_in_order<1>(sums[r][0], w[1][0], x);
      dot_in_order<1>(sums[r][1], w[1][1], x);
      dot_in_order<2>(sums[r][0], w[2][0], x);
      dot_in_order<2>(sums[r][1], w[2][1], x);
      dot_in_order<3>(sums[r][0], w[3][0], x);
      dot_in_order<3>(sums[r][1], w[3][1], x);
    }
    if ((i + 1) % kOfSubgroup == 0) Source::scales(group, i / 2, kOfSubgroup == 1 ? i % 2 : 0, scale);
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i)
    scale_in_order(whole[i / kQuads][i % kQuads], sums[i / kQuads][i % kQuads], scale[i % kQuads]);
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

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

// The same by float32 arithmetic, which multiplies four numbers a cycle and pipe where MLA takes two cycles of one pipe.
// A sum that starts at kStart is never negative, and its bits, read as a float32, are itself times 2^-149: no conversion.
// Scales are kept times kScaleFactor; kStart times their sum is what a set of subgroups starts less. All of it is exact
// as long as no sum of a set exceeds 2^24, so a group's subgroups are taken in as many sets as that takes; the sets'
// sums are added last, rounded once, as an integer would be.
constexpr float kScaleFactor = 0x1p121f, kAfterScales = 0x1p28f;  // 121 + 28 = 149

[[gnu::always_inline]] inline void scale_in_order(float32x4_t& whole, int32x4_t sum, float32x4_t scale) {
  asm volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(whole) : "w"(sum), "w"(scale));
}
template <class T>
[[gnu::always_inline]] inline void load_in_order(T& to, const std::byte* from) {
  asm volatile("ldr %q0, %1" : "=w"(to) : "m"(*reinterpret_cast<const std::byte(*)[16]>(from)));
}

template <class Source, int R>
[[gnu::always_inline]] inline void exact_sums(const std::byte* rows, const std::byte* group,
                                              float32x4_t (&first)[R][kQuads]) {
  constexpr int kEights = 32, kOfSubgroup = Source::kHalves == 2 ? 2 : 4, kOfSet = kEights / Source::kSets;
  const std::byte* start = group + Source::kSumStart;
  float32x4_t whole[Source::kSets][R][kQuads], scale[kQuads];
  int32x4_t sums[R][kQuads];
#pragma GCC unroll 32
  for (int i = 0; i < kEights; ++i) {
    int set = i / kOfSet;
    int8x16_t w[2][kQuads];
    Source::eight_values(group, i, w);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      int8x16_t x = load_s8(rows + (i / 2 * R + r) * 16);
      if (i % kOfSubgroup == 0) {
        if (i > 0) {
          int before = (i - 1) / kOfSet;
          scale_in_order(whole[before][r][0], sums[r][0], scale[0]);
          scale_in_order(whole[before][r][1], sums[r][1], scale[1]);
        }
        if (i % kOfSet == 0) {
          load_in_order(whole[set][r][0], group + Source::kStarts + set * 32);
          load_in_order(whole[set][r][1], group + Source::kStarts + set * 32 + 16);
        }
        load_in_order(sums[r][0], start);
        load_in_order(sums[r][1], start);
      }
      if (i % 2 == 0) {
        dot_in_order<0>(sums[r][0], w[0][0], x);
        dot_in_order<0>(sums[r][1], w[0][1], x);
        dot_in_order<1>(sums[r][0], w[1][0], x);
        dot_in_order<1>(sums[r][1], w[1][1], x);
      } else {
        dot_in_order<2>(sums[r][0], w[0][0], x);
        dot_in_order<2>(sums[r][1], w[0][1], x);
        dot_in_order<3>(sums[r][0], w[1][0], x);
        dot_in_order<3>(sums[r][1], w[1][1], x);
      }
    }
    if ((i + 1) % kOfSubgroup == 0) Source::float_scales(group, i / 4, kOfSubgroup == 2 ? i % 4 / 2 : 0, scale);
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    int r = i / kQuads, n = i % kQuads;
    scale_in_order(whole[Source::kSets - 1][r][n], sums[r][n], scale[n]);
    float32x4_t sum = whole[0][r][n];
    if constexpr (Source::kSets == 2) sum = vaddq_f32(sum, whole[Source::kSets - 1][r][n]);
    first[r][n] = vmulq_n_f32(sum, kAfterScales);
  }
}

// The sum of minimum * sum of the row's integers, of one row and four outputs. It starts such that its bits are those of
// kBig plus itself in the end: no conversion either.
template <class Source, int R>
[[gnu::always_inline]] inline float32x4_t minimum_sums(const std::byte* tile, int r, int n, const std::byte* group) {
  constexpr float kBig = 12582912.0f;
  constexpr int32_t kBigBits = 0x4b400000;
  int32x4_t sum = vdupq_n_s32(kBigBits >> kDotLowBits);
  if constexpr (Source::kHalves == 1) {
    int8x16_t x = load_s8(tile + DotRows<R>::kSums32 + r * 16);
    int8x16_t a = Source::minimums(group, 0, n), b = Source::minimums(group, 1, n);
    sum = add_dot<2>(add_dot<3>(sum, b, x), a, x);
    sum = vshlq_n_s32(sum, kDotLowBits);
    sum = add_dot<0>(add_dot<1>(sum, b, x), a, x);
  } else {
    const std::byte* at = tile + DotRows<R>::kSums16 + r * 32;
    int8x16_t low = load_s8(at), high = load_s8(at + 16), m[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) m[i] = Source::minimums(group, i, n);
    sum = add_dot<3>(add_dot<2>(add_dot<1>(add_dot<0>(sum, m[0], high), m[1], high), m[2], high), m[3], high);
    sum = vshlq_n_s32(sum, kDotLowBits);
    sum = add_dot<3>(add_dot<2>(add_dot<1>(add_dot<0>(sum, m[0], low), m[1], low), m[2], low), m[3], low);
  }
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(kBig));
}

// sums [R][8] += a group of R rows times that of a panel.
template <class Source, int R>
[[gnu::always_inline]] inline void multiply_group(const std::byte* tile, const std::byte* group, float* sums) {
  float32x4_t first[R][kQuads];
  if constexpr (Source::kExact) {
    exact_sums<Source, R>(tile + DotRows<R>::kValues, group, first);
  } else {
    int32x4_t whole[R][kQuads];
    scaled_sums<Source, R>(tile + DotRows<R>::kValues, group, whole);
#pragma GCC unroll 8
    for (int i = 0; i < R * kQuads; ++i) first[i / kQuads][i % kQuads] = vcvtq_f32_s32(whole[i / kQuads][i % kQuads]);
  }
  float32x4_t factor[kQuads], least[kQuads], of_rows = load_f32(tile);
  Source::factors(group, factor);
  if constexpr (Source::kMins) Source::minimum_factors(group, least);
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    int r = i / kQuads, n = i % kQuads;
    float of_row = vgetq_lane_f32(of_rows, r);
    float32x4_t sum = vfmaq_f32(vld1q_f32(sums + 4 * i), first[r][n], vmulq_n_f32(factor[n], of_row));
    if constexpr (Source::kMins)
      sum = vfmsq_f32(sum, minimum_sums<Source, R>(tile, r, n, group), vmulq_n_f32(least[n], of_row));
    vst1q_f32(sums + 4 * i, sum);
  }
}

}  // namespace
}  // namespace millrace::cpu

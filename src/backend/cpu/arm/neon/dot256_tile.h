// One group of 256 inputs of a panel, met by one to four rows: the arithmetic of dot256.h. Weights come from a Source,
// either packed (taken apart on the way) or wide.
#pragma once

#include "backend/cpu/arm/neon/dot256_rows.h"
#include "backend/cpu/arm/neon/ordered.h"

namespace millrace::cpu {
namespace {

constexpr int kSideBySide = 2;  // up to so many rows

// Instructions in the order they are written (ordered.h).
template <int lane>
[[gnu::always_inline]] inline void dot_in_order(int32x4_t& sum, int8x16_t weights, int8x16_t row) {
  sum = ordered_dot<lane>(sum, weights, row);
}
[[gnu::always_inline]] inline void scale_in_order(int32x4_t& whole, int32x4_t sum, int32x4_t scale) {
  asm volatile("mla %0.4s, %1.4s, %2.4s" : "+w"(whole) : "w"(sum), "w"(scale));
}
[[gnu::always_inline]] inline void clear_in_order(int32x4_t& sum) { asm volatile("movi %0.4s, #0" : "=w"(sum)); }

// Four inputs of a row with those of eight outputs of several subgroups.
template <int lane, int S>
[[gnu::always_inline]] inline void add_four(const int8x16_t (&w)[S][4][kQuads], const int8x16_t (&x)[S],
                                            int32x4_t (&sums)[S][kQuads]) {
#pragma GCC unroll 2
  for (int s = 0; s < S; ++s) {
    dot_in_order<lane>(sums[s][0], w[s][lane][0], x[s]);
    dot_in_order<lane>(sums[s][1], w[s][lane][1], x[s]);
  }
}

// Subgroups of a packed panel times their scales. A subgroup is scaled while the next one's products start. A sum takes
// the next product late, so few rows meet two subgroups at a time.
template <class Source, int R>
[[gnu::always_inline]] inline void packed_sums(const std::byte* rows, const std::byte* group,
                                               int32x4_t (&whole)[R][kQuads]) {
  constexpr int kSixteens = 16, kOfSubgroup = Source::kHalves == 2 ? 1 : 2, kTogether = R <= kSideBySide ? 2 : 1;
  int32x4_t sums[R][kTogether][kQuads], scale[kTogether][kQuads];
#pragma GCC unroll kWrittenOut
  for (int i = 0; i < kSixteens; i += kTogether * kOfSubgroup) {
#pragma GCC unroll 2
    for (int j = 0; j < kOfSubgroup; ++j) {
      int8x16_t w[kTogether][4][kQuads];
#pragma GCC unroll 2
      for (int s = 0; s < kTogether; ++s) {
        int at = i + s * kOfSubgroup + j;
        Source::values(group, at / 2, at % 2, w[s]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        int8x16_t x[kTogether];
#pragma GCC unroll 2
        for (int s = 0; s < kTogether; ++s) {
          x[s] = load_s8(rows + ((i + s * kOfSubgroup + j) * R + r) * 16);
          if (j > 0) continue;
          if (i > 0) {
            scale_in_order(whole[r][0], sums[r][s][0], scale[s][0]);
            scale_in_order(whole[r][1], sums[r][s][1], scale[s][1]);
          } else if (s == 0) {
            clear_in_order(whole[r][0]);
            clear_in_order(whole[r][1]);
          }
          clear_in_order(sums[r][s][0]);
          clear_in_order(sums[r][s][1]);
        }
        add_four<0>(w, x, sums[r]);
        add_four<1>(w, x, sums[r]);
        add_four<2>(w, x, sums[r]);
        add_four<3>(w, x, sums[r]);
      }
    }
#pragma GCC unroll 2
    for (int s = 0; s < kTogether; ++s) {
      int at = i + s * kOfSubgroup;
      Source::scales(group, at / 2, kOfSubgroup == 1 ? at % 2 : 0, scale[s]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R * kTogether; ++i) {
    int r = i / kTogether, s = i % kTogether;
    scale_in_order(whole[r][0], sums[r][s][0], scale[s][0]);
    scale_in_order(whole[r][1], sums[r][s][1], scale[s][1]);
  }
}

// Scales may be applied by float32 arithmetic, which multiplies four numbers a cycle and pipe where MLA takes two
// cycles of one pipe. A sum that starts at kSumStart is never negative, and its bits, read as a float32, are itself
// times 2^-149: no conversion. Scales are kept times kScaleFactor; kSumStart times their sum is what a set of subgroups
// starts less. All of it is exact as long as no sum of a set exceeds 2^24, so a group's subgroups are taken in as many
// sets as that takes; the sets' sums are added last, rounded once, as an integer would be.
constexpr float kScaleFactor = 0x1p121f, kAfterScales = 0x1p28f;  // 121 + 28 = 149

[[gnu::always_inline]] inline void scale_in_order(float32x4_t& whole, int32x4_t sum, float32x4_t scale) {
  whole = ordered_add(whole, vreinterpretq_f32_s32(sum), scale);
}
template <class T>
[[gnu::always_inline]] inline void load_in_order(T& to, const std::byte* from) {
  to = ordered_load<T>(from);
}

// What a subgroup's sums, and a set's, start from.
template <class Source>
[[gnu::always_inline]] inline void start_sums(const std::byte* group, int32x4_t (&sums)[kQuads]) {
  if constexpr (Source::kExact) {
    load_in_order(sums[0], group + Source::kSumStart);
    load_in_order(sums[1], group + Source::kSumStart);
  } else {
    clear_in_order(sums[0]);
    clear_in_order(sums[1]);
  }
}
template <class Source>
[[gnu::always_inline]] inline void start_set(const std::byte* group, int set, float32x4_t (&whole)[kQuads]) {
  load_in_order(whole[0], group + Source::kStarts + set * 32);
  load_in_order(whole[1], group + Source::kStarts + set * 32 + 16);
}
template <class Source>
[[gnu::always_inline]] inline void start_set(const std::byte*, int, int32x4_t (&whole)[kQuads]) {
  clear_in_order(whole[0]);
  clear_in_order(whole[1]);
}

// Subgroups of a wide panel times their scales, eight inputs at a time: [set][R][2], of integers or, exact, of floats.
template <class Source, int R, class T>
[[gnu::always_inline]] inline void wide_sums(const std::byte* rows, const std::byte* group,
                                             T (&whole)[Source::kSets][R][kQuads]) {
  constexpr int kEights = 32, kOfSubgroup = Source::kHalves == 2 ? 2 : 4, kOfSet = kEights / Source::kSets;
  T scale[kQuads];
  int32x4_t sums[R][kQuads];
#pragma GCC unroll kWrittenOut
  for (int i = 0; i < kEights; ++i) {
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
        if (i % kOfSet == 0) start_set<Source>(group, i / kOfSet, whole[i / kOfSet][r]);
        start_sums<Source>(group, sums[r]);
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
    if ((i + 1) % kOfSubgroup == 0) Source::scales(group, i / 4, kOfSubgroup == 2 ? i % 4 / 2 : 0, scale);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    scale_in_order(whole[Source::kSets - 1][r][0], sums[r][0], scale[0]);
    scale_in_order(whole[Source::kSets - 1][r][1], sums[r][1], scale[1]);
  }
}

// A group's subgroups times their scales, as floats.
template <class Source, int R>
[[gnu::always_inline]] inline void float_sums(const std::byte* rows, const std::byte* group,
                                              float32x4_t (&out)[R][kQuads]) {
  if constexpr (Source::kExact) {
    float32x4_t whole[Source::kSets][R][kQuads];
    wide_sums<Source, R>(rows, group, whole);
#pragma GCC unroll 8
    for (int i = 0; i < R * kQuads; ++i) {
      int r = i / kQuads, n = i % kQuads;
      out[r][n] = whole[0][r][n];
      if constexpr (Source::kSets == 2) out[r][n] = vaddq_f32(out[r][n], whole[Source::kSets - 1][r][n]);
      out[r][n] = vmulq_n_f32(out[r][n], kAfterScales);
    }
  } else {
    int32x4_t whole[1][R][kQuads];
    if constexpr (Source::kWide) {
      wide_sums<Source, R>(rows, group, whole);
    } else if constexpr (R <= Source::kOwnRows) {
      Source::template row_sums<R>(rows, group, whole[0]);
    } else {
      packed_sums<Source, R>(rows, group, whole[0]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < R * kQuads; ++i) out[i / kQuads][i % kQuads] = vcvtq_f32_s32(whole[0][i / kQuads][i % kQuads]);
  }
}

// The sums of minimum * sum of the row's integers. They start such that their bits are those of kFloatStart plus the
// sum in the end: no conversion either.
alignas(16) inline constexpr int32_t kMinimumStart[4] = {kFloatStartBits >> kDotLowBits, kFloatStartBits >> kDotLowBits,
                                                         kFloatStartBits >> kDotLowBits,
                                                         kFloatStartBits >> kDotLowBits};

template <int R, int lane, int other>
[[gnu::always_inline]] inline void add_minimums(const std::byte* sums, int64_t apart, const int8x16_t (&m)[2][kQuads],
                                                int32x4_t (&out)[R][kQuads]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    int8x16_t x = load_s8(sums + r * apart);
    dot_in_order<lane>(out[r][0], m[0][0], x);
    dot_in_order<lane>(out[r][1], m[0][1], x);
    dot_in_order<other>(out[r][0], m[1][0], x);
    dot_in_order<other>(out[r][1], m[1][1], x);
  }
}

template <class Source, int R>
[[gnu::always_inline]] inline void minimum_sums(const std::byte* tile, const std::byte* group,
                                                float32x4_t (&out)[R][kQuads]) {
  int32x4_t sums[R][kQuads];
  int8x16_t m[Source::kHalves][2][kQuads];
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i)
    load_in_order(sums[i / kQuads][i % kQuads], reinterpret_cast<const std::byte*>(kMinimumStart));
#pragma GCC unroll 8
  for (int i = 0; i < Source::kHalves * 4; ++i) m[i / 4][i % 4 / 2][i % 2] = Source::minimums(group, i / 2, i % 2);
  using At = SuperRows<R>;
  if constexpr (Source::kHalves == 1) {
    add_minimums<R, 2, 3>(tile + At::kSums32, 16, m[0], sums);
  } else {
    add_minimums<R, 0, 1>(tile + At::kSums16 + 16, 32, m[0], sums);
    add_minimums<R, 2, 3>(tile + At::kSums16 + 16, 32, m[1], sums);
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    int32x4_t& sum = sums[i / kQuads][i % kQuads];
    sum = vshlq_n_s32(sum, kDotLowBits);
  }
  if constexpr (Source::kHalves == 1) {
    add_minimums<R, 0, 1>(tile + At::kSums32, 16, m[0], sums);
  } else {
    add_minimums<R, 0, 1>(tile + At::kSums16, 32, m[0], sums);
    add_minimums<R, 2, 3>(tile + At::kSums16, 32, m[1], sums);
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    out[i / kQuads][i % kQuads] =
        vsubq_f32(vreinterpretq_f32_s32(sums[i / kQuads][i % kQuads]), vdupq_n_f32(kFloatStart));
  }
}

// sums [R][8] += a group of R rows times that of a panel.
template <class Source, int R>
[[gnu::always_inline]] inline void multiply_group(const std::byte* tile, const std::byte* group, float* sums) {
  float32x4_t first[R][kQuads], total[R][kQuads];
  float_sums<Source, R>(tile + SuperRows<R>::kValues, group, first);
  const float* of_rows = reinterpret_cast<const float*>(tile);
  float32x4_t factor[kQuads];
  Source::factors(group, factor);
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {  // what was stored last is loaded again, not kept elsewhere
    load_in_order(total[i / kQuads][i % kQuads], reinterpret_cast<const std::byte*>(sums + 4 * i));
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) {
    int r = i / kQuads, n = i % kQuads;
    total[r][n] = vfmaq_f32(total[r][n], first[r][n], vmulq_n_f32(factor[n], of_rows[r]));
  }
  if constexpr (Source::kMins) {
    minimum_sums<Source, R>(tile, group, first);
    Source::minimum_factors(group, factor);
#pragma GCC unroll 8
    for (int i = 0; i < R * kQuads; ++i) {
      int r = i / kQuads, n = i % kQuads;
      total[r][n] = vfmsq_f32(total[r][n], first[r][n], vmulq_n_f32(factor[n], of_rows[r]));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R * kQuads; ++i) vst1q_f32(sums + 4 * i, total[i / kQuads][i % kQuads]);
}

}  // namespace
}  // namespace millrace::cpu

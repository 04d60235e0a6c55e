// The loops of dot32.h: one to four rows against a panel of eight outputs, by SDOT. What a Neoverse N1 takes: SDOT,
// FSUB and FMLA issue 2 a cycle and clearing is free, but SCVTF and FCVTL issue one in two cycles. So integer sums
// start from the bits of a float32 whose last place is worth 1: as float32 they are that number plus the sum, and
// subtracting it is exact. An FMUL or FMLA before an SDOT takes a place of it, for their results come later; so these
// stand together at the end of a group. Four rows by eight outputs have 64 SDOT and 24 float instructions a group of 32
// inputs (16 where groups share a factor), at best 44 cycles (40), and take 47.7 (44.8) from the first cache.
#pragma once

#include "backend/cpu/arm/neon/dot.h"
#include "backend/cpu/arm/neon/dot32_beside.h"
#include "backend/cpu/arm/neon/ordered.h"
#include "backend/cpu/arm/packed32.h"
#include "backend/cpu/arm/planes.h"

namespace millrace::cpu {
namespace {

alignas(16) constexpr int32_t kSumStarts[4] = {kFloatStartBits, kFloatStartBits, kFloatStartBits, kFloatStartBits};

constexpr int kQuadSteps = 8;  // of four inputs, in a group

// How a group of `count` prepared rows lies: integers [count][32], factors [4], with minimums sums [4], and where sums
// start [count][4].
template <int count, bool mins, bool starts>
struct DotRows {
  static constexpr int kRows = count;
  static constexpr bool kMins = mins, kStarts = starts;
  static constexpr int64_t kFactors = kGroup * count, kSums = kFactors + 16, kStart = kSums + (mins ? 16 : 0);
  static constexpr int64_t kBytes = kStart + (starts ? 16 * count : 0);
};

// Weights as a wide panel has them: integers [8 steps][2 quads][16], factors and minimums [2 quads][4] apart from them.
template <class Format>
struct WideWeights {
  using F = Format;
  static constexpr bool kLess = false, kEarly = false;
  static constexpr int64_t kFactorBytes = F::kMins ? 64 : 32;

  [[gnu::always_inline]] static void load(const std::byte* values, int step, int8x16_t (&out)[2]) {
    out[0] = ordered_load<int8x16_t>(values + 32 * step);
    out[1] = ordered_load<int8x16_t>(values + 32 * step + 16);
  }
  [[gnu::always_inline]] static void factors(const std::byte* factors, float32x4_t (&out)[2]) {
    out[0] = ordered_load<float32x4_t>(factors);
    out[1] = ordered_load<float32x4_t>(factors + 16);
  }
  [[gnu::always_inline]] static void minimums(const std::byte* factors, float32x4_t (&out)[2]) {
    out[0] = ordered_load<float32x4_t>(factors + 32);
    out[1] = ordered_load<float32x4_t>(factors + 48);
  }
};

// The same, with factors as packed groups have them.
template <class Format>
struct WideValues : WideWeights<Format> {
  using F = Format;
  static constexpr bool kEarly = true;
  static constexpr int64_t kFactorBytes = F::kBytes;

  [[gnu::always_inline]] static void factors(const std::byte* group, float32x4_t (&out)[2]) { F::factors(group, out); }
  [[gnu::always_inline]] static void minimums(const std::byte* group, float32x4_t (&out)[2]) {
    F::minimums(group, out);
  }
};

// Packed weights.
template <class Format>
struct PackedWeights {
  using F = Format;
  // With b = l + 16 h a vector of bytes, l of other outputs than h, x = b & 0xf0 and a the row: a x = 16 a h and a b -
  // a x = a l, so low nibbles need not be taken out. They stand for themselves less 8: so start their sums, from -8
  // times the sum of the row's integers.
  static constexpr bool kLess = F::kStarts, kEarly = true;
  static constexpr int64_t kFactorBytes = F::kBytes;

  [[gnu::always_inline]] static void load(const std::byte* group, int step, int8x16_t (&out)[2]) {
    if constexpr (F::kWideValues >= 0) {
      out[0] = ordered_load<int8x16_t>(group + F::kWideValues + 32 * step);
      out[1] = ordered_load<int8x16_t>(group + F::kWideValues + 32 * step + 16);
    } else if constexpr (kLess) {
      out[0] = ordered_load<int8x16_t>(group + 16 + 16 * step);
      out[1] = ordered_and(out[0], vdupq_n_s8(-16));
    } else {
#pragma GCC unroll 2
      for (int quad = 0; quad < 2; ++quad) {
        int8x16_t two[2];
        F::values(group, step % 2 * 2 + quad, step / 4, two);
        out[quad] = two[step / 2 % 2];
      }
    }
  }
  [[gnu::always_inline]] static void factors(const std::byte* group, float32x4_t (&out)[2]) { F::factors(group, out); }
  [[gnu::always_inline]] static void minimums(const std::byte* group, float32x4_t (&out)[2]) {
    F::minimums(group, out);
  }
};

// The integer sums of a group, as float32.
template <class W, class R, int rows, class B>
[[gnu::always_inline]] inline void dot_group(const std::byte* row, const std::byte* values, float32x4_t start,
                                             float32x4_t (&out)[rows][2], B& beside) {
  constexpr int kTail = W::kLess ? 3 : 2;  // last steps, row by row: so rows are done one after the other
  const std::byte* begin = reinterpret_cast<const std::byte*>(kSumStarts);
  int8x16_t inputs[rows], w[kQuadSteps][2];
  int32x4_t sums[rows][2];
  each<rows>([&](auto r) { inputs[r] = ordered_load<int8x16_t>(row + kGroup * r); });
  W::load(values, 0, w[0]);
  each<kQuadSteps - kTail>([&](auto s) {
    W::load(values, s + 1, w[s + 1]);
    each<rows>([&](auto r) {
      if constexpr (s + B::kSteps >= kQuadSteps - kTail && r % 2 == 0)
        beside.step(std::integral_constant<int, r / 2>());
      if constexpr (s == 4) inputs[r] = ordered_load<int8x16_t>(row + kGroup * r + 16);
      if constexpr (s == 0) {
        sums[r][0] = ordered_load<int32x4_t>(W::kLess ? row + R::kStart + 16 * r : begin);
        sums[r][0] = ordered_dot<0>(sums[r][0], w[0][0], inputs[r]);
        sums[r][1] = ordered_load<int32x4_t>(begin);
        sums[r][1] = ordered_dot<0>(sums[r][1], w[0][1], inputs[r]);
      } else {
        sums[r][0] = ordered_dot<s % 4>(sums[r][0], w[s][0], inputs[r]);
        sums[r][1] = ordered_dot<s % 4>(sums[r][1], w[s][1], inputs[r]);
      }
    });
  });
  each<kTail - 1>([&](auto i) { W::load(values, kQuadSteps - kTail + 1 + i, w[kQuadSteps - kTail + 1 + i]); });
  each<rows>([&](auto r) {
    each<2 * kTail>([&](auto i) {
      constexpr int s = kQuadSteps - kTail + i / 2, q = i % 2;
      sums[r][q] = ordered_dot<s % 4>(sums[r][q], w[s][q], inputs[r]);
    });
    if constexpr (W::kLess) sums[r][0] = ordered_less(sums[r][0], sums[r][1]);
  });
  each<rows>([&](auto r) {
    out[r][1] = ordered_less(vreinterpretq_f32_s32(sums[r][1]), start);
    out[r][0] = ordered_less(vreinterpretq_f32_s32(sums[r][0]), start);
  });
}

struct DotPanel {
  const std::byte* values;
  int64_t value_bytes;  // from group to group
  const std::byte* factors;
};

// Asks the memory for a group: into the first cache what one row meets soon, into the second what several meet later.
template <int64_t bytes, int rows>
[[gnu::always_inline]] inline void look_ahead(const std::byte* at) {
#pragma GCC unroll 8
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, rows == 1 ? 3 : 2);
}

// totals [rows][2 quads][4] += rows x weights, over `groups`, which start with a run where runs share a factor. Where
// it `asks`, meanwhile the memory brings what lies `ahead` bytes on; `beside`, other weights are widened with every
// group. A function by itself with all it calls, or sums end up in memory.
template <class W, class R, int rows, bool asks = false, class B = NothingBeside>
[[gnu::noinline, gnu::flatten]] void multiply_dot32(const std::byte* row, const DotPanel& panel, int64_t groups,
                                                    float* totals, int64_t ahead = 0, B beside = {}) {
  using F = typename W::F;
  const std::byte *values = panel.values, *factors = panel.factors;
  const float32x4_t start = vdupq_n_f32(kFloatStart);
  float32x4_t sum[rows][2];
  auto next = [&] {
    if constexpr (asks) look_ahead<F::kBytes, R::kRows>(beside.next(factors) + ahead);
    row += R::kBytes, values += panel.value_bytes, factors += W::kFactorBytes;
    beside.end_group();
  };
  if constexpr (!F::kShared) {
    each<2 * rows>([&](auto i) { sum[i / 2][i % 2] = vld1q_f32(totals + 4 * i); });
    for (; groups > 0; --groups, next()) {
      float32x4_t of_outputs[2], dots[rows][2], both[rows][2];
      if constexpr (W::kEarly) W::factors(factors, of_outputs);
      dot_group<W, R, rows>(row, values, start, dots, beside);
      if constexpr (!W::kEarly) W::factors(factors, of_outputs);
      const float32x4_t of_rows = ordered_load<float32x4_t>(row + R::kFactors);
      each<2 * rows>([&](auto i) { both[i / 2][i % 2] = ordered_multiply<i / 2>(of_outputs[i % 2], of_rows); });
      each<2 * rows>(
          [&](auto i) { sum[i / 2][i % 2] = ordered_add(sum[i / 2][i % 2], dots[i / 2][i % 2], both[i / 2][i % 2]); });
      if constexpr (F::kMins) {
        float32x4_t minimums[2];
        W::minimums(factors, minimums);
        const float32x4_t of_sums = ordered_load<float32x4_t>(row + R::kSums);
        each<2 * rows>(
            [&](auto i) { sum[i / 2][i % 2] = ordered_add<i / 2>(sum[i / 2][i % 2], minimums[i % 2], of_sums); });
      }
    }
    each<2 * rows>([&](auto i) { vst1q_f32(totals + 4 * i, sum[i / 2][i % 2]); });
  } else {
    while (groups > 0) {
      const int64_t run = std::min(groups, kSharedGroups);
      groups -= run;
      each<2 * rows>([&](auto i) { sum[i / 2][i % 2] = vdupq_n_f32(0); });
      for (int64_t left = run; left > 0; --left, next()) {
        float32x4_t of_outputs[2], dots[rows][2];
        if constexpr (W::kEarly) W::factors(factors, of_outputs);
        dot_group<W, R, rows>(row, values, start, dots, beside);
        if constexpr (!W::kEarly) W::factors(factors, of_outputs);
        each<2 * rows>(
            [&](auto i) { sum[i / 2][i % 2] = ordered_add(sum[i / 2][i % 2], dots[i / 2][i % 2], of_outputs[i % 2]); });
      }
      const float32x4_t of_rows = load_f32(row - R::kBytes + R::kFactors);
      each<2 * rows>([&](auto i) {
        float* total = totals + 4 * i;
        vst1q_f32(total, vfmaq_laneq_f32(vld1q_f32(total), sum[i / 2][i % 2], of_rows, i / 2));
      });
    }
  }
}

}  // namespace
}  // namespace millrace::cpu

// Products of formats with a factor per 256 weights and small integer scales within (Q4_K, Q6_K, ...). Rows are
// quantised to int8 in the same groups of 256. Per group and output, in integers: the sum over its subgroups of scale *
// (sum of products), and where the format has minimums, of minimum * (sum of the row's integers). Then sum +=
// float(first) * (the weights' factor * the row's), and sum -= float(second) * (the minimums' factor * the row's).
//
// Prepared rows, per tile of four and group: factors [2 pairs][4]; sums of the row's integers over 32 and over 16, as
// SMMLA takes them, in a low part of six bits and the rest; integers [8 spans of 32][4 steps][2 pairs][16]. A wide
// panel, per group: per span scales (int32) [1 or 2 halves][4 pairs][4] and integers [4 steps][4 pairs][16]; then
// factors [4 pairs][4], and with minimums their factors and the minimums [1 or 2][4 pairs][16].
#pragma once

#include "backend/cpu/arm/group256_eight.h"
#include "backend/cpu/arm/group256_few.h"
#include "backend/cpu/arm/group256_row.h"
#include "backend/cpu/arm/group256_tile.h"
#include "backend/cpu/arm/panels.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSuper = 256;
template <class F>
using Packed256 = Panels<F, kSuper>;
constexpr int kSpans = 8;      // of 32 inputs
constexpr int kSpanSteps = 4;  // of eight inputs

// Where things are in a tile's group of prepared rows.
constexpr int64_t kSums32 = 32, kSums16 = kSums32 + 64, kRowValues = kSums16 + 128;
constexpr int64_t kSuperRowBytes = kRowValues + kSpans * kSpanSteps * 32;
constexpr int kLowBits = 6;

// A row that comes alone is prepared in all forms: a tile, then split, then in thirds.
constexpr int64_t kAllSplitBytes = kSplitBytes + kThirdsBytes;

inline int64_t super_prepared_bytes(int64_t rows, int64_t cols) {
  return cols / kSuper * (up_to(rows, kTileRows) / kTileRows * kSuperRowBytes + (rows == 1 ? kAllSplitBytes : 0));
}

// [low parts][high parts] of eight sums each of two rows, at out and out + distance.
inline void store_sums(int16x8_t a, int16x8_t b, std::byte* out, int64_t distance) {
  const int16x8_t low = vdupq_n_s16((1 << kLowBits) - 1);
  store_s8(out, vuzp1q_s8(vreinterpretq_s8_s16(vandq_s16(a, low)), vreinterpretq_s8_s16(vandq_s16(b, low))));
  store_s8(out + distance,
           vuzp1q_s8(vreinterpretq_s8_s16(vshrq_n_s16(a, kLowBits)), vreinterpretq_s8_s16(vshrq_n_s16(b, kLowBits))));
}

// Sums of eight times sixteen.
inline int16x8_t sums_of_sixteens(const int8_t* q) {
  int16x8_t sums[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sums[i] = vpaddlq_s8(vld1q_s8(q + 16 * i));
#pragma GCC unroll 3
  for (int count = 4; count > 0; count /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) sums[i] = vpaddq_s16(sums[2 * i], sums[2 * i + 1]);
  }
  return sums[0];
}

inline void super_prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  int64_t groups = in.cols / kSuper;
  out += begin / kTileRows * groups * kSuperRowBytes;
  std::byte* split = out + groups * kSuperRowBytes;
  for (int64_t g = 0; g < groups; ++g, out += kSuperRowBytes) {
    alignas(16) int8_t q[kTileRows][kSuper] = {};
    int16x8_t sums16[kTileRows][2] = {}, sums32[kTileRows] = {};
    float factor[kTileRows] = {};
    for (int64_t r = 0; r < end - begin; ++r) {
      factor[r] = quantise(in.row(begin + r) + g * kSuper, kSuper, q[r]);
      for (int half = 0; half < 2; ++half) sums16[r][half] = sums_of_sixteens(q[r] + 128 * half);
      sums32[r] = vpaddq_s16(sums16[r][0], sums16[r][1]);
    }
    for (int pair = 0; pair < 2; ++pair) {
      int a = 2 * pair, b = a + 1;
      store_f32(out + pair * 16, per_row(factor[a], factor[b]));
      store_sums(sums32[a], sums32[b], out + kSums32 + pair * 16, 32);
      for (int half = 0; half < 2; ++half)
        store_sums(sums16[a][half], sums16[b][half], out + kSums16 + half * 64 + pair * 16, 32);
      for (int64_t k = 0; k < kSpans * kSpanSteps; ++k) {
        store_s8(out + kRowValues + (k * 2 + pair) * 16, vcombine_s8(vld1_s8(q[a] + 8 * k), vld1_s8(q[b] + 8 * k)));
      }
    }
    if (in.rows == 1) {
      const uint8_t* low = as_bytes(out + kSums32);
      store_split(factor[0], q[0], low, low + 32, split + g * kSplitBytes);
      store_thirds(factor[0], q[0], split + groups * kSplitBytes + g * kThirdsBytes);
    }
  }
}

// A format F has: kBytes of a packed panel's group, kFileBytes of a group in the file, kHalves (1: a scale per 32
// inputs, 2: per 16), kMins; factors() and minimum_factors() of eight outputs; scales(): int32 of eight outputs for a
// span and half; minimums(): of a pair of outputs for subgroups 8h..8h+7; values(): steps 2j and 2j+1 of a span and
// pair, times a power of two that kAfter undoes; kSplits: a row alone is faster split, and then kSplitRow, where split
// rows of its kind begin, kSplitRowBytes of a group, and multiply_row(), a group with such a row; kDirectRows, up to
// how many rows are faster straight from packed weights, and if any multiply_tile(), a group with a tile of rows;
// kEights: two tiles at a time are faster still, and then multiply_eight();
// pack() eight rows' groups (null: zeros) and unpack() one of them.
template <class F>
struct Group256Linear {
  static constexpr int64_t kSpanBytes = F::kHalves * 64 + kSpanSteps * 64;
  static constexpr int64_t kWideFactors = kSpans * kSpanBytes;
  static constexpr int64_t kWideMins = kWideFactors + 64;
  static constexpr int64_t kWideBytes = kWideMins + (F::kMins ? 64 + F::kHalves * 64 : 0);
  // Sums of subgroups may go on without starting from zero, if scales are kept as their difference to the next: with s
  // the scales and t the sums, s0 t0 + s1 t1 + s2 t2 = (s0 - s1) t0 + (s1 - s2) (t0 + t1) + s2 (t0 + t1 + t2), exact in
  // integers. Worth it where subgroups are short.
  static constexpr bool kRunning = F::kHalves == 2;
  static constexpr int64_t kRowSums = F::kHalves == 2 ? kSums16 : kSums32;

  // Scales and integers of a group's spans.
  static void widen_spans(const std::byte* packed, std::byte* out) {
    int32x4_t next[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (int span = kSpans - 1; span >= 0; --span) {
      std::byte* to = out + span * kSpanBytes;
      for (int half = F::kHalves - 1; half >= 0; --half) {
        int32x4_t scale[2];
        F::scales(packed, span, half, scale);
        for (int i = 0; i < 2; ++i) {
          float32x4_t less = vreinterpretq_f32_s32(vsubq_s32(scale[i], next[i]));
          store_f32(to + (half * kPairs + 2 * i) * 16, low_twice(less));
          store_f32(to + (half * kPairs + 2 * i + 1) * 16, high_twice(less));
          if (kRunning) next[i] = scale[i];
        }
      }
      for (int p = 0; p < kPairs; ++p) {
        for (int j = 0; j < 2; ++j) {
          int8x16_t w[2];
          F::values(packed, span, p, j, w);
          store_s8(to + F::kHalves * 64 + (2 * j * kPairs + p) * 16, w[0]);
          store_s8(to + F::kHalves * 64 + ((2 * j + 1) * kPairs + p) * 16, w[1]);
        }
      }
    }
  }

  // Widens `groups` of a panel, and asks the memory for those that lie `ahead` bytes on. A function of its own: inside
  // another, g++ 12 runs out of registers.
  [[gnu::noinline]] static void widen(const std::byte* packed, int64_t groups, int64_t ahead, std::byte* out) {
    for (int64_t g = 0; g < groups; ++g, packed += F::kBytes, out += kWideBytes) {
      for (int64_t line = 0; line < F::kBytes; line += 64) __builtin_prefetch(packed + ahead + line, 0, 2);
      if constexpr (F::kWidens) {
        F::widen_spans(packed, out);
      } else {
        widen_spans(packed, out);
      }
      float32x4_t factor[2], least[2];
      F::factors(packed, factor);
      if constexpr (F::kMins) F::minimum_factors(packed, least);
      for (int p = 0; p < kPairs; ++p) {
        store_f32(out + kWideFactors + p * 16, twice(factor[p / 2], p % 2));
        if constexpr (F::kMins) {
          store_f32(out + kWideMins + p * 16, twice(least[p / 2], p % 2));
          for (int half = 0; half < F::kHalves; ++half)
            store_s8(out + kWideMins + 64 + (half * kPairs + p) * 16, F::minimums(packed, p, half));
        }
      }
    }
  }

  // The sum of minimum * sum of the row's integers, of a pair of rows and a pair of outputs.
  template <class Minimum>
  static int32x4_t minimum_sums(const std::byte* rows, int row_pair, Minimum minimum) {
    PairSum low, high;
#pragma GCC unroll 2
    for (int half = 0; half < F::kHalves; ++half) {
      int8x16_t m = minimum(half);
      low.add(load_s8(rows + kRowSums + half * 64 + row_pair * 16), m);
      high.add(load_s8(rows + kRowSums + half * 64 + row_pair * 16 + 32), m);
    }
    return vaddq_s32(low.sums(), vshlq_n_s32(high.sums(), kLowBits));
  }

  // Subgroups times their scales, of a tile's rows and a group of a wide panel: [2 row pairs][4 output pairs].
  static void scaled_sums(const std::byte* values, const std::byte* wide, int32x4_t (&whole)[2 * kPairs]) {
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kPairs; ++i) whole[i] = vdupq_n_s32(0);
    PairSum t[2][kPairs];
    for (int span = 0; span < kSpans; ++span, values += kSpanSteps * 32, wide += kSpanBytes) {
#pragma GCC unroll 2
      for (int half = 0; half < F::kHalves; ++half) {
#pragma GCC unroll 8
        for (int i = 0; !kRunning && i < 2 * kPairs; ++i) t[i / kPairs][i % kPairs] = PairSum();
#pragma GCC unroll 4
        for (int k = half * 2; k < (F::kHalves == 2 ? half * 2 + 2 : kSpanSteps); ++k) {
          int8x16_t a = load_s8(values + k * 32), b = load_s8(values + k * 32 + 16);
#pragma GCC unroll 4
          for (int p = 0; p < kPairs; ++p) {
            int8x16_t w = load_s8(wide + F::kHalves * 64 + (k * kPairs + p) * 16);
            t[0][p].add(a, w);
            t[1][p].add(b, w);
          }
        }
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          int32x4_t scale = vld1q_s32(reinterpret_cast<const int32_t*>(wide + (half * kPairs + p) * 16));
          whole[p] = vmlaq_s32(whole[p], t[0][p].sums(), scale);
          whole[kPairs + p] = vmlaq_s32(whole[kPairs + p], t[1][p].sums(), scale);
        }
      }
    }
  }

  // sums of a tile += rows x wide panel, over `groups`.
  static void multiply(const std::byte* rows, const std::byte* panel, int64_t groups, float* sums) {
    for (int64_t g = 0; g < groups; ++g, rows += kSuperRowBytes, panel += kWideBytes) {
#ifdef __ARM_FEATURE_MATMUL_INT8
      if constexpr (F::kHalves == 1 || !F::kMins) {
        static_assert(kSums32 == 32);
        multiply_group256_tile<F::kHalves, F::kMins>(rows, kRowValues, panel, sums);
        continue;
      }
#endif
      int32x4_t whole[2 * kPairs];
      scaled_sums(rows + kRowValues, panel, whole);
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        float32x4_t factor = load_f32(panel + kWideFactors + p * 16);
#pragma GCC unroll 2
        for (int m = 0; m < 2; ++m) {
          float32x4_t of_rows = load_f32(rows + m * 16), total = vld1q_f32(sums + (m * kPairs + p) * 4);
          total = vfmaq_f32(total, vcvtq_f32_s32(whole[m * kPairs + p]), vmulq_f32(factor, of_rows));
          if constexpr (F::kMins) {
            int32x4_t least = minimum_sums(
                rows, m, [&](int half) { return load_s8(panel + kWideMins + 64 + (half * kPairs + p) * 16); });
            total = vfmsq_f32(total, vcvtq_f32_s32(least), vmulq_f32(load_f32(panel + kWideMins + p * 16), of_rows));
          }
          vst1q_f32(sums + (m * kPairs + p) * 4, total);
        }
      }
    }
  }

  // One group of one panel met by one row: total of eight outputs.
  static void one_group(const std::byte* rows, const std::byte* group, float32x4_t (&total)[2]) {
    int32x4_t whole[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
#pragma GCC unroll 8
    for (int span = 0; span < kSpans; ++span) {
      const std::byte* values = rows + kRowValues + span * kSpanSteps * 32;
      PairSum t[F::kHalves][kPairs];
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          int8x16_t w[2];
          F::values(group, span, p, j, w);
          t[F::kHalves == 2 ? j : 0][p].add(load_s8(values + 2 * j * 32), w[0]);
          t[F::kHalves == 2 ? j : 0][p].add(load_s8(values + (2 * j + 1) * 32), w[1]);
        }
      }
#pragma GCC unroll 2
      for (int half = 0; half < F::kHalves; ++half) {
        int32x4_t scale[2];
        F::scales(group, span, half, scale);
        whole[0] = vmlaq_s32(whole[0], first_row(t[half][0].sums(), t[half][1].sums()), scale[0]);
        whole[1] = vmlaq_s32(whole[1], first_row(t[half][2].sums(), t[half][3].sums()), scale[1]);
      }
    }
    float32x4_t factor[2], least[2];
    F::factors(group, factor);
    if constexpr (F::kMins) F::minimum_factors(group, least);
    float of_row = *reinterpret_cast<const float*>(rows);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      total[i] = vfmaq_f32(total[i], vcvtq_f32_s32(whole[i]), vmulq_n_f32(factor[i], of_row));
      if constexpr (F::kMins) {
        int32x4_t a = minimum_sums(rows, 0, [&](int half) { return F::minimums(group, 2 * i, half); });
        int32x4_t b = minimum_sums(rows, 0, [&](int half) { return F::minimums(group, 2 * i + 1, half); });
        total[i] = vfmsq_f32(total[i], vcvtq_f32_s32(first_row(a, b)), vmulq_n_f32(least[i], of_row));
      }
    }
  }

  template <int Panels>
  static void one_row(const LinearPart& part, int64_t row, int64_t output) {
    int64_t groups = part.weight->cols / kSuper;
    const std::byte* rows = part.prepared + row / kTileRows * groups * kSuperRowBytes;
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    float32x4_t total[Panels][2];
#pragma GCC unroll 8
    for (int i = 0; i < Panels * 2; ++i) total[i / 2][i % 2] = vdupq_n_f32(0);
    for (int64_t g = 0; g < groups; ++g, rows += kSuperRowBytes, packed += F::kBytes) {
#pragma GCC unroll 4
      for (int n = 0; n < Panels; ++n) one_group(rows, packed + n * groups * F::kBytes, total[n]);
    }
#pragma GCC unroll 4
    for (int n = 0; n < Panels; ++n) write_row(part, row, output + n * kPanel, total[n][0], total[n][1], F::kAfter);
  }

#ifdef __ARM_FEATURE_MATMUL_INT8
  // A row prepared split. Panels follow one another in memory, and so do their groups: one stream, asked for early.
  static void split_row(const LinearPart& part, int64_t output) {
    int64_t groups = part.weight->cols / kSuper, begin = output / kPanel * groups * F::kBytes;
    int64_t ahead = bytes_ahead(*part.weight, begin + groups * F::kBytes);
    const std::byte* row = part.prepared + groups * (kSuperRowBytes + F::kSplitRow);
    const std::byte* packed = part.weight->data + begin;
    float totals[kPanel] = {};
    for (int64_t g = 0; g < groups; ++g, row += F::kSplitRowBytes, packed += F::kBytes)
      F::multiply_row(row, packed, totals, packed + ahead);
    write_row(part, part.first_row, output, vld1q_f32(totals), vld1q_f32(totals + 4), F::kAfter);
  }

  // Up to eight rows, more than four.
  static void eight_rows(const LinearPart& part, int64_t output, int64_t row, int64_t ahead) {
    const int64_t groups = part.weight->cols / kSuper, apart = groups * kSuperRowBytes;
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    const std::byte* tile = part.prepared + (part.first_row + row) / kTileRows * apart;
    float sums[2 * kTileFloats] = {};
    for (int64_t g = 0; g < groups; ++g, tile += kSuperRowBytes, packed += F::kBytes) {
      F::multiply_eight(tile, tile + apart, kRowValues, packed, 0, sums, ahead > 0 ? packed + ahead : nullptr);
      F::multiply_eight(tile, tile + apart, kRowValues, packed, 1, sums, nullptr);
    }
    for (int64_t i = 0; i < 2 && row < part.rows; ++i, row += kTileRows) {
      write_stored(part, sums + i * kTileFloats, part.first_row + row, std::min(kTileRows, part.rows - row), output,
                   F::kAfter);
    }
  }

  // A panel straight from packed weights, tile after tile. The first brings it from memory.
  static void direct_rows(const LinearPart& part, int64_t output) {
    int64_t groups = part.weight->cols / kSuper, begin = output / kPanel * groups * F::kBytes;
    int64_t ahead = bytes_ahead(*part.weight, begin + groups * F::kBytes);
    int64_t row = 0;
    if constexpr (F::kEights) {
      for (; row + kTileRows < part.rows; row += 2 * kTileRows) eight_rows(part, output, row, row == 0 ? ahead : 0);
    }
    for (; row < part.rows; row += kTileRows) {
      int64_t count = std::min(kTileRows, part.rows - row);
      const std::byte* tile = part.prepared + (part.first_row + row) / kTileRows * groups * kSuperRowBytes;
      const std::byte* packed = part.weight->data + begin;
      float sums[kTileFloats] = {};
      for (int64_t g = 0; g < groups; ++g, tile += kSuperRowBytes, packed += F::kBytes) {
        const std::byte* next = packed + (row == 0 ? ahead : 0);
        count <= 2 ? F::template multiply_tile<1>(tile, kRowValues, packed, sums, next)
                   : F::template multiply_tile<2>(tile, kRowValues, packed, sums, next);
      }
      write_stored(part, sums, part.first_row + row, count, output, F::kAfter);
    }
  }
#endif

  static void many_rows(const LinearPart& part, int64_t output) {
    constexpr int64_t kSegment = 12;  // groups: some 30 KiB of a wide panel, which stay in the first cache
    int64_t groups = part.weight->cols / kSuper, tiles = up_to(part.rows, kTileRows) / kTileRows;
    std::byte* wide = part.scratch;
    float* sums = reinterpret_cast<float*>(part.scratch + kSegment * kWideBytes);  // [tiles, kTileFloats]
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    const std::byte* rows = part.prepared + part.first_row / kTileRows * groups * kSuperRowBytes;
    std::fill_n(sums, tiles * kTileFloats, 0.0f);
    const int64_t segment = equal_parts(groups, kSegment);
    for (int64_t g = 0; g < groups; g += segment) {
      int64_t count = std::min(segment, groups - g);
      widen(packed + g * F::kBytes, count, output + kPanel < part.weight->rows ? groups * F::kBytes : 0, wide);
      for (int64_t t = 0; t < tiles; ++t)
        multiply(rows + (t * groups + g) * kSuperRowBytes, wide, count, sums + t * kTileFloats);
    }
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t row = t * kTileRows;
      write_stored(part, sums + t * kTileFloats, part.first_row + row, std::min(kTileRows, part.rows - row), output,
                   F::kAfter);
    }
  }

  static void product(const LinearPart& part) {
    constexpr int kStreams = 2;
    int64_t output = part.begin;
#ifdef __ARM_FEATURE_MATMUL_INT8
    if constexpr (F::kSplits) {
      if (part.prepared_rows == 1) {
        for (; output < part.end; output += kPanel) split_row(part, output);
      }
    }
    if constexpr (F::kDirectRows > 0) {
      static_assert(kSums32 == 32);
      if (part.rows <= F::kDirectRows) {
        for (; output < part.end; output += kPanel) direct_rows(part, output);
      }
    }
#endif
    if (part.rows == 1) {
      for (; output + (kStreams - 1) * kPanel < part.end; output += kStreams * kPanel)
        one_row<kStreams>(part, part.first_row, output);
      for (; output < part.end; output += kPanel) one_row<1>(part, part.first_row, output);
    }
    for (; output < part.end; output += kPanel) many_rows(part, output);
  }

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kPanel;
    kernel.rows_tile = kTileRows;
    kernel.part_values = 400 << 10;
    kernel.packed_bytes = Packed256<F>::packed_bytes;
    kernel.pack = Packed256<F>::pack;
    kernel.unpack_row = Packed256<F>::unpack_row;
    kernel.prepared_bytes = super_prepared_bytes;
    kernel.prepare = super_prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

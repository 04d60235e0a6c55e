// Products of formats with a factor per 256 weights and small integer scales within (Q4_K, Q6_K, ...) where SDOT by
// element multiplies. The arithmetic is that of group256.h: per group and output, in integers, the sum over its
// subgroups of scale * (sum of products), and where the format has minimums, of minimum * (sum of the row's integers);
// then sum += float(first) * (the weights' factor * the row's), and sum -= float(second) * (the minimums' factor * the
// row's).
//
// A wide panel, per group: per span of 32 inputs scales (int32) [1 or 2 halves][8 outputs] and integers [8 times four
// inputs][2 quads of outputs][16]; then factors [8], and with minimums their factors [8] and the minimums [2 or 4 times
// four subgroups][2 quads][16].
#pragma once

#include <type_traits>

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/neon/dot256_q5.h"
#include "backend/cpu/arm/neon/dot256_q6.h"
#include "backend/cpu/arm/neon/dot256_tile.h"

namespace millrace::cpu {
namespace {

// A format's packed group as a source of weights.
template <class F>
struct PackedGroup {
  static constexpr int kHalves = F::kHalves;
  static constexpr bool kMins = F::kMins, kExact = false, kWide = false;
  static constexpr bool kOwnOrder = std::is_same_v<F, Q6K>;                        // see dot256_q6.h
  static constexpr int kOwnRows = std::is_same_v<F, Q5K> ? 3 : kOwnOrder ? 1 : 0;  // up to so many by themselves

  template <int R>
  [[gnu::always_inline]] static void row_sums(const std::byte* rows, const std::byte* group,
                                              int32x4_t (&whole)[R][kQuads]) {
    if constexpr (std::is_same_v<F, Q5K>) {
      q5_row_sums<R>(rows, group, whole);
    } else {
      q6_row_sums(rows, group, whole[0]);
    }
  }
  [[gnu::always_inline]] static void values(const std::byte* group, int span, int j, int8x16_t (&w)[4][kQuads]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      int8x16_t two[2];
      F::values(group, span, p, j, two);
      w[p / 2][p % 2] = two[0];
      w[2 + p / 2][p % 2] = two[1];
    }
  }
  static void scales(const std::byte* group, int span, int half, int32x4_t (&out)[kQuads]) {
    F::scales(group, span, half, out);
  }
  static int8x16_t minimums(const std::byte* group, int four, int quad) {
    return load_s8(group + F::kMinimums + (four * kQuads + quad) * 16);
  }
  static void factors(const std::byte* group, float32x4_t (&out)[kQuads]) { F::factors(group, out); }
  static void minimum_factors(const std::byte* group, float32x4_t (&out)[kQuads]) { F::minimum_factors(group, out); }
};

// The same of a wide panel.
template <class F>
struct WideGroup {
  static constexpr int kHalves = F::kHalves;
  static constexpr int kSets = std::max(1, F::kExactSets);
  static constexpr bool kMins = F::kMins, kExact = F::kExactSets > 0, kWide = true;
  static constexpr int64_t kSpanBytes = kHalves * 32 + 256, kFactors = kSpans * kSpanBytes;
  static constexpr int64_t kSumStart = kFactors + 32, kStarts = kSumStart + (kExact ? 16 : 0);
  static constexpr int64_t kMinFactors = kStarts + F::kExactSets * 32, kMinimums = kMinFactors + 32;
  static constexpr int64_t kBytes = kMins ? kMinimums + kHalves * 64 : kMinFactors;

  [[gnu::always_inline]] static void eight_values(const std::byte* group, int i, int8x16_t (&w)[2][kQuads]) {
    group += i / 4 * kSpanBytes + kHalves * 32 + i % 4 * 64;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) w[k / kQuads][k % kQuads] = load_s8(group + k * 16);
  }
  static void scales(const std::byte* group, int span, int half, float32x4_t (&out)[kQuads]) {
    const std::byte* at = group + span * kSpanBytes + half * 32;
    out[0] = load_f32(at), out[1] = load_f32(at + 16);
  }
  static void scales(const std::byte* group, int span, int half, int32x4_t (&out)[kQuads]) {
    const int32_t* at = reinterpret_cast<const int32_t*>(group + span * kSpanBytes + half * 32);
    out[0] = vld1q_s32(at), out[1] = vld1q_s32(at + 4);
  }
  static int8x16_t minimums(const std::byte* group, int four, int quad) {
    return load_s8(group + kMinimums + (four * kQuads + quad) * 16);
  }
  static void factors(const std::byte* group, float32x4_t (&out)[kQuads]) {
    out[0] = load_f32(group + kFactors), out[1] = load_f32(group + kFactors + 16);
  }
  static void minimum_factors(const std::byte* group, float32x4_t (&out)[kQuads]) {
    out[0] = load_f32(group + kMinFactors), out[1] = load_f32(group + kMinFactors + 16);
  }

  static void widen(const std::byte* packed, std::byte* out) {
    using Packed = PackedGroup<F>;
    int32x4_t all[2][kQuads] = {};  // scales of a set together
    for (int span = 0; span < kSpans; ++span) {
      std::byte* to = out + span * kSpanBytes;
      for (int half = 0; half < kHalves; ++half) {
        int32x4_t scale[kQuads];
        Packed::scales(packed, span, half, scale);
        for (int n = 0; n < kQuads; ++n) {
          float32x4_t kept = vreinterpretq_f32_s32(scale[n]);
          if constexpr (kExact) {
            int set = span * kSets / kSpans;
            all[set][n] = vaddq_s32(all[set][n], scale[n]);
            kept = vmulq_n_f32(vcvtq_f32_s32(scale[n]), kScaleFactor);
          }
          store_f32(to + half * 32 + n * 16, kept);
        }
      }
      for (int j = 0; j < 2 && !Packed::kOwnOrder; ++j) {
        int8x16_t w[4][kQuads];
        Packed::values(packed, span, j, w);
        for (int i = 0; i < 8; ++i) store_s8(to + kHalves * 32 + j * 128 + i * 16, w[i / kQuads][i % kQuads]);
      }
    }
    if constexpr (Packed::kOwnOrder) {
      for (int i = 0; i < 32; ++i) {  // four subgroups at a time
        int8x16_t w[4];
        q6_vectors(packed, i, w);
        std::byte* to = out + i / 8 * 2 * kSpanBytes + kHalves * 32 + i % 8 * 16;
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) store_s8(to + k / 2 * kSpanBytes + k % 2 * 128, w[k]);
      }
    }
    if constexpr (kExact) {
      store_f32(out + kSumStart, vreinterpretq_f32_s32(vdupq_n_s32(F::kExactStart)));
      for (int i = 0; i < kSets * kQuads; ++i) {
        int32x4_t start = vmulq_n_s32(all[i / kQuads][i % kQuads], -F::kExactStart);
        store_f32(out + kStarts + i * 16, vmulq_n_f32(vcvtq_f32_s32(start), 1 / kAfterScales));
      }
    }
    float32x4_t factor[kQuads];
    Packed::factors(packed, factor);
    for (int n = 0; n < kQuads; ++n) store_f32(out + kFactors + n * 16, factor[n]);
    if constexpr (kMins) {
      Packed::minimum_factors(packed, factor);
      for (int n = 0; n < kQuads; ++n) store_f32(out + kMinFactors + n * 16, factor[n]);
      for (int i = 0; i < 4 * kHalves; ++i) store_s8(out + kMinimums + i * 16, load_s8(packed + F::kMinimums + i * 16));
    }
  }
};

template <class F>
struct Dot256Linear {
  using Packed = PackedGroup<F>;
  using Wide = WideGroup<F>;
  static constexpr int64_t kTileBytes = SuperRows<kTileRows>::kBytes;
  // Taking Q4_K and Q6_K apart twice is about as quick as widening them, the others are not.
  static constexpr int64_t kDirectRows = F::kDirectRows >= 8 ? 8 : 4;

  // Where a tile's groups begin, `row` the first of its rows.
  static const std::byte* tile_at(const LinearPart& part, int64_t row) {
    return part.prepared + row / kTileRows * (part.weight->cols / kSuper) * kTileBytes;
  }

  static void write(const LinearPart& part, const float* sums, int64_t row, int64_t rows, int64_t output) {
    for (int64_t r = 0; r < rows; ++r, sums += kPanel)
      write_row(part, row + r, output, vld1q_f32(sums), vld1q_f32(sums + 4), F::kAfter);
  }

  // One to four rows straight from a packed panel, which lies `ahead` bytes before what is read next.
  template <int R>
  [[gnu::noinline]] static void direct(const LinearPart& part, int64_t row, int64_t output, int64_t ahead) {
    int64_t groups = part.weight->cols / kSuper;
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    const std::byte* tile = tile_at(part, row);
    float sums[R * kPanel] = {};
    for (int64_t g = 0; g < groups; ++g, tile += SuperRows<R>::kBytes, packed += F::kBytes) {
      if (R > 1 && ahead > 0) {  // one row reads on without a pause, which the machine sees by itself
#pragma GCC unroll kWrittenOut
        for (int64_t line = 0; line < F::kBytes; line += 64) __builtin_prefetch(packed + ahead + line, 0, 2);
      }
      multiply_group<Packed, R>(tile, packed, sums);
    }
    write(part, sums, row, R, output);
  }

  static void direct_rows(const LinearPart& part, int64_t output) {
    int64_t groups = part.weight->cols / kSuper, end = (output / kPanel + 1) * groups * F::kBytes;
    int64_t ahead = bytes_ahead(*part.weight, end);
    for (int64_t row = 0; row < part.rows; row += kTileRows, ahead = 0) {
      switch (part.rows - row) {
        case 1:
          direct<1>(part, part.first_row + row, output, ahead);
          break;
        case 2:
          direct<2>(part, part.first_row + row, output, ahead);
          break;
        case 3:
          direct<3>(part, part.first_row + row, output, ahead);
          break;
        default:
          direct<4>(part, part.first_row + row, output, ahead);
      }
    }
  }

  // sums of a tile += rows x wide panel, over `groups`.
  template <int R>
  [[gnu::noinline]] static void multiply(const std::byte* tile, const std::byte* wide, int64_t groups, float* sums) {
    for (int64_t g = 0; g < groups; ++g, tile += SuperRows<R>::kBytes, wide += Wide::kBytes)
      multiply_group<Wide, R>(tile, wide, sums);
  }

  static void many_rows(const LinearPart& part, int64_t output) {
    constexpr int64_t kSegment = 12;  // groups: some 30 KiB of a wide panel, which stay in the first cache
    int64_t groups = part.weight->cols / kSuper;
    std::byte* wide = part.scratch;
    float* sums = reinterpret_cast<float*>(part.scratch + kSegment * Wide::kBytes);  // [rows, kPanel]
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    int64_t ahead = output + kPanel < part.weight->rows ? groups * F::kBytes : 0;
    std::fill_n(sums, part.rows * kPanel, 0.0f);
    const int64_t segment = equal_parts(groups, kSegment);
    for (int64_t g = 0; g < groups; g += segment) {
      int64_t count = std::min(segment, groups - g);
      for (int64_t i = 0; i < count; ++i) {
        const std::byte* from = packed + (g + i) * F::kBytes;
        for (int64_t line = 0; line < F::kBytes; line += 64) __builtin_prefetch(from + ahead + line, 0, 2);
        Wide::widen(from, wide + i * Wide::kBytes);
      }
      for (int64_t row = 0; row < part.rows; row += kTileRows) {
        const std::byte* tile = tile_at(part, part.first_row + row);
        float* to = sums + row * kPanel;
        switch (part.rows - row) {
          case 1:
            multiply<1>(tile + g * SuperRows<1>::kBytes, wide, count, to);
            break;
          case 2:
            multiply<2>(tile + g * SuperRows<2>::kBytes, wide, count, to);
            break;
          case 3:
            multiply<3>(tile + g * SuperRows<3>::kBytes, wide, count, to);
            break;
          default:
            multiply<4>(tile + g * SuperRows<4>::kBytes, wide, count, to);
        }
      }
    }
    write(part, sums, part.first_row, part.rows, output);
  }

  static void product(const LinearPart& part) {
    for (int64_t output = part.begin; output < part.end; output += kPanel)
      part.rows <= kDirectRows ? direct_rows(part, output) : many_rows(part, output);
  }

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kPanel;
    kernel.rows_tile = kTileRows;
    kernel.part_values = 400 << 10;
    kernel.packed_bytes = Packed256<F>::packed_bytes;
    kernel.pack = Packed256<F>::pack;
    kernel.unpack_row = Packed256<F>::unpack_row;
    kernel.prepared_bytes = dot_prepared_bytes;
    kernel.prepare = dot_prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

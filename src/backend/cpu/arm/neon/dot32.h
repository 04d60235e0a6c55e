// Products of formats with a factor per 32 weights (Q8_0, Q4_0, ...) where SDOT multiplies (dot32_loop.h). Rows are
// quantised to int8 in the same groups of 32. The float arithmetic and its order are those of group32.h, so both give
// the same bits: per group and output sum += integer sum * (the weights' factor * the row's factor), and where the
// format has a minimum, sum += minimum * (the row's factor * the sum of its integers); where eight groups of a row
// share a factor, run += integer sum * the weights' factor, and after eight groups sum += run * the row's factor.
//
// Prepared rows (DotRows): one that comes alone by itself, group after group, others in tiles of four. Tiles lie
// segment by segment, in the order many rows meet a panel. Up to some rows meet packed weights; for more a segment of a
// panel is widened first.
#pragma once

#include "backend/cpu/arm/neon/dot.h"
#include "backend/cpu/arm/neon/dot32_loop.h"

namespace millrace::cpu {
namespace {

// Groups of a panel that meet all rows before the next do: at most 20 KiB of a wide panel, which stay in the first
// cache beside a tile of rows.
constexpr int64_t kDotSegment = 64;

// Where prepared tiles lie: [segments][tiles][groups of the segment].
struct DotPlaces {
  DotPlaces(int64_t rows, int64_t cols, int64_t tile_bytes)
      : groups(cols / kGroup),
        segment(up_to(equal_parts(groups, kDotSegment), kSharedGroups)),
        tiles(up_to(rows, kTileRows) / kTileRows),
        bytes(tile_bytes) {}
  int64_t groups, segment, tiles, bytes;

  int64_t end(int64_t begin) const { return std::min(groups, begin + segment); }
  // Of a tile, where the segment that begins with group `begin` lies; its groups follow one another.
  int64_t at(int64_t tile, int64_t begin) const { return (begin * tiles + tile * (end(begin) - begin)) * bytes; }
};

// Prepared rows of formats with these properties. `few`: of up to kFewRows.
template <bool mins, bool shared, bool starts>
struct Dot32Rows {
  static constexpr int64_t kFewRows = 16;
  using Lone = DotRows<1, mins, starts>;
  using Few = DotRows<kTileRows, mins, starts>;
  using Many = DotRows<kTileRows, mins, false>;

  static int64_t tile_bytes(int64_t rows) { return rows <= kFewRows ? Few::kBytes : Many::kBytes; }

  static int64_t prepared_bytes(int64_t rows, int64_t cols) {
    if (rows == 1) return cols / kGroup * Lone::kBytes;
    return cols / kGroup * (up_to(rows, kTileRows) / kTileRows) * tile_bytes(rows);
  }

  static void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    if (in.rows == 1) return prepare_rows<Lone>(in, 0, 1, out);
    in.rows <= kFewRows ? prepare_rows<Few>(in, begin, end, out) : prepare_rows<Many>(in, begin, end, out);
  }

  template <class R>
  static void prepare_rows(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    const DotPlaces places(in.rows, in.cols, R::kBytes);
    std::byte* const tiles = out;
    float32x4_t inverse = vdupq_n_f32(0), factor = inverse;
    for (int64_t g = 0, next = 0; g < places.groups; ++g, out += R::kBytes) {
      if (g == next && R::kRows > 1) out = tiles + places.at(begin / kTileRows, g), next = places.end(g);
      auto row = [&](int64_t r) { return in.row(begin + r) + g * kGroup; };
      if (!shared || g % kSharedGroups == 0) {
        const int64_t count = shared ? std::min(kSharedGroups, places.groups - g) * kGroup : kGroup;
        float32x4_t most[kTileRows];
        each<kTileRows>(
            [&](auto r) { most[r] = r < R::kRows && begin + r < end ? largest_of(row(r), count) : vdupq_n_f32(0); });
        float32x4_t largest = vpmaxq_f32(vpmaxq_f32(most[0], most[1]), vpmaxq_f32(most[2], most[3]));
        inverse = inverse_factors(largest), factor = vdivq_f32(largest, vdupq_n_f32(127.0f));
      }
      int32x4_t sums = vdupq_n_s32(0);
      each<R::kRows>([&](auto r) {
        int8x16_t q[2] = {vdupq_n_s8(0), vdupq_n_s8(0)};  // of rows that do not exist
        if (begin + r < end) {
          const float32x4_t by = vdupq_laneq_f32(inverse, r);
          q[0] = round_sixteen(row(r), by), q[1] = round_sixteen(row(r) + 16, by);
        }
        store_s8(out + kGroup * r, q[0]);
        store_s8(out + kGroup * r + 16, q[1]);
        if constexpr (mins || R::kStarts) {
          const int8x16_t ones = vdupq_n_s8(1);
          const int32_t sum = vaddvq_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), q[0], ones), q[1], ones));
          sums = vsetq_lane_s32(sum, sums, r);
          // See PackedWeights: sums of high nibbles, which have their start too, are taken off.
          if constexpr (R::kStarts) {
            const uint32_t start = 2 * uint32_t{kFloatStartBits} - 8 * static_cast<uint32_t>(sum);
            store_u8(out + R::kStart + 16 * r, vreinterpretq_u8_u32(vdupq_n_u32(start)));
          }
        }
      });
      store_f32(out + R::kFactors, factor);
      if constexpr (mins) store_f32(out + R::kSums, vmulq_f32(factor, vcvtq_f32_s32(sums)));
    }
  }
};

template <class F>
struct Dot32Linear {
  using Rows = Dot32Rows<F::kMins, F::kShared, F::kStarts>;
  using Packed = PackedWeights<F>;
  using Wide = WideWeights<F>;
  static constexpr int64_t kValueBytes = 256;  // of a wide panel, a group
  static constexpr int64_t kWideBytes = kDotSegment * (Wide::kFactorBytes + kValueBytes);
  // Up to so many rows, widening a panel costs more than it saves.
  static constexpr int64_t kPackedRows = F::kStarts || F::kWideValues >= 0 ? Rows::kFewRows : kTileRows;
  // Low nibbles multiplied as they are: only the others' sums are had times a power of two.
  static constexpr float kAfterLow = F::kStarts ? 1.0f : F::kAfter;
  static constexpr int64_t kLoneAhead = 1024;
  static_assert(kPackedRows <= Rows::kFewRows);

  static DotPanel packed_panel(const LinearPart& part, int64_t output, int64_t group) {
    const std::byte* at = part.weight->data + (output / kPanel * (part.weight->cols / kGroup) + group) * F::kBytes;
    return {at, F::kBytes, at};
  }

  // Widens `groups` of a panel into `out`, room for kDotSegment of them; values that lie as loops take them stay.
  static DotPanel widen(const std::byte* packed, int64_t groups, std::byte* out) {
    std::byte *factors = out, *values = out + kDotSegment * Wide::kFactorBytes;
    DotPanel panel{F::kWideValues >= 0 ? packed + F::kWideValues : values,
                   F::kWideValues >= 0 ? F::kBytes : kValueBytes, factors};
    for (int64_t g = 0; g < groups; ++g, packed += F::kBytes, factors += Wide::kFactorBytes) {
      float32x4_t factor[2], minimum[2];
      F::factors(packed, factor);
      if constexpr (F::kMins) F::minimums(packed, minimum);
      each<2>([&](auto quad) {
        store_f32(factors + 16 * quad, factor[quad]);
        if constexpr (F::kMins) store_f32(factors + 32 + 16 * quad, minimum[quad]);
      });
      if constexpr (F::kWideValues < 0) {
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kPairs; ++i) {
          int8x16_t w[2];
          F::values(packed, i % kPairs, i / kPairs, w);
          store_s8(values + (i / kPairs * 2 * kPairs + i % kPairs) * 16, w[0]);
          store_s8(values + ((i / kPairs * 2 + 1) * kPairs + i % kPairs) * 16, w[1]);
        }
        values += kValueBytes;
      }
    }
    return panel;
  }

  static void write(const LinearPart& part, const float* totals, int64_t row, int64_t rows, int64_t output,
                    float after_low, float after_high) {
    for (int64_t r = 0; r < rows; ++r, totals += kPanel)
      write_row(part, row + r, output, vmulq_n_f32(vld1q_f32(totals), after_low),
                vmulq_n_f32(vld1q_f32(totals + 4), after_high), 1.0f);
  }

  // How far on a loop over what ends at `end` may ask for weights: not at all where that would be beyond them, for
  // asking in vain takes long.
  static int64_t ahead(const LinearPart& part, const std::byte* end, int64_t far) {
    return part.weight->data + part.weight->bytes - end >= far ? far : 0;
  }

  static void lone_row(const LinearPart& part, int64_t output) {
    float totals[kPanel] = {};
    const int64_t groups = part.weight->cols / kGroup;
    const DotPanel panel = packed_panel(part, output, 0);
    multiply_dot32<Packed, typename Rows::Lone, 1, true>(part.prepared, panel, groups, totals,
                                                         ahead(part, panel.values + groups * F::kBytes, kLoneAhead));
    write(part, totals, part.first_row, 1, output, kAfterLow, F::kAfter);
  }

  template <class R>
  static void multiply_few(int64_t rows, bool asks, const std::byte* tile, const DotPanel& panel, int64_t groups,
                           float* sums, int64_t next) {
    auto multiply = [&](auto count) {
      asks ? multiply_dot32<Packed, R, count, true>(tile, panel, groups, sums, next)
           : multiply_dot32<Packed, R, count>(tile, panel, groups, sums);
    };
    switch (rows) {
      case 1:
        return multiply(std::integral_constant<int, 1>());
      case 2:
        return multiply(std::integral_constant<int, 2>());
      case 3:
        return multiply(std::integral_constant<int, 3>());
      default:
        return multiply(std::integral_constant<int, 4>());
    }
  }

  // Few rows straight from the packed weights.
  static void few_rows(const LinearPart& part, const DotPlaces& places, int64_t output) {
    using R = typename Rows::Few;
    const int64_t first = part.first_row / kTileRows;
    float totals[kPackedRows * kPanel] = {};
    for (int64_t g = 0; g < places.groups; g = places.end(g)) {
      const int64_t groups = places.end(g) - g;
      const DotPanel panel = packed_panel(part, output, g);
      const std::byte* tile = part.prepared + places.at(first, g);
      // With the last tile: the machine does not see what follows while other tiles meet the same weights again.
      const int64_t next = ahead(part, panel.values + groups * F::kBytes, groups * F::kBytes);
      for (int64_t row = 0; row < part.rows; row += kTileRows, tile += groups * R::kBytes) {
        const bool asks = part.rows > 2 && row + kTileRows >= part.rows;
        multiply_few<R>(part.rows - row, asks, tile, panel, groups, totals + row * kPanel, next);
      }
    }
    write(part, totals, part.first_row, part.rows, output, kAfterLow, F::kAfter);
  }

  // Many rows: a segment of a panel is widened once and meets every tile of rows.
  template <class R>
  static void many_rows(const LinearPart& part, const DotPlaces& places, int64_t output) {
    const int64_t first = part.first_row / kTileRows, tiles = up_to(part.rows, kTileRows) / kTileRows;
    float* sums = reinterpret_cast<float*>(part.scratch + kWideBytes);  // [tiles, kTileFloats]
    std::fill_n(sums, tiles * kTileFloats, 0.0f);
    for (int64_t g = 0; g < places.groups; g = places.end(g)) {
      const int64_t groups = places.end(g) - g;
      const DotPanel panel = widen(packed_panel(part, output, g).values, groups, part.scratch);
      const std::byte* tile = part.prepared + places.at(first, g);
      // With each tile a part of what is met next.
      const std::byte* next = packed_panel(part, output, g).values + groups * F::kBytes;
      const int64_t far = ahead(part, next, groups * F::kBytes), share = up_to(far / tiles, 64);
      for (int64_t t = 0; t < tiles; ++t, tile += groups * R::kBytes) {
        float* totals = sums + t * kTileFloats;
        for (int64_t at = t * share; at < std::min(far, (t + 1) * share); at += 64) __builtin_prefetch(next + at, 0, 2);
        multiply_dot32<Wide, R, kTileRows>(tile, panel, groups, totals);
        // At once: what is written one tile at a time arrives while the next are multiplied.
        if (g + groups == places.groups) {
          const int64_t row = t * kTileRows;
          write(part, totals, part.first_row + row, std::min(kTileRows, part.rows - row), output, F::kAfter, F::kAfter);
        }
      }
    }
  }

  static void product(const LinearPart& part) {
    const int64_t prepared = part.prepared_rows;
    const DotPlaces places(prepared, part.weight->cols, Rows::tile_bytes(prepared));
    for (int64_t output = part.begin; output < part.end; output += kPanel) {
      if (prepared == 1) {
        lone_row(part, output);
      } else if (prepared > Rows::kFewRows) {
        many_rows<typename Rows::Many>(part, places, output);
      } else if (part.rows <= kPackedRows) {
        few_rows(part, places, output);
      } else {
        many_rows<typename Rows::Few>(part, places, output);
      }
    }
  }

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kPanel;
    kernel.rows_tile = kTileRows;
    kernel.part_values = 400 << 10;
    kernel.packed_bytes = Packed32<F>::packed_bytes;
    kernel.pack = Packed32<F>::pack;
    kernel.unpack_row = Packed32<F>::unpack_row;
    kernel.prepared_bytes = Rows::prepared_bytes;
    kernel.prepare = Rows::prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

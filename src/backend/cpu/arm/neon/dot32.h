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
  static constexpr int64_t kFewRows = starts ? 7 : 16;
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
  // Whether a panel is widened by plain registers while another is multiplied.
  static constexpr bool kBeside = WidenBeside<F, 1>::kCan;
  // Up to so many rows, widening a panel costs more than it saves.
  static constexpr int64_t kPackedRows = kBeside || F::kWideValues >= 0 ? Rows::kFewRows : kTileRows;
  // Low nibbles multiplied as they are: only the others' sums are had times a power of two.
  static constexpr float kAfterLow = F::kStarts ? 1.0f : F::kAfter;
  static constexpr int64_t kLoneAhead = 1024, kManyAhead = 4608;  // bytes
  static_assert(kPackedRows <= Rows::kFewRows);

  static DotPanel packed_panel(const LinearPart& part, int64_t output, int64_t group) {
    const std::byte* at = part.weight->data + (output / kPanel * (part.weight->cols / kGroup) + group) * F::kBytes;
    return {at, F::kBytes, at};
  }

  // Widens groups of a panel into `out`, room for kDotSegment of them: the values of [begin, groups), and factors.
  // Values that lie as loops take them stay.
  static DotPanel widen(const std::byte* packed, int64_t begin, int64_t groups, std::byte* out) {
    const DotPanel panel = widen_values(packed, begin, groups, out);
    for (int64_t g = 0; g < groups; ++g, packed += F::kBytes, out += Wide::kFactorBytes) {
      float32x4_t factor[2], minimum[2];
      F::factors(packed, factor);
      if constexpr (F::kMins) F::minimums(packed, minimum);
      each<2>([&](auto quad) {
        store_f32(out + 16 * quad, factor[quad]);
        if constexpr (F::kMins) store_f32(out + 32 + 16 * quad, minimum[quad]);
      });
    }
    return {panel.values, panel.value_bytes, out - groups * Wide::kFactorBytes};
  }
  // The same without factors: they are where they were.
  static DotPanel widen_values(const std::byte* packed, int64_t begin, int64_t groups, std::byte* out) {
    if constexpr (F::kWideValues >= 0) return {packed + F::kWideValues, F::kBytes, packed};
    std::byte* values = wide_values(out);
    for (int64_t g = begin; g < groups; ++g) {
#pragma GCC unroll 8
      for (int i = 0; i < 2 * kPairs; ++i) {
        int8x16_t w[2];
        F::values(packed + g * F::kBytes, i % kPairs, i / kPairs, w);
        std::byte* to = values + g * kValueBytes + (i / kPairs * 2 * kPairs + i % kPairs) * 16;
        store_s8(to, w[0]);
        store_s8(to + kPairs * 16, w[1]);
      }
    }
    return {values, kValueBytes, packed};
  }
  static std::byte* wide_values(std::byte* wide) { return wide + kDotSegment * Wide::kFactorBytes; }

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
      // Only a full tile may have another behind it.
      if constexpr (kPackedRows == kTileRows || count == 3) {
        multiply_dot32<Packed, R, count, (count > 2)>(tile, panel, groups, sums, next);
      } else {
        asks ? multiply_dot32<Packed, R, count, true>(tile, panel, groups, sums, next)
             : multiply_dot32<Packed, R, count>(tile, panel, groups, sums);
      }
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

  // What is widened while tiles are multiplied: `groups` of the next segment, `from` there `to` a wide panel.
  struct Next {
    const std::byte* from;
    std::byte* to;
    int64_t groups, ahead;
  };

  // Tile t of rows by a segment of a panel; beside it `steps` of every group of the next one.
  template <class W, class R, int steps>
  static void multiply_beside(const std::byte* tile, DotPanel panel, int64_t groups, float* sums, int64_t t,
                              const Next& next) {
    using B = WidenBeside<F, steps>;
    if (next.groups > 0) {
      const B beside{next.from + B::kFrom + t * steps * B::kFromStep, wide_values(next.to) + t * steps * B::kToStep};
      t == 0 ? multiply_dot32<W, R, kTileRows, true, B>(tile, panel, next.groups, sums, next.ahead, beside)
             : multiply_dot32<W, R, kTileRows, false, B>(tile, panel, next.groups, sums, 0, beside);
      tile += next.groups * R::kBytes, groups -= next.groups;
      panel.values += next.groups * panel.value_bytes, panel.factors += next.groups * W::kFactorBytes;
    }
    if (groups > 0) multiply_dot32<W, R, kTileRows>(tile, panel, groups, sums);
  }
  template <class R>
  static void multiply_tile(const std::byte* tile, const DotPanel& panel, int64_t groups, float* sums, int64_t t,
                            int64_t tiles, const Next& next) {
    if constexpr (kBeside) {
      if (factors_stay(tiles))
        return multiply_beside<WideValues<F>, R, 4>(tile, panel, groups, sums, t, t < 2 ? next : Next{});
      if (t < 4) return multiply_beside<Wide, R, 2>(tile, panel, groups, sums, t, next);
    }
    multiply_dot32<Wide, R, kTileRows>(tile, panel, groups, sums);
  }
  // Few tiles have factors converted as they meet them, which takes less than to write them down.
  static bool factors_stay(int64_t tiles) { return kBeside && tiles < 4; }

  // Many rows: a segment of a panel is widened once and meets every tile of rows.
  template <class R>
  static void many_rows(const LinearPart& part, const DotPlaces& places) {
    const int64_t first = part.first_row / kTileRows, tiles = up_to(part.rows, kTileRows) / kTileRows;
    std::byte *wide = part.scratch, *other = wide + kWideBytes;
    float* sums = reinterpret_cast<float*>(other + kWideBytes);  // [tiles, kTileFloats]
    int64_t there = 0;                                           // groups widened while others were multiplied
    for (int64_t output = part.begin; output < part.end; output += kPanel) {
      std::fill_n(sums, tiles * kTileFloats, 0.0f);
      for (int64_t g = 0; g < places.groups; g = places.end(g)) {
        const int64_t groups = places.end(g) - g;
        const bool last = g + groups == places.groups;
        const std::byte* packed = packed_panel(part, output, g).values;
        const std::byte* after = packed + groups * F::kBytes;
        const DotPanel panel =
            factors_stay(tiles) ? widen_values(packed, there, groups, wide) : widen(packed, there, groups, wide);
        // Of what is met next whole runs are widened beside.
        const int64_t coming = !last                        ? places.end(g + groups) - (g + groups)
                               : output + kPanel < part.end ? places.end(0)
                                                            : 0;
        if (kBeside && tiles > 1) there = coming >= groups ? groups : coming / kSharedGroups * kSharedGroups;
        const Next next{after, other, there, ahead(part, after + there * F::kBytes, kManyAhead)};
        // Else a part of it is asked for with each tile.
        const int64_t far = there > 0 ? 0 : ahead(part, after, groups * F::kBytes), share = up_to(far / tiles, 64);
        const std::byte* tile = part.prepared + places.at(first, g);
        for (int64_t t = 0; t < tiles; ++t, tile += groups * R::kBytes) {
          float* totals = sums + t * kTileFloats;
          for (int64_t at = t * share; at < std::min(far, (t + 1) * share); at += 64)
            __builtin_prefetch(after + at, 0, 2);
          multiply_tile<R>(tile, panel, groups, totals, t, tiles, next);
          // At once: what is written one tile at a time arrives while the next are multiplied.
          if (last) {
            const int64_t row = t * kTileRows;
            write(part, totals, part.first_row + row, std::min(kTileRows, part.rows - row), output, F::kAfter,
                  F::kAfter);
          }
        }
        std::swap(wide, other);
      }
    }
  }
  static_assert(2 * kWideBytes + LinearKernel::kMostPartRows * kPanel * 4 <= kWorkerBytes);

  static void product(const LinearPart& part) {
    const int64_t prepared = part.prepared_rows;
    const DotPlaces places(prepared, part.weight->cols, Rows::tile_bytes(prepared));
    if (prepared > Rows::kFewRows) return many_rows<typename Rows::Many>(part, places);
    if constexpr (kPackedRows < Rows::kFewRows) {
      if (part.rows > kPackedRows) return many_rows<typename Rows::Few>(part, places);
    }
    for (int64_t output = part.begin; output < part.end; output += kPanel)
      prepared == 1 ? lone_row(part, output) : few_rows(part, places, output);
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

// Products of formats with a factor per 32 weights (Q8_0, Q4_0, ...) on machines with i8mm. Rows are quantised to int8
// in the same groups of 32. Per group and output: sum += (integer sum * the weights' factor) * the row's factor, and
// where the format has a minimum, sum += minimum * (the row's factor * the sum of its integers). Where weights have so
// few bits that it does not show (docs/performance.md), eight groups of a row share a factor: run += integer sum * the
// weights' factor, and after eight groups sum += run * the row's factor, which is a multiplication less.
//
// Prepared rows, per tile of four and group: factors [2 pairs][4], integers [4 steps][2 pairs][16] and, with minimums,
// sums [2 pairs][4]. Tiles lie segment by segment (RowPlaces), in the order many rows meet a panel. Where weights stand
// for themselves less 8, what sums start from, [2 pairs][4], follows all tiles in the same order. A wide panel, per
// group: factors [4 pairs][4] and, with minimums, those [4 pairs][4]; apart from them integers [4 steps][4 pairs][16].
// Packed weights are the format's own business: F::values() gives two steps of a pair of outputs at a time.
#pragma once

#include "backend/cpu/arm/i8mm/group32_eight.h"
#include "backend/cpu/arm/i8mm/group32_few.h"
#include "backend/cpu/arm/i8mm/group32_row.h"
#include "backend/cpu/arm/i8mm/group32_tile.h"
#include "backend/cpu/arm/packed32.h"

namespace millrace::cpu {
namespace {

// Groups of a panel that meet all rows before the next do: 20 KiB of a wide panel, which stay in the first cache.
constexpr int64_t kSegment32 = 64;
// Where two to eight rows meet packed weights twice (rows_of_nibbles), half as many are read again faster.
constexpr int64_t kShortSegment32 = 48, kShortRows32 = 8;

constexpr int64_t kStartBytes = 32;  // what sums start from, of a tile, a group

// Where prepared rows lie: [segments][tiles][groups of the segment].
struct RowPlaces {
  RowPlaces(int64_t rows, int64_t cols, int64_t tile_bytes, bool starts)
      : groups(cols / kGroup),
        segment(
            up_to(equal_parts(groups, starts && rows <= kShortRows32 ? kShortSegment32 : kSegment32), kSharedGroups)),
        tiles(up_to(rows, kTileRows) / kTileRows),
        bytes(tile_bytes) {}
  int64_t groups, segment, tiles, bytes;

  int64_t end(int64_t begin) const { return std::min(groups, begin + segment); }
  // Of a tile, where the segment that begins with group `begin` lies; its groups follow one another.
  int64_t at(int64_t tile, int64_t begin) const { return (begin * tiles + tile * (end(begin) - begin)) * bytes; }
  // Of what lies `at` there, where the starts of its sums are.
  int64_t starts_at(int64_t at) const { return groups * tiles * bytes + at / bytes * kStartBytes; }
};

struct WidePanel {
  const std::byte* values;
  int64_t value_bytes;  // from group to group
  const std::byte* factors;
};

// A sum of two rows with two outputs over groups.
template <bool shared>
struct GroupSum {
  float32x4_t total = vdupq_n_f32(0), run = vdupq_n_f32(0);

  void add(int32x4_t sums, float32x4_t of_outputs, float32x4_t of_rows) {
    float32x4_t sum = vcvtq_f32_s32(sums);
    if constexpr (shared) {
      run = vfmaq_f32(run, sum, of_outputs);
    } else {
      total = vfmaq_f32(total, sum, vmulq_f32(of_outputs, of_rows));
    }
  }
  void end_run(float32x4_t of_rows) {
    total = vfmaq_f32(total, run, of_rows);
    run = vdupq_n_f32(0);
  }
};

template <bool mins, bool shared, bool starts>
struct Group32 {
  static_assert(!mins || (!shared && !starts));
  static constexpr int64_t kRowBytes = 32 + kSteps * 32 + (mins ? 32 : 0);  // of a tile, a group
  static constexpr int64_t kFactorBytes = mins ? 128 : 64;                  // of a wide panel, a group

  // Numbers of four rows as they meet the sums of two pairs.
  static void store_pairs(float32x4_t rows, std::byte* out) {
    store_f32(out, vzip1q_f32(rows, rows));
    store_f32(out + 16, vzip2q_f32(rows, rows));
  }

  // What sums start from where weights stand for themselves less 8.
  static void store_starts(const int8x16_t (&q)[kTileRows][2], std::byte* out) {
    int32x4_t sums[kTileRows];
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
      const int8x16_t less = vdupq_n_s8(-8);
      sums[r] = vdotq_s32(vdotq_s32(vdupq_n_s32(0), q[r][0], less), q[r][1], less);
    }
    int32x4_t each = vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
    store_pairs(vreinterpretq_f32_s32(each), out);
  }

  static int64_t prepared_bytes(int64_t rows, int64_t cols) {
    if (starts && rows == 1) return cols / kGroup * kSplit32Bytes;
    return cols / kGroup * (up_to(rows, kTileRows) / kTileRows * (kRowBytes + (starts ? kStartBytes : 0)));
  }

  // A row that comes alone where it is always multiplied split.
  static void prepare_split(Tensor in, std::byte* out) {
    const float* row = in.row(0);
    const int64_t groups = in.cols / kGroup;
    float32x4_t inverse = vdupq_n_f32(0), factor = inverse;
    for (int64_t g = 0; g < groups; ++g, row += kGroup, out += kSplit32Bytes) {
      if (g % kSharedGroups == 0) {
        float32x4_t largest = vdupq_n_f32(vmaxvq_f32(largest_of(row, std::min(kSharedGroups, groups - g) * kGroup)));
        inverse = inverse_factors(largest), factor = vdivq_f32(largest, vdupq_n_f32(127.0f));
      }
      store_split32(factor, round_sixteen(row, inverse), round_sixteen(row + 16, inverse), out);
    }
  }

  static void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    if constexpr (starts) {
      if (in.rows == 1) return prepare_split(in, out);
    }
    end - begin == kTileRows ? prepare_tile<true>(in, begin, end, out) : prepare_tile<false>(in, begin, end, out);
  }

  template <bool whole>
  static void prepare_tile(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    auto exists = [&](int64_t r) { return whole || begin + r < end; };  // rows that do not are zero
    const RowPlaces places(in.rows, in.cols, kRowBytes, starts);
    std::byte *tiles = out, *start = nullptr;
    float32x4_t inverse = vdupq_n_f32(0), factor = inverse;
    for (int64_t g = 0, next = 0; g < places.groups; ++g, out += kRowBytes, start += kStartBytes) {
      if (g == next) {
        const int64_t at = places.at(begin / kTileRows, g);
        out = tiles + at, start = tiles + places.starts_at(at), next = places.end(g);
      }
      auto row = [&](int64_t r) { return in.row(begin + r) + g * kGroup; };
      if (!shared || g % kSharedGroups == 0) {
        const int64_t count = shared ? std::min(kSharedGroups, places.groups - g) * kGroup : kGroup;
        float32x4_t most[kTileRows];
#pragma GCC unroll 4
        for (int64_t r = 0; r < kTileRows; ++r) most[r] = exists(r) ? largest_of(row(r), count) : vdupq_n_f32(0);
        float32x4_t largest = vpmaxq_f32(vpmaxq_f32(most[0], most[1]), vpmaxq_f32(most[2], most[3]));
        inverse = inverse_factors(largest), factor = vdivq_f32(largest, vdupq_n_f32(127.0f));
      }
      int8x16_t q[kTileRows][2];
      auto round_row = [&](int64_t r, float32x4_t by) {
        q[r][0] = exists(r) ? round_sixteen(row(r), by) : vdupq_n_s8(0);
        q[r][1] = exists(r) ? round_sixteen(row(r) + 16, by) : vdupq_n_s8(0);
      };
      round_row(0, vdupq_laneq_f32(inverse, 0));
      round_row(1, vdupq_laneq_f32(inverse, 1));
      round_row(2, vdupq_laneq_f32(inverse, 2));
      round_row(3, vdupq_laneq_f32(inverse, 3));
      store_pairs(factor, out);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {  // pair of rows, half of the group
        int pair = i / 2, half = i % 2;
        int64x2_t a = vreinterpretq_s64_s8(q[2 * pair][half]), b = vreinterpretq_s64_s8(q[2 * pair + 1][half]);
        store_s8(out + 32 + (4 * half + pair) * 16, vreinterpretq_s8_s64(vzip1q_s64(a, b)));
        store_s8(out + 32 + (4 * half + 2 + pair) * 16, vreinterpretq_s8_s64(vzip2q_s64(a, b)));
      }
      if constexpr (mins) {
        float sum[kTileRows];
        for (int r = 0; r < kTileRows; ++r) sum[r] = static_cast<float>(vaddlvq_s8(q[r][0]) + vaddlvq_s8(q[r][1]));
        store_pairs(vmulq_f32(factor, vld1q_f32(sum)), out + 160);
      }
      if constexpr (starts) store_starts(q, start);
    }
  }

  // total of a tile += rows x wide panel, over `groups`.
  [[gnu::always_inline]] static void multiply(const std::byte* rows, const WidePanel& panel, int64_t groups,
                                              const std::byte* ahead, TileSums& total) {
    if constexpr (!mins && !shared) {
      static_assert(kRowBytes == kTile32Bytes);
      return multiply_group32_tile(rows, panel.values, panel.value_bytes, panel.factors, groups, ahead, total);
    }
    (void)ahead;
    const std::byte *values = panel.values, *factors = panel.factors;
    GroupSum<shared> sums[2][kPairs];
    for (int i = 0; i < 2 * kPairs; ++i) sums[i / kPairs][i % kPairs].total = total[i];
    for (int64_t g = 0; g < groups; ++g, rows += kRowBytes, values += panel.value_bytes, factors += kFactorBytes) {
      const bool ends = shared && (g % kSharedGroups == kSharedGroups - 1 || g == groups - 1);
      PairSum t[2][kPairs];
#pragma GCC unroll 4
      for (int k = 0; k < kSteps; ++k) {
        int8x16_t a = load_s8(rows + 32 + k * 32), b = load_s8(rows + 48 + k * 32);
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          int8x16_t w = load_s8(values + (k * kPairs + p) * 16);
          t[0][p].add(a, w);
          t[1][p].add(b, w);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        float32x4_t factor = load_f32(factors + p * 16);
#pragma GCC unroll 2
        for (int m = 0; m < 2; ++m) {
          GroupSum<shared>& sum = sums[m][p];
          sum.add(t[m][p].sums(), factor, load_f32(rows + m * 16));
          if (mins) sum.total = vfmaq_f32(sum.total, load_f32(factors + 64 + p * 16), load_f32(rows + 160 + m * 16));
          if (ends) sum.end_run(load_f32(rows + m * 16));
        }
      }
    }
    for (int i = 0; i < 2 * kPairs; ++i) total[i] = sums[i / kPairs][i % kPairs].total;
  }
};

// A panel is a short run of memory, so the machine finds its way anew at the start of each: ask early for the one that
// follows the panels at hand.
template <int64_t bytes>
inline void look_ahead(const std::byte* at) {
#pragma GCC unroll 8
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

template <class F>
struct Group32Linear {
  using Form = Group32<F::kMins, F::kShared, F::kStarts>;
  using Sum = GroupSum<F::kShared>;
  static constexpr int64_t kDirectRows = 4;    // up to so many, widening a panel costs more than it saves
  static constexpr int64_t kValueBytes = 256;  // of a wide panel, a group
  static constexpr int64_t kWideBytes = kSegment32 * (Form::kFactorBytes + kValueBytes);

  // Widens `groups` of a panel into `out`, room for kSegment32 of them; values that lie as the tile takes them stay.
  static WidePanel widen(const std::byte* packed, int64_t groups, std::byte* out) {
    std::byte *factors = out, *values = out + kSegment32 * Form::kFactorBytes;
    WidePanel panel{F::kWideValues >= 0 ? packed + F::kWideValues : values,
                    F::kWideValues >= 0 ? F::kBytes : kValueBytes, factors};
    for (int64_t g = 0; g < groups; ++g, packed += F::kBytes, factors += Form::kFactorBytes) {
      float32x4_t factor[2], minimum[2];
      F::factors(packed, factor);
      if constexpr (F::kMins) F::minimums(packed, minimum);
      for (int half = 0; half < 2; ++half) {
        store_f32(factors + half * 32, low_twice(factor[half]));
        store_f32(factors + half * 32 + 16, high_twice(factor[half]));
        if constexpr (F::kMins) {
          store_f32(factors + 64 + half * 32, low_twice(minimum[half]));
          store_f32(factors + 64 + half * 32 + 16, high_twice(minimum[half]));
        }
      }
      if constexpr (F::kWideValues < 0) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          int8x16_t w[kPairs][2];
#pragma GCC unroll 4
          for (int p = 0; p < kPairs; ++p) F::values(packed, p, j, w[p]);
#pragma GCC unroll 8
          for (int i = 0; i < 2 * kPairs; ++i) store_s8(values + (2 * j * kPairs + i) * 16, w[i % kPairs][i / kPairs]);
        }
        values += kValueBytes;
      }
    }
    return panel;
  }

  // One row, `Panels` panels at once.
  template <int Panels>
  static void one_row(const LinearPart& part, const RowPlaces& places, int64_t row, int64_t output) {
    const int64_t groups = places.groups;
    const std::byte* rows = nullptr;
    const std::byte* packed = part.weight->data + output / kPanel * groups * F::kBytes;
    Sum total[Panels][2];
    for (int64_t g = 0, next = 0; g < groups; ++g, packed += F::kBytes, rows += Form::kRowBytes) {
      if (g == next) rows = part.prepared + places.at(row / kTileRows, g), next = places.end(g);
      const bool ends = F::kShared && (g % kSharedGroups == kSharedGroups - 1 || g == groups - 1);
      int8x16_t a[kSteps];
#pragma GCC unroll 4
      for (int k = 0; k < kSteps; ++k) a[k] = load_s8(rows + 32 + k * 32);
      float factor_of_row = *reinterpret_cast<const float*>(rows);
#pragma GCC unroll 4
      for (int n = 0; n < Panels; ++n) {
        const std::byte* group = packed + n * groups * F::kBytes;
        look_ahead<F::kBytes>(group + Panels * groups * F::kBytes);
        PairSum t[kPairs];
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 2
          for (int j = 0; j < 2; ++j) {
            int8x16_t w[2];
            F::values(group, p, j, w);
            t[p].add(a[2 * j], w[0]);
            t[p].add(a[2 * j + 1], w[1]);
          }
        }
        float32x4_t factor[2];
        F::factors(group, factor);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          Sum& sum = total[n][half];
          sum.add(first_row(t[2 * half].sums(), t[2 * half + 1].sums()), factor[half], vdupq_n_f32(factor_of_row));
          if (ends) sum.end_run(vdupq_n_f32(factor_of_row));
          if constexpr (F::kMins) {
            float32x4_t minimum[2];
            F::minimums(group, minimum);
            sum.total = vfmaq_n_f32(sum.total, minimum[half], *reinterpret_cast<const float*>(rows + 160));
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < Panels; ++n)
      write_row(part, row, output + n * kPanel, total[n][0].total, total[n][1].total, F::kAfter);
  }

  // One row alone, by the format's own loop; returns the output after those it has computed. Panels follow one another
  // in memory: one stream, asked for early.
  static int64_t lone_row(const LinearPart& part, int64_t output) {
    constexpr int64_t kMost = F::kLoneRow == LoneRow::split ? 16 : 1;  // panels at a time
    int64_t groups = part.weight->cols / kGroup, panel_bytes = groups * F::kBytes;
    int64_t begin = output / kPanel * panel_bytes, panels = std::min(kMost, up_to(part.end - output, kPanel) / kPanel);
    if (bytes_ahead(*part.weight, begin + panels * panel_bytes) == 0) panels = 1;
    int64_t ahead = bytes_ahead(*part.weight, begin + panels * panel_bytes);
    const std::byte* packed = part.weight->data + begin;
    float totals[kMost * kPanel];
    if constexpr (F::kLoneRow == LoneRow::split) {
      multiply_q4_0_row(part.prepared, packed, groups, panels, ahead, totals);
    } else {
      multiply_q8_0_row(part.prepared, Form::kRowBytes, packed, groups, ahead, totals);
    }
    for (const float* t = totals; t < totals + panels * kPanel; t += kPanel, output += kPanel)
      write_row(part, part.first_row, output, vld1q_f32(t), vld1q_f32(t + 4), F::kAfter);
    return output;
  }

  // Up to eight rows of Q4_0.
  static void rows_of_nibbles(const LinearPart& part, const RowPlaces& places, int64_t output) {
    const int64_t tile = part.first_row / kTileRows, begin = output / kPanel * places.groups * F::kBytes;
    const int64_t ahead = bytes_ahead(*part.weight, begin + places.groups * F::kBytes);
    float sums[2 * kTileFloats] = {};
    for (int64_t g = 0; g < places.groups; g = places.end(g)) {
      const int64_t at = places.at(tile, g), groups = places.end(g) - g;
      const std::byte *rows = part.prepared + at, *starts = part.prepared + places.starts_at(at);
      const std::byte *group = part.weight->data + begin + g * F::kBytes, *next = group + ahead;
      if (part.rows > kTileRows) {
        multiply_q4_0_eight(rows, starts, group, 0, groups, next, sums);
        multiply_q4_0_eight(rows, starts, group, 1, groups, nullptr, sums);
      } else if (part.rows > 2) {
        multiply_q4_0_few<2>(rows, starts, group, groups, next, sums);
      } else {
        multiply_q4_0_few<1>(rows, starts, group, groups, next, sums);
      }
    }
    for (int64_t row = 0; row < part.rows; row += kTileRows) {
      TileSums total;
#pragma GCC unroll 8
      for (int i = 0; i < 2 * kPairs; ++i)  // sums of high nibbles are 16-fold
        total[i] = vmulq_n_f32(vld1q_f32(sums + row * kPanel + 4 * i), i % kPairs < 2 ? 1.0f : F::kAfter);
      write_sums(part, total, part.first_row + row, std::min(kTileRows, part.rows - row), output, 1.0f);
    }
  }

  // Up to four rows straight from the packed weights.
  template <int RowPairs>
  static void few_rows(const LinearPart& part, const RowPlaces& places, int64_t row, int64_t count, int64_t output) {
    const int64_t begin = output / kPanel * places.groups * F::kBytes;
    const int64_t ahead = bytes_ahead(*part.weight, begin + places.groups * F::kBytes);
    const std::byte* group = part.weight->data + begin;
    Sum total[RowPairs][kPairs];
    const std::byte* rows = nullptr;
    for (int64_t g = 0, next = 0; g < places.groups;) {
      if (g == next) rows = part.prepared + places.at(row / kTileRows, g), next = places.end(g);
      const int64_t end = F::kShared ? std::min(places.groups, g + kSharedGroups) : next;
      for (; g < end; ++g, rows += Form::kRowBytes, group += F::kBytes) {
        look_ahead<F::kBytes>(group + ahead);
        few_rows_group(rows, group, total);
      }
      if constexpr (F::kShared) {
#pragma GCC unroll 8
        for (int i = 0; i < RowPairs * kPairs; ++i)
          total[i / kPairs][i % kPairs].end_run(load_f32(rows - Form::kRowBytes + i / kPairs * 16));
      }
    }
    float sums[kTileFloats];
#pragma GCC unroll 8
    for (int i = 0; i < RowPairs * kPairs; ++i) vst1q_f32(sums + 4 * i, total[i / kPairs][i % kPairs].total);
    write_tile(part, sums, row, count, output, F::kAfter);
  }

  template <int RowPairs>
  [[gnu::always_inline]] static void few_rows_group(const std::byte* rows, const std::byte* group,
                                                    Sum (&total)[RowPairs][kPairs]) {
    float32x4_t factor[2], minimum[2];
    F::factors(group, factor);
    if constexpr (F::kMins) F::minimums(group, minimum);
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      PairSum t[RowPairs];
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        int8x16_t w[2];
        F::values(group, p, j, w);
#pragma GCC unroll 2
        for (int m = 0; m < RowPairs; ++m) {
          t[m].add(load_s8(rows + 32 + (4 * j + m) * 16), w[0]);
          t[m].add(load_s8(rows + 32 + (4 * j + 2 + m) * 16), w[1]);
        }
      }
#pragma GCC unroll 2
      for (int m = 0; m < RowPairs; ++m) {
        Sum& sum = total[m][p];
        sum.add(t[m].sums(), twice(factor[p / 2], p % 2), load_f32(rows + m * 16));
        if constexpr (F::kMins)
          sum.total = vfmaq_f32(sum.total, twice(minimum[p / 2], p % 2), load_f32(rows + 160 + m * 16));
      }
    }
  }

  // Many rows: a segment of a panel is widened once and meets every tile of rows.
  static void many_rows(const LinearPart& part, const RowPlaces& places, int64_t output) {
    const int64_t first = part.first_row / kTileRows, tiles = up_to(part.rows, kTileRows) / kTileRows;
    float* sums = reinterpret_cast<float*>(part.scratch + kWideBytes);  // [tiles, kTileFloats]
    const std::byte* packed = part.weight->data + output / kPanel * places.groups * F::kBytes;
    const bool last = output + kPanel >= part.weight->rows;
    for (int64_t g = 0; g < places.groups; g = places.end(g)) {
      const int64_t count = places.end(g) - g;
      WidePanel panel = widen(packed + g * F::kBytes, count, part.scratch);
      // Meanwhile the memory brings the same segment of the panel after this one, a part with each of the first tiles.
      const std::byte* next = packed + (places.groups + g) * F::kBytes;
      const std::byte* rows = part.prepared + places.at(first, g);
      for (int64_t t = 0; t < tiles; ++t, rows += count * Form::kRowBytes) {
        const bool useful = !last && t * kTileAhead < F::kBytes;
        int64_t row = t * kTileRows, existing = std::min(kTileRows, part.rows - row);
        if constexpr (F::kShared) {  // its sums are in memory anyway
          float* totals = sums + t * kTileFloats;
          if (g == 0) std::fill_n(totals, kTileFloats, 0.0f);
          multiply_shared_tile(rows, panel.values, panel.value_bytes, panel.factors, count,
                               useful ? next + t * count * kTileAhead : nullptr, totals);
          if (g + count == places.groups) write_stored(part, totals, part.first_row + row, existing, output, F::kAfter);
          continue;
        }
        TileSums total;
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kPairs; ++i)
          total[i] = g == 0 ? vdupq_n_f32(0) : vld1q_f32(sums + t * kTileFloats + 4 * i);
        Form::multiply(rows, panel, count, useful ? next + t * count * kTileAhead : nullptr, total);
        if (g + count == places.groups) {
          write_sums(part, total, part.first_row + row, existing, output, F::kAfter);
          continue;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kPairs; ++i) vst1q_f32(sums + t * kTileFloats + 4 * i, total[i]);
      }
    }
  }

  static void product(const LinearPart& part) {
    constexpr int kStreams = 4;
    const RowPlaces places(part.prepared_rows, part.weight->cols, Form::kRowBytes, F::kStarts);
    int64_t output = part.begin;
    if constexpr (F::kLoneRow != LoneRow::plain) {
      if (part.prepared_rows == 1) {
        while (output < part.end) output = lone_row(part, output);
      }
    }
    if (part.rows == 1) {
      for (; output + (kStreams - 1) * kPanel < part.end; output += kStreams * kPanel)
        one_row<kStreams>(part, places, part.first_row, output);
      for (; output < part.end; output += kPanel) one_row<1>(part, places, part.first_row, output);
    }
    if constexpr (F::kLoneRow == LoneRow::split) {
      for (; part.rows <= 2 * kTileRows && output < part.end; output += kPanel) rows_of_nibbles(part, places, output);
    }
    for (; output < part.end; output += kPanel) {
      if (part.rows <= 2) {
        few_rows<1>(part, places, part.first_row, part.rows, output);
      } else if (part.rows <= kDirectRows) {
        few_rows<2>(part, places, part.first_row, part.rows, output);
      } else {
        many_rows(part, places, output);
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
    kernel.prepared_bytes = Form::prepared_bytes;
    kernel.prepare = Form::prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

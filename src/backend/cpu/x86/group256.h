// Products of formats with a factor per 256 weights and small integer scales within (Q4_K, Q6_K, ...). Rows are
// quantised to int8 in the same groups of 256. Per group and output, subgroup after subgroup: part += float(sum of
// products) * scale; then sum += part * (the weights' factor * the row's). What is to be taken off, a minimum or the
// codes' offset, is an integer sum over subgroups of minimum (or scale) * (sum of the row's integers), and sum -=
// float(that) * (its factor * the row's).
//
// Prepared, per tile of rows and group: integers [8 spans][room][32], factors [room], sums over 16 as int16 [room][16],
// sums over 32 as int16 [room][8]. Packed, per panel and group: factors [16] (float16), factors of minimums [16],
// scales as bytes [pairs of subgroups][16][2], minimums likewise, codes [8 spans]. A wide panel, per group: factors
// [16], factors of minimums [16], scales [subgroups][16] (float32), minimums as int16 [pairs of subgroups][16][2],
// codes a byte each [8 spans][8 steps][64].
#pragma once

#include "backend/cpu/x86/int8_tile.h"
#ifdef __AMX_INT8__
#include "backend/cpu/x86/amx/tile.h"
#endif

namespace millrace::cpu {
namespace {

constexpr int64_t kSuper = 256;
constexpr int kSpans = 8;                            // of 32 inputs
constexpr int64_t kSuperRow = kSuper + 4 + 32 + 16;  // bytes of a row's group

inline int64_t super_prepared_bytes(int64_t rows, int64_t cols) {
  return up_to(rows, kTileRows) * (cols / kSuper) * kSuperRow;
}

struct SuperRows {
  SuperRows(const std::byte* tile, int64_t rows_room, int64_t group)
      : at(tile + group * rows_room * kSuperRow), room(rows_room) {}
  const int8_t* integers(int64_t row, int span) const {
    return reinterpret_cast<const int8_t*>(at + (span * room + row) * 32);
  }
  const float* factors() const { return reinterpret_cast<const float*>(at + room * kSuper); }
  const int16_t* sums16(int64_t row) const { return reinterpret_cast<const int16_t*>(factors() + room) + row * 16; }
  const int16_t* sums32(int64_t row) const { return sums16(room) + row * 8; }
  void next() { at += room * kSuperRow; }
  const std::byte* at;
  int64_t room;
};

inline void super_prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  int64_t groups = in.cols / kSuper, room = tile_room(in.rows - begin);
  out += begin * groups * kSuperRow;
  for (int64_t g = 0; g < groups; ++g, out += room * kSuperRow) {
    SuperRows to(out, room, 0);
    for (int64_t r = 0; r < room; ++r) {
      int8_t q[kSuper] = {};
      float factor = 0;
      if (begin + r < end) factor = quantise(in.row(begin + r) + g * kSuper, kSuper, q);
      const_cast<float*>(to.factors())[r] = factor;
      int16_t *by16 = const_cast<int16_t*>(to.sums16(r)), *by32 = const_cast<int16_t*>(to.sums32(r));
      for (int i = 0; i < 16; ++i) by16[i] = static_cast<int16_t>(sum_of(q + 16 * i, 16));
      for (int i = 0; i < kSpans; ++i) {
        by32[i] = static_cast<int16_t>(by16[2 * i] + by16[2 * i + 1]);
        std::memcpy(const_cast<int8_t*>(to.integers(r, i)), q + 32 * i, 32);
      }
    }
  }
}

// What every format's panel has in common. `halves`: scales for a span of 32; `mins`: minimums of their own, else what
// is taken off is `offset` times the scale.
template <int halves, bool mins, bool signed_scales, int offset>
struct SuperGroup {
  static constexpr int kHalves = halves, kOffset = offset, kSubgroups = kSpans * halves;
  static constexpr bool kMins = mins, kSignedScales = signed_scales;
  static constexpr float kUnit = 1;  // what a scale of one stands for; a power of two
  static constexpr int64_t kScales = mins ? 64 : 32, kMinimums = kScales + kSubgroups * kPanel;
  static constexpr int64_t kCodes = (kMinimums + (mins ? kSubgroups * kPanel : 0) + 63) / 64 * 64;

  static int64_t pair_index(int n, int subgroup) { return subgroup / 2 * 32 + n * 2 + subgroup % 2; }
  static uint8_t& scale_at(std::byte* group, int n, int s) { return byte_at(group + kScales, pair_index(n, s)); }
  static uint8_t scale_at(const std::byte* group, int n, int s) { return byte_at(group + kScales, pair_index(n, s)); }
  static uint8_t& minimum_at(std::byte* group, int n, int s) { return byte_at(group + kMinimums, pair_index(n, s)); }
  static uint8_t minimum_at(const std::byte* group, int n, int s) {
    return byte_at(group + kMinimums, pair_index(n, s));
  }
};

template <class F>
struct PackedSuper {
  explicit PackedSuper(const std::byte* group) : at(group) {}
  PackedSuper(const Weight& weight, int64_t output, int64_t group)
      : at(weight.data + (output / kPanel * (weight.cols / kSuper) + group) * F::kBytes) {}
  Floats factors() const { return load_f16(at) * splat(F::kUnit); }
  Floats taken_factors() const { return F::kMins ? load_f16(at + 32) : factors() * splat(F::kOffset); }
  Floats scales(int subgroup) const {
    const std::byte* pair = at + F::kScales + subgroup / 2 * 32;
    if constexpr (F::kSignedScales) {
      Ints both = load_s16(pair);
      return to_floats(subgroup % 2 == 0 ? shift_right(shift_left(both, 24), 24) : shift_right(both, 8));
    }
    Ints both = load_u16(pair);
    return to_floats(subgroup % 2 == 0 ? low_byte(both) : shift_right(both, 8));
  }
  Ints taken(int pair) const {
    return pairs_of_bytes(at + (F::kMins ? F::kMinimums : F::kScales) + pair * 32, !F::kMins && F::kSignedScales);
  }
  Bytes values(int span, int step) const { return F::values(at, span, step); }
  void next() { at += F::kBytes; }
  const std::byte* at;
};

template <class F>
struct WideSuper {
  static constexpr int64_t kScales = 128, kTaken = kScales + F::kSubgroups * 64,
                           kCodes = kTaken + F::kSubgroups / 2 * 64, kBytes = kCodes + kSpans * kSpanCodes;
  Floats factors() const { return load(reinterpret_cast<const float*>(at)); }
  Floats taken_factors() const { return load(reinterpret_cast<const float*>(at + 64)); }
  Floats scales(int subgroup) const { return load(reinterpret_cast<const float*>(at + kScales + subgroup * 64)); }
  Ints taken(int pair) const {
    Bytes bytes = load_bytes(at + kTaken + pair * 64);
#ifdef __AVX512F__
    return {bytes.v};
#else
    return {bytes.a, bytes.b};
#endif
  }
  Bytes values(int span, int step) const { return load_bytes(at + kCodes + span * kSpanCodes + step * kStepBytes); }
  void next() { at += kBytes; }
  const std::byte* at;
};

// A format F has, beside what SuperGroup has: kBytes of a panel's group, kFileBytes of a group in the file, kWide;
// values(): the codes of a span's step; pack() and unpack() of one output's group.
template <class F>
struct Group256Linear {
  static constexpr int kSubSteps = kSteps / F::kHalves;
  static constexpr bool kTakes = F::kMins || (F::kOffset != 0 && !(F::kWide && kSignedDots));
  using Wide = WideSuper<F>;
  static constexpr int64_t kSegment =
      2;  // groups of a wide panel at a time: some 10 KiB, which stay in the first cache

  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return up_to(rows, kPanel) / kPanel * (cols / kSuper) * F::kBytes;
  }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    int64_t groups = cols / kSuper, row_bytes = groups * F::kFileBytes;
    for (int64_t panel = begin; panel < end; panel += kPanel) {
      std::byte* to = out + panel / kPanel * groups * F::kBytes;
      std::memset(to, 0, static_cast<size_t>(groups * F::kBytes));
      for (int64_t g = 0; g < groups; ++g, to += F::kBytes) {
        for (int n = 0; n < kPanel && panel + n < rows; ++n)
          F::pack(in + (panel + n) * row_bytes + g * F::kFileBytes, n, to);
      }
    }
  }

  static void unpack_row(const Weight& weight, int64_t row, float* out) {
    PackedSuper<F> panel(weight, row / kPanel * kPanel, 0);
    for (int64_t g = 0; g < weight.cols / kSuper; ++g, panel.next(), out += kSuper) {
      std::byte group[F::kFileBytes] = {};
      F::unpack(panel.at, static_cast<int>(row % kPanel), group);
      format(weight.type).to_float(group, out, kSuper);
    }
  }

  // One row's group is done: its part goes into the total.
  template <class Panel>
  static Floats finish(const SuperRows& rows, int64_t row, const Panel& panel, Floats part, Floats total) {
    Floats of_row = splat(rows.factors()[row]);
    total = fma(part, panel.factors() * of_row, total);
    if constexpr (kTakes) {
      const int16_t* sums = F::kHalves == 2 ? rows.sums16(row) : rows.sums32(row);
      Ints taken = splat_int(0);
#pragma GCC unroll 8
      for (int pair = 0; pair < F::kSubgroups / 2; ++pair) taken = dot_pairs(taken, panel.taken(pair), sums + 2 * pair);
      total = fnma(to_floats(taken), panel.taken_factors() * of_row, total);
    }
    return total;
  }

  // total += the group at hand of rows from first_row of the tile x panel.
  template <int Rows, class Panel>
  static void multiply_group(const SuperRows& rows, int64_t first_row, const Panel& panel, Floats (&total)[Rows]) {
    Floats part[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) part[r] = splat(0);
    for (int span = 0; span < kSpans; ++span) {
#pragma GCC unroll 2
      for (int half = 0; half < F::kHalves; ++half) {
        Ints sum[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[r] = splat_int(0);
#pragma GCC unroll 8
        for (int s = half * kSubSteps; s < (half + 1) * kSubSteps; ++s) {
          Bytes w = panel.values(span, s);
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) sum[r] = dot<F::kWide>(sum[r], w, rows.integers(first_row + r, span) + 4 * s);
        }
        Floats scale = panel.scales(F::kHalves == 2 ? 2 * span + half : span);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) part[r] = fma(to_floats(sum[r]), scale, part[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) total[r] = finish(rows, first_row + r, panel, part[r], total[r]);
  }

  // `Rows` rows straight from the packed weights, several panels as streams of their own.
  template <int Rows, int Panels>
  static void some_panels(const LinearPart& part, const std::byte* tile, int64_t room, int64_t row, int64_t output) {
    int64_t groups = part.weight->cols / kSuper;
    Floats total[Panels][Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Panels * Rows; ++i) total[i / Rows][i % Rows] = splat(0);
    PackedSuper<F> first(*part.weight, output, 0);
    SuperRows rows(tile, room, 0);
    for (int64_t g = 0; g < groups; ++g, rows.next(), first.next()) {
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        PackedSuper<F> panel = first;
        panel.at += p * groups * F::kBytes;
        multiply_group<Rows>(rows, 0, panel, total[p]);
      }
    }
    for (int64_t r = 0; r < least(Rows, part.first_row + part.rows - row); ++r) {
      for (int p = 0; p < Panels; ++p) write_row(part, row + r, output + p * kPanel, total[p][r]);
    }
  }

  template <int Rows, int Panels>
  static void few_rows(const LinearPart& part, const std::byte* tile, int64_t room, int64_t row) {
    int64_t output = part.begin;
    for (; output + (Panels - 1) * kPanel < part.end; output += Panels * kPanel)
      some_panels<Rows, Panels>(part, tile, room, row, output);
    for (; output < part.end; output += kPanel) some_panels<Rows, 1>(part, tile, room, row, output);
  }

  static void widen(PackedSuper<F> panel, int64_t groups, std::byte* out) {
    for (int64_t g = 0; g < groups; ++g, panel.next(), out += Wide::kBytes) {
      store(reinterpret_cast<float*>(out), panel.factors());
      store(reinterpret_cast<float*>(out + 64), panel.taken_factors());
      for (int s = 0; s < F::kSubgroups; ++s)
        store(reinterpret_cast<float*>(out + Wide::kScales + s * 64), panel.scales(s));
      for (int pair = 0; pair < F::kSubgroups / 2; ++pair)
        store(reinterpret_cast<float*>(out + Wide::kTaken + pair * 64), as_floats(panel.taken(pair)));
      for (int span = 0; span < kSpans; ++span) {
#pragma GCC unroll 8
        for (int s = 0; s < kSteps; ++s)
          store_bytes(out + Wide::kCodes + span * kSpanCodes + s * kStepBytes, panel.values(span, s));
      }
    }
  }

  static void multiply_tile(const std::byte* tile, int64_t room, int64_t group, const std::byte* wide, int64_t groups,
                            float* sums) {
    constexpr int kRows = kMostRows;
    for (int64_t row = 0; row < room; row += kRows) {
      Floats total[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) total[r] = load(sums + (row + r) * kPanel);
      SuperRows rows(tile, room, group);
      Wide panel{wide};
      for (int64_t g = 0; g < groups; ++g, rows.next(), panel.next()) multiply_group<kRows>(rows, row, panel, total);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) store(sums + (row + r) * kPanel, total[r]);
    }
  }

#ifdef __AMX_INT8__
  // One subgroup of a tile of sixteen rows into out [16][16].
  template <int sum, int a, int b>
  static void subgroup_sums(const std::byte* rows, const std::byte* codes, int subgroup, int32_t* out) {
    constexpr int64_t kInputs = kSubSteps * 4;
    tile_load<a>(rows + subgroup / F::kHalves * kTileRows * 32 + subgroup % F::kHalves * kInputs, 32);
    tile_load<b>(codes + subgroup * kSubSteps * kStepBytes, kStepBytes);
    tile_zero<sum>();
    tile_dot_codes<sum, a, b>();
    tile_store<sum>(out, 64);
  }
  static void four_sums(const std::byte* rows, const std::byte* codes, int subgroup, int32_t* out) {
    subgroup_sums<0, 4, 5>(rows, codes, subgroup, out);
    subgroup_sums<1, 6, 7>(rows, codes, subgroup + 1, out + 256);
    subgroup_sums<2, 4, 5>(rows, codes, subgroup + 2, out + 512);
    subgroup_sums<3, 6, 7>(rows, codes, subgroup + 3, out + 768);
  }

  // The same sums by tiles, for several panels' segments that follow one another: integer sums of four subgroups are
  // under way while those of the four before are scaled. sums: [panels][16 rows][16], panels at a distance.
  static void multiply_amx(const std::byte* tile, int64_t group, const std::byte* wide, int64_t panels, int64_t groups,
                           float* sums, int64_t sums_next) {
    alignas(64) int32_t ring[2][4 * 256];
    constexpr int kFours = F::kSubgroups / 4;
    const SuperRows begin(tile, kTileRows, group);
    four_sums(begin.at, wide + Wide::kCodes, 0, ring[0]);
    for (int64_t p = 0; p < panels; ++p, wide += kSegment * Wide::kBytes, sums += sums_next) {
      SuperRows rows = begin;
      Wide panel{wide};
      for (int64_t g = 0; g < groups; ++g, rows.next(), panel.next()) {
        Floats part[kTileRows];
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) part[r] = splat(0);
        for (int four = 0; four < kFours; ++four) {
          if (four + 1 < kFours) {
            four_sums(rows.at, panel.at + Wide::kCodes, 4 * (four + 1), ring[(four + 1) % 2]);
          } else if (g + 1 < groups) {
            four_sums(rows.at + kTileRows * kSuperRow, panel.at + Wide::kBytes + Wide::kCodes, 0, ring[0]);
          } else if (p + 1 < panels) {
            four_sums(begin.at, wide + kSegment * Wide::kBytes + Wide::kCodes, 0, ring[0]);
          }
          const int32_t* from = ring[four % 2];
          for (int i = 0; i < 4; ++i, from += 256) {
            Floats scale = panel.scales(4 * four + i);
#pragma GCC unroll 16
            for (int r = 0; r < kTileRows; ++r) {
              Ints whole{_mm512_load_si512(from + r * kPanel)};
              part[r] = fma(to_floats(whole), scale, part[r]);
            }
          }
        }
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r)
          store(sums + r * kPanel, finish(rows, r, panel, part[r], load(sums + r * kPanel)));
      }
    }
  }
  static_assert(F::kSubgroups / 4 % 2 == 0);  // so that a group starts where the ring does
#endif

  // Many rows: a segment of some panels is widened once and meets every tile of rows.
  static void many_rows(const LinearPart& part, int64_t output) {
    int64_t groups = part.weight->cols / kSuper, tiles = up_to(part.rows, kTileRows) / kTileRows;
    int64_t panels = least(kManyPanels, (part.end - output + kPanel - 1) / kPanel);
    constexpr int64_t kWideBytes = kSegment * Wide::kBytes, kSumsNext = kTileRows * kPanel;
    std::byte* wide = part.scratch;                                                   // [panels][kSegment]
    float* sums = reinterpret_cast<float*>(part.scratch + kManyPanels * kWideBytes);  // [tiles][kManyPanels][16][16]
    std::memset(sums, 0, static_cast<size_t>(tiles * kManyPanels * kSumsNext) * 4);
    for (int64_t g = 0; g < groups; g += kSegment) {
      int64_t count = least(kSegment, groups - g);
      for (int64_t p = 0; p < panels; ++p)
        widen(PackedSuper<F>(*part.weight, output + p * kPanel, g), count, wide + p * kWideBytes);
      for (int64_t t = 0; t < tiles; ++t) {
        int64_t row = part.first_row + t * kTileRows;
        const std::byte* tile = part.prepared + row * groups * kSuperRow;
        float* to = sums + t * kManyPanels * kSumsNext;
#ifdef __AMX_INT8__
        multiply_amx(tile, g, wide, panels, count, to, kSumsNext);
#else
        int64_t room = tile_room(part.prepared_rows - row);
        for (int64_t p = 0; p < panels; ++p)
          multiply_tile(tile, room, g, wide + p * kWideBytes, count, to + p * kSumsNext);
#endif
      }
    }
    write_tiles(part, output, panels, sums);
  }

  // The last tile of all rows may have less room than the others; it goes apart if it has room for few.
  static void product(const LinearPart& part) {
    LinearPart whole = part;
    int64_t last = part.first_row + (part.rows - 1) / kTileRows * kTileRows,
            room = tile_room(part.prepared_rows - last);
    bool few = room <= kFew;
    if (few) whole.rows = last - part.first_row;
    if (whole.rows > 0) {
#ifdef __AMX_INT8__
      TileShapes shapes;
      for (int tile : {0, 1, 2, 3}) shapes.set(tile, kTileRows, 64);
      for (int tile : {4, 6}) shapes.set(tile, kTileRows, kSubSteps * 4);
      for (int tile : {5, 7}) shapes.set(tile, kSubSteps, 64);
      Tiles tiles(shapes);
#endif
      for (int64_t output = part.begin; output < part.end; output += kManyPanels * kPanel) many_rows(whole, output);
    }
    if (!few) return;
    const std::byte* tile = part.prepared + last * (part.weight->cols / kSuper) * kSuperRow;
    if (room == 1) return few_rows<1, 2>(part, tile, room, last);
    if (room == 2) return few_rows<2, 2>(part, tile, room, last);
    if (room == 4) return few_rows<4, 1>(part, tile, room, last);
    if constexpr (kFew == 8) few_rows<8, 1>(part, tile, room, last);
  }
  static constexpr int64_t kFew = kMostRows;  // rows that meet the packed weights directly

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kPanel;
    kernel.rows_tile = kTileRows;
    kernel.part_rows = kPartRows;
    kernel.packed_bytes = packed_bytes;
    kernel.pack = pack;
    kernel.unpack_row = unpack_row;
    kernel.prepared_bytes = super_prepared_bytes;
    kernel.prepare = super_prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

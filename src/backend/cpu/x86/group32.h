// Products of formats with a factor per 32 weights (Q8_0, Q4_0, ...). Rows are quantised to int8 in the same groups
// of 32. Per group and output: sum += (integer sum) * (the weights' factor * the row's factor), and where the format
// has a minimum, sum += minimum * (the row's factor * the sum of its integers).
//
// Prepared, per tile of rows and group: integers [room][32], factors [room], then starts [room] (int32: what takes the
// codes' offset off the integer sum) or, with minimums, sums [room] (float32). A packed panel: factors of all groups,
// then codes of all groups. A wide panel, per group: factors [16], minimums [16], one byte a code [8 steps][64].
#pragma once

#include "backend/cpu/x86/int8_tile.h"
#ifdef __AMX_INT8__
#include "backend/cpu/x86/amx/tile.h"
#endif

namespace millrace::cpu {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kRowGroup = kGroup + 8;  // bytes of a row's group
constexpr int64_t kWideGroup = 128 + kSpanCodes;
constexpr int64_t kWideSegment = 16;  // groups of a wide panel at a time: 10 KiB, which stay in the first cache

template <int offset, bool mins>
struct Group32Rows {
  static int64_t prepared_bytes(int64_t rows, int64_t cols) {
    return up_to(rows, kTileRows) * cols / kGroup * kRowGroup;
  }

  static void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    int64_t groups = in.cols / kGroup, room = tile_room(in.rows - begin);
    out += begin * groups * kRowGroup;
    for (int64_t g = 0; g < groups; ++g, out += room * kRowGroup) {
      float* factors = reinterpret_cast<float*>(out + room * kGroup);
      for (int64_t r = 0; r < room; ++r) {
        int8_t* q = reinterpret_cast<int8_t*>(out + r * kGroup);
        if (begin + r >= end) {
          std::memset(q, 0, kGroup);
          factors[r] = factors[room + r] = 0;
          continue;
        }
        factors[r] = quantise(in.row(begin + r) + g * kGroup, kGroup, q);
        int32_t sum = sum_of(q, kGroup), start = -offset * sum;
        float scaled = factors[r] * static_cast<float>(sum);
        std::memcpy(factors + room + r, mins ? static_cast<const void*>(&scaled) : &start, 4);
      }
    }
  }
};

// A tile's prepared rows, group after group.
struct RowCursor {
  RowCursor(const std::byte* tile, int64_t rows_room, int64_t group)
      : at(tile + group * rows_room * kRowGroup), room(rows_room) {}
  const int8_t* integers(int64_t row) const { return reinterpret_cast<const int8_t*>(at + row * kGroup); }
  const float* factors() const { return reinterpret_cast<const float*>(at + room * kGroup); }
  const float* sums() const { return factors() + room; }
  const int32_t* starts() const { return reinterpret_cast<const int32_t*>(sums()); }
  void next() { at += room * kRowGroup; }
  const std::byte* at;
  int64_t room;
};

template <class F>
struct PackedPanel {
  PackedPanel(const Weight& weight, int64_t output, int64_t group) {
    int64_t groups = weight.cols / kGroup;
    const std::byte* panel = weight.data + output / kPanel * bytes(groups);
    scales = panel + group * F::kFactorBytes;
    codes = panel + up_to(groups * F::kFactorBytes, 64) + group * F::kCodeBytes;
  }
  static int64_t bytes(int64_t groups) { return up_to(groups * F::kFactorBytes, 64) + groups * F::kCodeBytes; }
  Floats factors() const { return F::factors(scales); }
  Floats minimums() const { return F::minimums(scales); }
  Bytes values(int step) const { return F::values(codes, step); }
  void next() { scales += F::kFactorBytes, codes += F::kCodeBytes; }
  const std::byte *scales, *codes;
};

struct WidePanel {
  Floats factors() const { return load(reinterpret_cast<const float*>(at)); }
  Floats minimums() const { return load(reinterpret_cast<const float*>(at + 64)); }
  Bytes values(int step) const { return load_bytes(at + 128 + step * kStepBytes); }
  void next() { at += kWideGroup; }
  const std::byte* at;
};

// A format F has: kFactorBytes and kCodeBytes of a panel's group, kFileBytes of a group in the file, kMins, kOffset,
// kWide (codes of more than seven bits); factors() and minimums(); values(): the codes of a step; pack() and unpack()
// of one output's group.
template <class F>
struct Group32Linear {
  static constexpr int kOffset = F::kWide && kSignedDots ? 0 : F::kOffset;
  using Rows = Group32Rows<kOffset, F::kMins>;

  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return up_to(rows, kPanel) / kPanel * PackedPanel<F>::bytes(cols / kGroup);
  }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    int64_t groups = cols / kGroup, row_bytes = groups * F::kFileBytes;
    for (int64_t panel = begin; panel < end; panel += kPanel) {
      std::byte* scales = out + panel / kPanel * PackedPanel<F>::bytes(groups);
      std::byte* codes = scales + up_to(groups * F::kFactorBytes, 64);
      std::memset(scales, 0, static_cast<size_t>(PackedPanel<F>::bytes(groups)));
      for (int64_t g = 0; g < groups; ++g, scales += F::kFactorBytes, codes += F::kCodeBytes) {
        for (int n = 0; n < kPanel && panel + n < rows; ++n)
          F::pack(in + (panel + n) * row_bytes + g * F::kFileBytes, n, scales, codes);
      }
    }
  }

  static void unpack_row(const Weight& weight, int64_t row, float* out) {
    PackedPanel<F> panel(weight, row / kPanel * kPanel, 0);
    for (int64_t g = 0; g < weight.cols / kGroup; ++g, panel.next(), out += kGroup) {
      std::byte group[F::kFileBytes] = {};
      F::unpack(panel.scales, panel.codes, static_cast<int>(row % kPanel), group);
      format(weight.type).to_float(group, out, kGroup);
    }
  }

  // total [Rows][Panels] += rows from first_row of the tile x panels, over `groups`.
  template <int Rows, int Panels, class Panel>
  static void multiply(RowCursor rows, int64_t first_row, Panel (&panels)[Panels], int64_t groups,
                       Floats (&total)[Rows][Panels]) {
    for (int64_t g = 0; g < groups; ++g, rows.next()) {
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        Ints sum[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[r] = splat_int(kOffset != 0 ? rows.starts()[first_row + r] : 0);
#pragma GCC unroll 8
        for (int s = 0; s < kSteps; ++s) {
          Bytes w = panels[p].values(s);
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) sum[r] = dot<F::kWide>(sum[r], w, rows.integers(first_row + r) + 4 * s);
        }
        Floats factor = panels[p].factors();
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          total[r][p] = fma(to_floats(sum[r]), factor * splat(rows.factors()[first_row + r]), total[r][p]);
          if constexpr (F::kMins)
            total[r][p] = fma(panels[p].minimums(), splat(rows.sums()[first_row + r]), total[r][p]);
        }
        panels[p].next();
      }
    }
  }

  // `Rows` rows straight from the packed weights, `Panels` panels at once.
  template <int Rows, int Panels>
  static void few_rows(const LinearPart& part, const std::byte* tile, int64_t room, int64_t row, int64_t output) {
    Floats total[Rows][Panels];
#pragma GCC unroll 8
    for (int i = 0; i < Rows * Panels; ++i) total[i / Panels][i % Panels] = splat(0);
    if constexpr (Panels == 2) {
      PackedPanel<F> panels[2] = {{*part.weight, output, 0}, {*part.weight, output + kPanel, 0}};
      multiply<Rows, 2>(RowCursor(tile, room, 0), 0, panels, part.weight->cols / kGroup, total);
    } else {
      PackedPanel<F> panels[1] = {{*part.weight, output, 0}};
      multiply<Rows, 1>(RowCursor(tile, room, 0), 0, panels, part.weight->cols / kGroup, total);
    }
    for (int64_t r = 0; r < least(Rows, part.first_row + part.rows - row); ++r) {
      for (int p = 0; p < Panels; ++p) write_row(part, row + r, output + p * kPanel, total[r][p]);
    }
  }

  static void widen(PackedPanel<F> panel, int64_t groups, int offset, std::byte* out) {
    for (int64_t g = 0; g < groups; ++g, panel.next(), out += kWideGroup) {
      store(reinterpret_cast<float*>(out), panel.factors());
      if constexpr (F::kMins) store(reinterpret_cast<float*>(out + 64), panel.minimums());
#pragma GCC unroll 8
      for (int s = 0; s < kSteps; ++s) store_bytes(out + 128 + s * kStepBytes, panel.values(s) - splat_byte(offset));
    }
  }

  // sums [rows of the tile][16] += tile x wide panel.
  static void multiply_tile(const std::byte* tile, int64_t room, int64_t group, const std::byte* wide, int64_t groups,
                            float* sums) {
    constexpr int kRows = kMostRows;
    for (int64_t row = 0; row < room; row += kRows) {
      Floats total[kRows][1];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) total[r][0] = load(sums + (row + r) * kPanel);
      WidePanel panels[1] = {{wide}};
      multiply<kRows, 1>(RowCursor(tile, room, group), row, panels, groups, total);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) store(sums + (row + r) * kPanel, total[r][0]);
    }
  }

#ifdef __AMX_INT8__
  // One group of a tile of sixteen rows into out [16][16].
  template <int sum, int a, int b>
  static void group_sums(const std::byte* integers, const std::byte* codes, int32_t* out) {
    tile_load<a>(integers, kGroup);
    tile_load<b>(codes, kStepBytes);
    tile_zero<sum>();
    tile_dot_signed<sum, a, b>();
    tile_store<sum>(out, 64);
  }
  static void four_sums(const std::byte* rows, const std::byte* codes, int64_t codes_stride, int64_t groups,
                        int32_t* out) {
    constexpr int64_t kRowsStride = kTileRows * kRowGroup;
    group_sums<0, 4, 5>(rows, codes, out);
    if (groups > 1) group_sums<1, 6, 7>(rows + kRowsStride, codes + codes_stride, out + 256);
    if (groups > 2) group_sums<2, 4, 5>(rows + 2 * kRowsStride, codes + 2 * codes_stride, out + 512);
    if (groups > 3) group_sums<3, 6, 7>(rows + 3 * kRowsStride, codes + 3 * codes_stride, out + 768);
  }

  // The same sums by tiles, for several panels' segments that follow one another: integer sums of four groups are under
  // way while those of the four before are scaled. sums: [panels][16 rows][16], panels at a distance.
  static void multiply_amx(const std::byte* tile, int64_t group, const std::byte* wide, int64_t panels, int64_t groups,
                           float* sums, int64_t sums_next) {
    alignas(64) int32_t ring[2][4 * 256];
    constexpr int64_t kFourRows = 4 * kTileRows * kRowGroup, kFourWide = 4 * kWideGroup;
    const RowCursor begin(tile, kTileRows, group);
    int turn = 0;
    four_sums(begin.at, wide + 128, kWideGroup, least(4, groups), ring[0]);
    for (int64_t p = 0; p < panels; ++p, wide += kWideSegment * kWideGroup, sums += sums_next) {
      RowCursor rows = begin;
      Floats total[kTileRows];
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) total[r] = load(sums + r * kPanel);
      const std::byte* of_panel = wide;
      for (int64_t g = 0; g < groups; g += 4, turn ^= 1) {
        if (g + 4 < groups) {
          four_sums(rows.at + kFourRows, of_panel + kFourWide + 128, kWideGroup, least(4, groups - g - 4),
                    ring[turn ^ 1]);
        } else if (p + 1 < panels) {
          four_sums(begin.at, wide + kWideSegment * kWideGroup + 128, kWideGroup, least(4, groups), ring[turn ^ 1]);
        }
        const int32_t* from = ring[turn];
        for (int64_t i = 0; i < least(4, groups - g); ++i, rows.next(), from += 256, of_panel += kWideGroup) {
          Floats factor = load(reinterpret_cast<const float*>(of_panel));
#pragma GCC unroll 16
          for (int r = 0; r < kTileRows; ++r) {
            Ints whole{_mm512_load_si512(from + r * kPanel)};
            total[r] = fma(to_floats(whole), factor * splat(rows.factors()[r]), total[r]);
            if constexpr (F::kMins)
              total[r] = fma(load(reinterpret_cast<const float*>(of_panel + 64)), splat(rows.sums()[r]), total[r]);
          }
        }
      }
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) store(sums + r * kPanel, total[r]);
    }
  }
#endif

  // Many rows: a segment of some panels is widened once and meets every tile of rows. Outputs are written in runs of
  // several panels, because rows that are a power of two apart share few places in a cache.
  static void many_rows(const LinearPart& part, int64_t output) {
    int64_t groups = part.weight->cols / kGroup, tiles = up_to(part.rows, kTileRows) / kTileRows;
    int64_t panels = least(kManyPanels, (part.end - output + kPanel - 1) / kPanel);
    constexpr int64_t kWideBytes = kWideSegment * kWideGroup, kSumsNext = kTileRows * kPanel;
    std::byte* wide = part.scratch;                                                   // [panels][kWideSegment]
    float* sums = reinterpret_cast<float*>(part.scratch + kManyPanels * kWideBytes);  // [tiles][kManyPanels][16][16]
    std::memset(sums, 0, static_cast<size_t>(tiles * kManyPanels * kSumsNext) * 4);
#ifdef __AMX_INT8__
    constexpr int kTaken = F::kOffset;
#else
    constexpr int kTaken = 0;
#endif
    for (int64_t g = 0; g < groups; g += kWideSegment) {
      int64_t count = least(kWideSegment, groups - g);
      for (int64_t p = 0; p < panels; ++p)
        widen(PackedPanel<F>(*part.weight, output + p * kPanel, g), count, kTaken, wide + p * kWideBytes);
      for (int64_t t = 0; t < tiles; ++t) {
        int64_t row = part.first_row + t * kTileRows;
        const std::byte* tile = part.prepared + row * groups * kRowGroup;
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

  template <int Rows, int Panels>
  static void all_outputs(const LinearPart& part, const std::byte* tile, int64_t room, int64_t row) {
    int64_t output = part.begin;
    for (; output + (Panels - 1) * kPanel < part.end; output += Panels * kPanel)
      few_rows<Rows, Panels>(part, tile, room, row, output);
    for (; output < part.end; output += kPanel) few_rows<Rows, 1>(part, tile, room, row, output);
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
      for (int tile : {4, 6}) shapes.set(tile, kTileRows, kGroup);
      for (int tile : {5, 7}) shapes.set(tile, kSteps, 64);
      Tiles tiles(shapes);
#endif
      for (int64_t output = part.begin; output < part.end; output += kManyPanels * kPanel) many_rows(whole, output);
    }
    if (!few) return;
    const std::byte* tile = part.prepared + last * (part.weight->cols / kGroup) * kRowGroup;
    if (room == 1) return all_outputs<1, 2>(part, tile, room, last);
    if (room == 2) return all_outputs<2, 2>(part, tile, room, last);
    if (room == 4) return all_outputs<4, 1>(part, tile, room, last);
    if constexpr (kFew == 8) all_outputs<8, 1>(part, tile, room, last);
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
    kernel.prepared_bytes = Rows::prepared_bytes;
    kernel.prepare = Rows::prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

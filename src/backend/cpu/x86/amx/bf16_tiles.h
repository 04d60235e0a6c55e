// Products by tiles of bfloat16, whatever the format of the weights. Rows are rounded to bfloat16 and multiplied 32
// inputs at a time, a step; every sum has one accumulator that takes its steps in ascending order, for one row as for
// many, so neither the number of rows nor where a sum is put down and taken up again can show.
//
// A format F has: kParts (tiles a step of a panel becomes); panel_bytes(steps): of sixteen outputs; tile(panel, steps,
// step, room): where the tiles of a step lie, made in `room` if need be; ask(panel, steps, step): asks memory for what
// a few steps later is read, once; lines_of(panel, steps, step, count): where the bytes of some steps lie; and Rows,
// the order of inputs.
//
// Prepared: per tile of sixteen rows [steps][room][32], where the last tile has room for its rows rounded up to 1, 2, 4
// or 8.
#pragma once

#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/int8_tile.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kStep = 32;            // inputs
constexpr int64_t kSegmentTiles = 64;    // of a panel: what is put down and taken up again costs more than the L2 cache
constexpr int64_t kTilesPartRows = 256;  // of 2,048 inputs 1 MB, half of the L2 cache

inline int64_t steps_of(int64_t cols) { return (cols + kStep - 1) / kStep; }

struct ByteRange {
  const std::byte* begin = nullptr;
  int64_t lines = 0;
};

// ---- rows
// ---------------------------------------------------------------------------------------------------------------

// Inputs as they come.
struct PlainOrder {
  static __m512i arrange(__m512i x) { return x; }
};

// Of eight inputs the first and the fifth, the second and the sixth ...: what codes of four inputs a lane are widened
// to, two vectors at a time (wide.cpp).
struct PairedOrder {
  static __m512i arrange(__m512i x) {
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  4,  1,  5,  2,  6,  3,  7,  8,  12, 9,  13, 10, 14, 11, 15,
                                                        16, 20, 17, 21, 18, 22, 19, 23, 24, 28, 25, 29, 26, 30, 27, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), x);
  }
};

inline int64_t tiles_prepared_bytes(int64_t rows, int64_t cols) {
  return up_to(rows, kTileRows) * steps_of(cols) * kStep * 2;
}

template <class Order>
void prepare_tiles(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  const int64_t steps = steps_of(in.cols), room = tile_room(in.rows - begin);
  out += begin * steps * kStep * 2;
  for (int64_t r = 0; r < room; ++r) {
    const bool there = begin + r < end;
    const float* from = there ? in.row(begin + r) : nullptr;
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t left = there ? in.cols - s * kStep : 0;
      Floats low = left > 0 ? load_some(from + s * kStep, least(kLanes, left)) : splat(0);
      Floats high = left > kLanes ? load_some(from + s * kStep + kLanes, least(kLanes, left - kLanes)) : splat(0);
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high.v, low.v);
      _mm512_store_si512(out + (s * room + r) * 64, Order::arrange(both));
    }
  }
}

inline const std::byte* tile_of(const LinearPart& part, int64_t row) {
  return part.prepared + row * steps_of(part.weight->cols) * kStep * 2;
}

// ---- few rows: one tile of them, four panels at once, straight through all inputs
// ------------------------------------------------------------

template <class F, int panel>
void few_step(const std::byte* packed, int64_t steps, int64_t step, std::byte* room) {
  F::ask(packed, steps, step);
  const std::byte* tile = F::tile(packed, steps, step, room);
  tile_load<5 + panel % 3>(tile, 64);
  tile_dot_bf16<panel, 4, 5 + panel % 3>();
  if constexpr (F::kParts == 2) {
    tile_load<5 + panel % 3>(tile + kTileBytes, 64);
    tile_dot_bf16<panel, 4, 5 + panel % 3>();
  }
}

template <class F>
void few_rows(const LinearPart& part, int64_t row, int64_t room) {
  const int64_t steps = steps_of(part.weight->cols), panel_bytes = F::panel_bytes(steps);
  const std::byte* rows = tile_of(part, row);
  std::byte* widened = part.scratch;  // [4 panels][2 steps in turn][2 parts]
  constexpr int64_t kTurn = 2 * kTileBytes, kRoom = 2 * kTurn;
  float* sums = reinterpret_cast<float*>(part.scratch + 4 * kRoom);  // [4][room][16]
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, 4}) shapes.set(tile, room, 64);
  for (int tile : {5, 6, 7}) shapes.set(tile, 16, 64);
  Tiles tiles(shapes);
  for (int64_t output = part.begin; output < part.end; output += 4 * kPanel) {
    const std::byte* packed = part.weight->data + output / kPanel * panel_bytes;
    const int64_t panels = least(4, (part.end - output + kPanel - 1) / kPanel);
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (int64_t s = 0; s < steps; ++s) {
      std::byte* to = widened + s % 2 * kTurn;
      tile_load<4>(rows + s * room * 64, 64);
      few_step<F, 0>(packed, steps, s, to);
      if (panels > 1) few_step<F, 1>(packed + panel_bytes, steps, s, to + kRoom);
      if (panels > 2) few_step<F, 2>(packed + 2 * panel_bytes, steps, s, to + 2 * kRoom);
      if (panels > 3) few_step<F, 3>(packed + 3 * panel_bytes, steps, s, to + 3 * kRoom);
    }
    const int64_t floats = room * kPanel;
    tile_store<0>(sums, 64), tile_store<1>(sums + floats, 64);
    tile_store<2>(sums + 2 * floats, 64), tile_store<3>(sums + 3 * floats, 64);
    for (int64_t p = 0; p < panels; ++p) {
      for (int64_t r = 0; r < least(room, part.first_row + part.rows - row); ++r)
        write_row(part, row + r, output + p * kPanel, load(sums + p * floats + r * kPanel));
    }
  }
}

// ---- many rows: two tiles of rows by two panels; a segment of the rows stays near while panels pass by
// ----------------------------------------

template <class F>
constexpr int64_t kSegment = kSegmentTiles / F::kParts;  // steps

// The tiles of two panels' segment, [panel][step][parts].
template <class F>
void find_tiles(const std::byte* packed, int64_t panel_bytes, int panels, int64_t steps, int64_t first, int64_t count,
                std::byte* room, const std::byte* (&out)[2][kSegment<F>]) {
  for (int p = 0; p < panels; ++p) {
    for (int64_t s = 0; s < count; ++s)
      out[p][s] =
          F::tile(packed + p * panel_bytes, steps, first + s, room + (p * kSegment<F> + s) * F::kParts * kTileBytes);
  }
}

// What is asked of memory while tiles are multiplied, some lines a step: weights of the segment that comes next, and
// the outputs before they are written. A core has few requests under way, so they must not come in heaps.
struct Requests {
  const std::byte* weights = nullptr;
  int64_t weight_lines = 0, each = 0;
  std::byte* outputs = nullptr;  // two rows a step, of 32 outputs
  int64_t output_stride = 0, output_rows = 0;

  void step() {
    for (int64_t i = least(each, weight_lines); i > 0; --i, --weight_lines, weights += 64)
      __builtin_prefetch(weights, 0, 2);
    for (int i = 0; i < 2 && output_rows > 0; ++i, --output_rows, outputs += output_stride) {
      asm volatile("prefetchw (%0)" : : "r"(outputs));
      asm volatile("prefetchw 64(%0)" : : "r"(outputs));
    }
  }
};

// sums [2 tiles of rows][2 panels], each [16][16], at the given distances; `second` of each may be missing.
template <class F, bool second_rows, bool second_panel>
void multiply(const std::byte* rows, int64_t tile_bytes, const std::byte* (&tiles)[2][kSegment<F>], int64_t steps,
              bool fresh, float* sums, int64_t rows_floats, Requests requests) {
  if (fresh) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(sums, 64);
    if constexpr (second_panel) tile_load<1>(sums + 256, 64);
    if constexpr (second_rows) tile_load<2>(sums + rows_floats, 64);
    if constexpr (second_rows && second_panel) tile_load<3>(sums + rows_floats + 256, 64);
  }
  for (int64_t s = 0; s < steps; ++s) {
    requests.step();
    tile_load_far<4>(rows + s * kTileBytes, 64);
    if constexpr (second_rows) tile_load_far<5>(rows + tile_bytes + s * kTileBytes, 64);
#pragma GCC unroll 2
    for (int part = 0; part < F::kParts; ++part) {
      tile_load<6>(tiles[0][s] + part * kTileBytes, 64);
      tile_dot_bf16<0, 4, 6>();
      if constexpr (second_rows) tile_dot_bf16<2, 5, 6>();
      if constexpr (second_panel) {
        tile_load<7>(tiles[1][s] + part * kTileBytes, 64);
        tile_dot_bf16<1, 4, 7>();
        if constexpr (second_rows) tile_dot_bf16<3, 5, 7>();
      }
    }
  }
  tile_store<0>(sums, 64);
  if constexpr (second_panel) tile_store<1>(sums + 256, 64);
  if constexpr (second_rows) tile_store<2>(sums + rows_floats, 64);
  if constexpr (second_rows && second_panel) tile_store<3>(sums + rows_floats + 256, 64);
}

// Two panels' segment by all tiles of rows. `next`: where the next two panels' bytes lie.
template <class F>
struct Segment {
  const LinearPart& part;
  int64_t tiles, output;  // the first panel's
  bool second, fresh, last;
  const std::byte* rows;  // of the segment, in the first tile
  int64_t tile_bytes, count;
  float* sums;  // of the first tile and panel
  ByteRange next[2];

  Requests requests(int64_t t) const {
    Requests r;
    const int64_t passes = (tiles + 1) / 2, pass = t / 2, half = passes > 1 ? passes / 2 : 1;
    const bool other = pass >= half;  // the first panel in the first half of passes, the second in the other
    const ByteRange& range = next[other ? 1 : 0];
    const int64_t of = other ? passes - half : half, at = other ? pass - half : pass,
                  lines = (range.lines + of - 1) / of;
    r.weights = range.begin + at * lines * 64;
    r.weight_lines = least(lines, range.lines - at * lines);
    r.each = (lines + count - 1) / count;
    if (last) {
      const int64_t row = part.first_row + t * kTileRows;
      r.outputs = reinterpret_cast<std::byte*>(part.out.row(row) + output);
      r.output_stride = part.out.stride;
      r.output_rows = least(2 * kTileRows, part.first_row + part.rows - row);
    }
    return r;
  }

  void run(const std::byte* (&found)[2][kSegment<F>]) const {
    constexpr int64_t kRowsFloats = kManyPanels * 256;
    for (int64_t t = 0; t < tiles; t += 2) {
      const std::byte* from = rows + t * tile_bytes;
      float* to = sums + t * kRowsFloats;
      const bool both = t + 1 < tiles;
      if (both && second) {
        multiply<F, true, true>(from, tile_bytes, found, count, fresh, to, kRowsFloats, requests(t));
      } else if (both) {
        multiply<F, true, false>(from, tile_bytes, found, count, fresh, to, kRowsFloats, requests(t));
      } else if (second) {
        multiply<F, false, true>(from, tile_bytes, found, count, fresh, to, kRowsFloats, requests(t));
      } else {
        multiply<F, false, false>(from, tile_bytes, found, count, fresh, to, kRowsFloats, requests(t));
      }
    }
  }
};

template <class F>
void many_panels(const LinearPart& part, int64_t tiles, int64_t output, int64_t panels) {
  const int64_t steps = steps_of(part.weight->cols), panel_bytes = F::panel_bytes(steps);
  const int64_t tile_bytes = steps * kTileBytes;  // of all steps of a tile of rows
  std::byte* room = part.scratch;                 // [2 panels][kSegmentTiles]
  float* sums =
      reinterpret_cast<float*>(part.scratch + 2 * kSegmentTiles * kTileBytes);  // [tiles][kManyPanels][16][16]
  for (int64_t s = 0; s < steps; s += kSegment<F>) {
    const int64_t count = least(kSegment<F>, steps - s);
    for (int64_t p = 0; p < panels; p += 2) {
      const bool second = p + 1 < panels;
      const std::byte* found[2][kSegment<F>];
      const std::byte* packed = part.weight->data + (output / kPanel + p) * panel_bytes;
      find_tiles<F>(packed, panel_bytes, second ? 2 : 1, steps, s, count, room, found);
      Segment<F> segment{part,
                         tiles,
                         output + p * kPanel,
                         second,
                         s == 0,
                         s + count == steps,
                         tile_of(part, part.first_row) + s * kTileBytes,
                         tile_bytes,
                         count,
                         sums + p * 256,
                         {}};
      // The next two panels of this segment, or the next segment, or the next panels' first.
      const bool same = p + 2 < panels, further = s + count < steps;
      const int64_t then = output / kPanel + (same      ? p + 2
                                              : further ? 0
                                                        : panels),
                    from = same      ? s
                           : further ? s + count
                                     : 0;
      for (int64_t i = 0; i < 2 && (then + i) * kPanel < part.end; ++i)
        segment.next[i] =
            F::lines_of(part.weight->data + (then + i) * panel_bytes, steps, from, least(kSegment<F>, steps - from));
      segment.run(found);
    }
  }
  for (int64_t r = 0; r < least(tiles * kTileRows, part.rows); ++r) {
    for (int64_t p = 0; p < panels; ++p) {
      write_row(part, part.first_row + r, output + p * kPanel,
                load(sums + (r / kTileRows * kManyPanels + p) * 256 + r % kTileRows * kPanel));
    }
  }
}

template <class F>
void tiles_product(const LinearPart& part) {
  const int64_t last = part.first_row + (part.rows - 1) / kTileRows * kTileRows;
  const int64_t room = tile_room(part.prepared_rows - last);
  const int64_t tiles = (last - part.first_row) / kTileRows + (room == kTileRows ? 1 : 0);
  if (tiles == 1) few_rows<F>(part, part.first_row, kTileRows);
  if (tiles > 1) {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
    Tiles configured(shapes);
    for (int64_t output = part.begin; output < part.end; output += kManyPanels * kPanel) {
      const int64_t panels = least(kManyPanels, (part.end - output + kPanel - 1) / kPanel);
      many_panels<F>(part, tiles, output, panels);
    }
  }
  if (room < kTileRows) few_rows<F>(part, last, room);
}

// Everything but how weights are packed.
template <class F>
LinearKernel tiles_kernel() {
  LinearKernel kernel;
  kernel.outputs_tile = kPanel;
  kernel.rows_tile = kTileRows;
  kernel.part_rows = kTilesPartRows;
  kernel.prepared_bytes = tiles_prepared_bytes;
  kernel.prepare = prepare_tiles<typename F::Rows>;
  kernel.product = tiles_product<F>;
  return kernel;
}

}  // namespace
}  // namespace millrace::cpu

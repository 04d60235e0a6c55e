// Products with bfloat16 and float16 weights. Rows are rounded to bfloat16 (as such models were trained) and multiplied
// by tiles, 32 inputs at a time; every sum has one accumulator and takes its inputs in ascending order. A float16
// weight is the exact sum of two bfloat16 numbers, which are multiplied one after the other.
//
// Packed: per panel of sixteen outputs [steps of 32 inputs][16 pairs of inputs], each [16 outputs][2] of bfloat16 or
// [2][16 outputs] of float16. Prepared: per tile of sixteen rows [steps][room][32], where the last tile has room for
// its rows rounded up to 1, 2, 4 or 8.
#include <bit>

#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/simd.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

constexpr int kPanel = kLanes;
constexpr int64_t kTileRows = 16, kStep = 32;
constexpr int64_t kSegmentTiles = 16;  // of a panel: two panels' stay in the L1 cache while rows come from the L2 cache
constexpr int64_t kManyPanels = 4;     // outputs whose sums are under way
constexpr int64_t kAhead = 2;          // steps that tiles of rows are asked for early

int64_t steps_of(int64_t cols) { return (cols + kStep - 1) / kStep; }
int64_t tile_room(int64_t rows) {
  return rows >= kTileRows ? kTileRows : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
}

int64_t prepared_bytes(int64_t rows, int64_t cols) { return up_to(rows, kTileRows) * steps_of(cols) * kStep * 2; }

const std::byte* tile_of(const LinearPart& part, int64_t row) {
  return part.prepared + row * steps_of(part.weight->cols) * kStep * 2;
}

void store_bf16(std::byte* out, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), (__m256i)_mm512_cvtneps_pbh(x.v));
}

void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  int64_t steps = steps_of(in.cols), room = tile_room(in.rows - begin);
  out += begin * steps * kStep * 2;
  for (int64_t r = 0; r < room; ++r) {
    for (int64_t k = 0; k < steps * kStep; k += kLanes) {
      int64_t there = begin + r < end && k < in.cols ? least(kLanes, in.cols - k) : 0;
      Floats x = there > 0 ? load_some(in.row(begin + r) + k, there) : splat(0);
      store_bf16(out + (k / kStep * room + r) * 64 + k % kStep * 2, x);
    }
  }
}

// ---- how a format's tiles come about
// -----------------------------------------------------------------------------------------

struct Bf16 {
  static constexpr int kParts = 1;
  static void ask(const std::byte* packed) {  // of weights read once, early enough
    for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(packed + 4096 + line, 0, 2);
  }
  static int64_t place_of(int64_t output, int64_t input) {
    return (input / 2 * kPanel + output % kPanel) * 4 + input % 2 * 2;
  }
  static const std::byte* tile(const std::byte* packed, std::byte*) { return packed; }
};

struct F16 {
  static constexpr int kParts = 2;
  static void ask(const std::byte* packed) {
    for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(packed + 2048 + line, 0, 3);
  }
  static int64_t place_of(int64_t output, int64_t input) { return (input * kPanel + output % kPanel) * 2; }
  // The upper halves of two vectors, side by side in each lane.
  static __m512i upper_halves(Floats a, Floats b) {
    const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(a.v), 16);
    return _mm512_ternarylogic_epi32(low, _mm512_castps_si512(b.v), top, 0xf8);  // a | (b & c)
  }
  static Floats without_top(Floats x) {
    const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return x - Floats{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x.v), top))};
  }
  // Upper parts, then lower, of a tile. Neither has more than the eight bits of a bfloat16.
  static const std::byte* tile(const std::byte* packed, std::byte* room) {
#pragma GCC unroll 4
    for (int i = 0; i < 16; ++i) {
      Floats a = load_f16(packed + i * 64), b = load_f16(packed + i * 64 + 32);
      _mm512_store_si512(room + i * 64, upper_halves(a, b));
      _mm512_store_si512(room + kTileBytes + i * 64, upper_halves(without_top(a), without_top(b)));
    }
    return room;
  }
};

// ---- packing
// ------------------------------------------------------------------------------------------------------------

int64_t packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) / kPanel * steps_of(cols) * kTileBytes; }

template <class F>
void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
  int64_t panel_bytes = steps_of(cols) * kTileBytes;
  for (int64_t panel = begin; panel < end; panel += kPanel) {
    std::byte* to = out + panel / kPanel * panel_bytes;
    std::memset(to, 0, static_cast<size_t>(panel_bytes));
    for (int64_t n = panel; n < least(panel + kPanel, rows); ++n) {
      for (int64_t k = 0; k < cols; ++k) std::memcpy(to + F::place_of(n, k), in + (n * cols + k) * 2, 2);
    }
  }
}

template <class F>
void unpack_row(const Weight& weight, int64_t row, float* out) {
  const std::byte* panel = weight.data + row / kPanel * steps_of(weight.cols) * kTileBytes;
  for (int64_t k = 0; k < weight.cols; ++k) format(weight.type).to_float(panel + F::place_of(row, k), out + k, 1);
}

void write_row(const LinearPart& part, int64_t row, int64_t output, const float* sums) {
  const float* bias = part.weight->bias;
  int64_t outputs = least(kPanel, part.end - output);
  Floats x = load(sums);
  if (bias != nullptr) x = x + load_some(bias + output, outputs);
  store_some(part.out.row(row) + output, x, outputs);
}

// ---- few rows: one tile of them, four panels at once, straight through all inputs
// ------------------------------------------------------------

template <class F, int panel>
void few_step(const std::byte* packed, std::byte* room) {
  F::ask(packed);
  const std::byte* tile = F::tile(packed, room);
  tile_load<5 + panel % 3>(tile, 64);
  tile_dot_bf16<panel, 4, 5 + panel % 3>();
  if constexpr (F::kParts == 2) {
    tile_load<5 + panel % 3>(tile + kTileBytes, 64);
    tile_dot_bf16<panel, 4, 5 + panel % 3>();
  }
}

template <class F>
void few_rows(const LinearPart& part, int64_t row, int64_t room) {
  int64_t steps = steps_of(part.weight->cols), panel_bytes = steps * kTileBytes;
  const std::byte* rows = tile_of(part, row);
  std::byte* widened = part.scratch;
  float* sums = reinterpret_cast<float*>(part.scratch + 8 * kTileBytes);  // [4][room][16]
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, 4}) shapes.set(tile, room, 64);
  for (int tile : {5, 6, 7}) shapes.set(tile, 16, 64);
  Tiles tiles(shapes);
  for (int64_t output = part.begin; output < part.end; output += 4 * kPanel) {
    const std::byte* packed = part.weight->data + output / kPanel * panel_bytes;
    int64_t panels = least(4, (part.end - output + kPanel - 1) / kPanel);
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (int64_t s = 0; s < steps; ++s, packed += kTileBytes) {
      tile_load<4>(rows + s * room * 64, 64);
      few_step<F, 0>(packed, widened);
      if (panels > 1) few_step<F, 1>(packed + panel_bytes, widened + 2 * kTileBytes);
      if (panels > 2) few_step<F, 2>(packed + 2 * panel_bytes, widened + 4 * kTileBytes);
      if (panels > 3) few_step<F, 3>(packed + 3 * panel_bytes, widened + 6 * kTileBytes);
    }
    int64_t floats = room * kPanel;
    tile_store<0>(sums, 64), tile_store<1>(sums + floats, 64);
    tile_store<2>(sums + 2 * floats, 64), tile_store<3>(sums + 3 * floats, 64);
    for (int64_t p = 0; p < panels; ++p) {
      for (int64_t r = 0; r < least(room, part.first_row + part.rows - row); ++r)
        write_row(part, row + r, output + p * kPanel, sums + p * floats + r * kPanel);
    }
  }
}

// ---- many rows: two tiles of rows by two panels; a segment of the rows stays near while panels pass by
// ----------------------------------------

template <class F>
constexpr int64_t kSegment = kSegmentTiles / F::kParts;  // steps

// The tiles of two panels' segment, [panel][step][parts].
template <class F>
void find_tiles(const std::byte* packed, int64_t panel_bytes, int panels, int64_t steps, std::byte* room,
                const std::byte* (&out)[2][kSegment<F>]) {
  for (int p = 0; p < panels; ++p) {
    for (int64_t s = 0; s < steps; ++s)
      out[p][s] =
          F::tile(packed + p * panel_bytes + s * kTileBytes, room + (p * kSegment<F> + s) * F::kParts * kTileBytes);
  }
}

// A tile of rows into the L1 cache; what lies behind the last one is asked for in vain, which does no harm.
void ask_tile(const std::byte* tile) {
  for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(tile + line, 0, 3);
}

// sums [2 tiles of rows][2 panels], each [16][16], at the given distances; `second` of each may be missing.
template <class F, bool second_rows, bool second_panel>
void multiply(const std::byte* rows, int64_t tile_bytes, const std::byte* (&tiles)[2][kSegment<F>], int64_t steps,
              bool fresh, float* sums, int64_t rows_floats) {
  if (fresh) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(sums, 64);
    if constexpr (second_panel) tile_load<1>(sums + 256, 64);
    if constexpr (second_rows) tile_load<2>(sums + rows_floats, 64);
    if constexpr (second_rows && second_panel) tile_load<3>(sums + rows_floats + 256, 64);
  }
  for (int64_t s = 0; s < steps; ++s) {
    ask_tile(rows + (s + kAhead) * kTileBytes);
    if constexpr (second_rows) ask_tile(rows + tile_bytes + (s + kAhead) * kTileBytes);
    tile_load<4>(rows + s * kTileBytes, 64);
    if constexpr (second_rows) tile_load<5>(rows + tile_bytes + s * kTileBytes, 64);
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

template <class F>
void many_panels(const LinearPart& part, int64_t tiles, int64_t output, int64_t panels) {
  int64_t steps = steps_of(part.weight->cols), panel_bytes = steps * kTileBytes;
  std::byte* room = part.scratch;  // [2 panels][kSegmentTiles]
  float* sums =
      reinterpret_cast<float*>(part.scratch + 2 * kSegmentTiles * kTileBytes);  // [tiles][kManyPanels][16][16]
  constexpr int64_t kRowsFloats = kManyPanels * 256;
  const std::byte* rows = tile_of(part, part.first_row);
  for (int64_t s = 0; s < steps; s += kSegment<F>) {
    int64_t count = least(kSegment<F>, steps - s);
    for (int64_t p = 0; p < panels; p += 2) {
      bool second = p + 1 < panels;
      const std::byte* found[2][kSegment<F>];
      const std::byte* packed = part.weight->data + (output / kPanel + p) * panel_bytes + s * kTileBytes;
      find_tiles<F>(packed, panel_bytes, second ? 2 : 1, count, room, found);
      for (int64_t t = 0; t < tiles; t += 2) {
        const std::byte* from = rows + t * panel_bytes + s * kTileBytes;  // a full tile of rows is as long as a panel
        float* to = sums + t * kRowsFloats + p * 256;
        bool both = t + 1 < tiles;
        if (both && second) {
          multiply<F, true, true>(from, panel_bytes, found, count, s == 0, to, kRowsFloats);
        } else if (both) {
          multiply<F, true, false>(from, panel_bytes, found, count, s == 0, to, kRowsFloats);
        } else if (second) {
          multiply<F, false, true>(from, panel_bytes, found, count, s == 0, to, kRowsFloats);
        } else {
          multiply<F, false, false>(from, panel_bytes, found, count, s == 0, to, kRowsFloats);
        }
      }
    }
  }
  for (int64_t r = 0; r < least(tiles * kTileRows, part.rows); ++r) {
    for (int64_t p = 0; p < panels; ++p) {
      write_row(part, part.first_row + r, output + p * kPanel,
                sums + r / kTileRows * kRowsFloats + p * 256 + r % kTileRows * kPanel);
    }
  }
}

template <class F>
void product(const LinearPart& part) {
  int64_t last = part.first_row + (part.rows - 1) / kTileRows * kTileRows, room = tile_room(part.prepared_rows - last);
  int64_t tiles = (last - part.first_row) / kTileRows + (room == kTileRows ? 1 : 0);
  if (tiles == 1 && room == kTileRows) return few_rows<F>(part, last, room);
  if (tiles > 0) {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
    Tiles configured(shapes);
    for (int64_t output = part.begin; output < part.end; output += kManyPanels * kPanel) {
      int64_t panels = least(kManyPanels, (part.end - output + kPanel - 1) / kPanel);
      many_panels<F>(part, tiles, output, panels);
    }
  }
  if (room < kTileRows) few_rows<F>(part, last, room);
}

template <class F>
LinearKernel kernel_of() {
  LinearKernel kernel;
  kernel.outputs_tile = kPanel;
  kernel.rows_tile = kTileRows;
  kernel.part_rows = 256;
  kernel.packed_bytes = packed_bytes;
  kernel.pack = pack<F>;
  kernel.unpack_row = unpack_row<F>;
  kernel.prepared_bytes = prepared_bytes;
  kernel.prepare = prepare;
  kernel.product = product<F>;
  return kernel;
}

}  // namespace

void add_amx_half(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  fast[static_cast<size_t>(DType::bf16)] = kernel_of<Bf16>();
  fast[static_cast<size_t>(DType::f16)] = kernel_of<F16>();
}

}  // namespace millrace::cpu

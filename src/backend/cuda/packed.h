// How the device keeps 16-bit weights for products, and what a product means there.
//
// Sixteen outputs by sixteen inputs are a tile of 512 bytes: lane 4g + t of a warp finds in its sixteen bytes the
// inputs 2t, 2t + 1 of output g, the same of output g + 8, then inputs 2t + 8, 2t + 9 of both, which is how matrix
// instructions want them. The tiles of sixteen outputs follow one another. Outputs and inputs are padded with zeros to
// whole tiles.
//
// A product is the sum of kSlices sums, added in order; slice s has the tiles [slice_begin(s), slice_begin(s + 1)) of
// the inputs, added in order. How many rows are multiplied at a time changes who computes what, never this.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MILLRACE_ON_BOTH __host__ __device__
#else
#define MILLRACE_ON_BOTH
#endif

namespace millrace::cuda {

// Values of Weight::layout.
enum Layout : uint8_t {
  kRows,    // rows as in the file: tables, and products by any_rows
  kTiles,   // 16-bit numbers in tiles (packed.h)
  kRecords  // quantised rows, small integers first (quantised.cuh)
};

inline constexpr int kTile = 16;
inline constexpr int kSlices = 8;

MILLRACE_ON_BOTH constexpr int slice_begin(int k_tiles, int slice) {
  return static_cast<int>(static_cast<int64_t>(k_tiles) * slice / kSlices);
}

constexpr int64_t tiles_of(int64_t numbers) { return (numbers + kTile - 1) / kTile; }
constexpr int64_t packed_bytes(int64_t rows, int64_t cols) { return tiles_of(rows) * tiles_of(cols) * 512; }

// Where number (row, col) lies, counted in 16-bit numbers.
MILLRACE_ON_BOTH constexpr int64_t packed_place(int64_t row, int64_t col, int64_t k_tiles) {
  const int64_t r = row % kTile, c = col % kTile;
  const int64_t lane = r % 8 * 4 + c % 8 / 2;
  return ((row / kTile * k_tiles + col / kTile) * 32 + lane) * 8 + c / 8 * 4 + r / 8 * 2 + c % 2;
}

}  // namespace millrace::cuda

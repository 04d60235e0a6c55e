#include "shrink/tiles.h"

#include <cstring>

namespace millrace {
namespace {

#define TILE_NAME tile_of_16
#define TILE_TARGET
#define TILE_BYTES 16
#define TILE_ROWS 4
#include "shrink/tile.inc"
#undef TILE_NAME
#undef TILE_TARGET
#undef TILE_BYTES
#undef TILE_ROWS

#if defined(__x86_64__)
#define TILE_NAME tile_of_32
#define TILE_TARGET __attribute__((target("avx2")))
#define TILE_BYTES 32
#define TILE_ROWS 4
#include "shrink/tile.inc"
#undef TILE_NAME
#undef TILE_TARGET
#undef TILE_BYTES
#undef TILE_ROWS

#define TILE_NAME tile_of_64
#define TILE_TARGET __attribute__((target("avx512f")))
#define TILE_BYTES 64
#define TILE_ROWS 8
#include "shrink/tile.inc"
#endif

template <class T>
using Tile = void (*)(const T* a, int64_t row_step, int64_t depth_step, const T* b, int64_t b_step, int64_t depth,
                      T* sums);

template <class T>
Tile<T> best_tile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return tile_of_64<T>;
  if (__builtin_cpu_supports("avx2") != 0) return tile_of_32<T>;
#endif
  return tile_of_16<T>;
}

// At the edges of matrices: the same sums, one by one.
template <class T>
void add_some(const TileInput<T>& in, int64_t rows, int64_t cols, T* sums) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      T sum = sums[i * kTileCols<T> + j];
      for (int64_t k = 0; k < in.depth; ++k) sum += in.a[i * in.row_step + k * in.depth_step] * in.b[k * in.b_step + j];
      sums[i * kTileCols<T> + j] = sum;
    }
  }
}

}  // namespace

template <class T>
void add_tile(const TileInput<T>& in, int64_t rows, int64_t cols, T* sums) {
  static const Tile<T> best = best_tile<T>();
  if (rows < kTileRows || cols < kTileCols<T>) return add_some(in, rows, cols, sums);
  best(in.a, in.row_step, in.depth_step, in.b, in.b_step, in.depth, sums);
}

template void add_tile<float>(const TileInput<float>& in, int64_t rows, int64_t cols, float* sums);
template void add_tile<double>(const TileInput<double>& in, int64_t rows, int64_t cols, double* sums);

}  // namespace millrace

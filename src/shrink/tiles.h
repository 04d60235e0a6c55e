// Tiles of products of matrices: what sums, factors and GPTQ's corrections spend their time on. A number of a tile is
// added up in the order of `depth`, one product after another, so it has the same bits whatever registers a processor
// has. Any thread.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kTileRows = 8;
template <class T>
inline constexpr int64_t kTileCols = 128 / static_cast<int64_t>(sizeof(T));

// What a tile is made of: sums[i][j] += over k a[i * row_step + k * depth_step] * b[k * b_step + j].
template <class T>
struct TileInput {
  const T* a = nullptr;
  int64_t row_step = 0, depth_step = 0;
  const T* b = nullptr;
  int64_t b_step = 0;
  int64_t depth = 0;
};

// `sums` is [kTileRows, kTileCols], of which the first rows and cols are used. For float and double.
template <class T>
void add_tile(const TileInput<T>& in, int64_t rows, int64_t cols, T* sums);

}  // namespace millrace

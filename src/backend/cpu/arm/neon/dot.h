// What the products of quantised weights share where SDOT by element multiplies: a vector of weights is four inputs of
// four outputs (planes.h), four inputs of a row are an element of a vector of its integers, and a sum is four outputs
// of one row. Rows come in tiles of four, outputs in panels of eight (two quads). Integer sums are exact, and where
// they turn into float32 the arithmetic is the same as with matrix products (i8mm), so both give the same bits.
#pragma once

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int kQuads = kPanel / 4;

// sum += weights x inputs [4 lane, 4 lane + 4) of a row's sixteen.
template <int lane>
inline int32x4_t add_dot(int32x4_t sum, int8x16_t weights, int8x16_t row) {
  return vdotq_laneq_s32(sum, weights, row, lane);
}

// Sums of a tile: [row][quad of outputs].
using DotSums = float32x4_t[kTileRows][kQuads];

// Writes the sums of a tile's `rows` rows and the panel's outputs that exist, times `after`, a power of two.
inline void write_dot_sums(const LinearPart& part, const DotSums& sums, int64_t row, int64_t rows, int64_t output,
                           float after) {
  for (int64_t r = 0; r < rows; ++r) write_row(part, row + r, output, sums[r][0], sums[r][1], after);
}

}  // namespace
}  // namespace millrace::cpu

// Quantising where some numbers matter more than others: scales chosen so that what an error is multiplied with counts,
// and the grid that a group's scales leave to its codes, for methods that choose codes themselves. Immutable; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// As Format::from_float, but scales make the sum of importance[i] * error^2 small, near enough; a group without any
// importance above zero is quantised as if all numbers counted alike. Null for formats without scales.
using FromImportant = void(const float* in, const float* importance, std::byte* out, int64_t values);
FromImportant* from_important(DType type);

// What the numbers of one group can become: step[i] * q + offset[i] with whole low <= q <= high, or step[i] *
// levels[q].
struct Grid {
  float step[256], offset[256];
  int low = 0, high = 0;
  const int8_t* levels = nullptr;
};

// Null for formats without a grid.
struct GridFormat {
  void (*grid)(const std::byte* group, Grid& grid) = nullptr;          // as the scales in the group say
  void (*put_codes)(const int8_t* codes, std::byte* group) = nullptr;  // keeps the scales
};
GridFormat grid_format(DType type);

// The code of the grid nearest to a number, and what it stands for.
int nearest_code(const Grid& grid, int index, float value);
inline float value_of(const Grid& grid, int index, int code) {
  return grid.step[index] * static_cast<float>(grid.levels != nullptr ? grid.levels[code] : code) + grid.offset[index];
}

}  // namespace millrace

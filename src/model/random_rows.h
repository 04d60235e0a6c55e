// Rows to build matrices of random weights from. A matrix of billions of numbers is made of a few dozen different rows:
// quick to make, and no kernel can tell. Pure; one thread at a time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/tensor.h"

namespace millrace {

class RowPool {
 public:
  RowPool(DType type, uint64_t seed) : type_(type), seed_(seed) {}

  std::vector<std::byte> matrix(int64_t rows, int64_t cols, uint32_t salt) {
    const auto row_bytes = static_cast<size_t>(bytes_of(type_, cols));
    std::vector<std::byte> pool(row_bytes * kRows);
    std::vector<float> values(static_cast<size_t>(cols));
    const double spread = std::sqrt(3.0 / static_cast<double>(cols));  // uniform numbers of variance 1 / cols
    for (uint32_t r = 0; r < kRows; ++r) {
      for (size_t c = 0; c < values.size(); ++c) {
        const Draw draw = {.seed = seed_, .choice = salt, .position = r, .draw = static_cast<uint32_t>(c)};
        values[c] = static_cast<float>((2 * uniform(draw) - 1) * spread);
      }
      format(type_).from_float(values.data(), &pool[r * row_bytes], cols);
    }
    std::vector<std::byte> out(static_cast<size_t>(rows) * row_bytes);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      std::memcpy(&out[r * row_bytes], &pool[(r * 31 + r / kRows) % kRows * row_bytes], row_bytes);
    }
    return out;
  }

 private:
  static constexpr uint32_t kRows = 61;
  DType type_;
  uint64_t seed_;
};

}  // namespace millrace

// Codes with scales and zero points, and how directories of Hugging Face's kind keep them as several tensors: GPTQ, AWQ
// (gemm), compressed-tensors (packed, or int8). The inverse of tensor/stored_matrix.h: what is packed here is read
// there bit for bit. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace millrace {

enum class PackLayout : uint8_t { gptq, awq, packed, int8 };

// What codes can say.
struct CodeGrid {
  int bits = 4;
  int64_t group = 128;            // inputs that share a scale; 0: all
  bool symmetric = false;         // the zero point is in the middle
  int least_zero = 0;             // GPTQ stores zero points less one: 1
  DType scale_type = DType::f16;  // f16 or bf16: every scale is a number of it

  int highest() const { return (1 << bits) - 1; }
  int middle() const { return 1 << (bits - 1); }
  int64_t group_of(int64_t cols) const { return group > 0 ? group : cols; }
};

// A matrix [rows, cols]: number = (code - zero) * scale, in float32.
struct GroupedCodes {
  CodeGrid grid;
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes;  // [rows, cols]
  std::vector<float> scales;   // [rows, groups]
  std::vector<uint8_t> zeros;  // likewise

  int64_t groups() const { return cols / grid.group_of(cols); }
  void floats(int64_t row, float* out) const;  // of one row
};

// Why a matrix of that shape cannot be kept so; empty if it can.
std::string unpackable(PackLayout layout, const CodeGrid& grid, int64_t rows, int64_t cols);

// One of the tensors that a weight becomes: STEM.ENDING.
struct PackedTensor {
  std::string ending;
  DType type = DType::i32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
// In the order of their names. Rows fit: unpackable() said nothing.
std::vector<PackedTensor> pack(PackLayout layout, const GroupedCodes& codes);

}  // namespace millrace

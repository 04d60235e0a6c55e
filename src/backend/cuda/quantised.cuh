// How the device keeps rows of weights: plain numbers as in the file; quantised rows with all their small integers
// first, then their factors, so that both can be read in sixteen bytes. Rows are padded to sixteen bytes. The host
// writes this layout (weights.cpp), kernels and embed read it.
//   Q8_0: int8 [cols], f16 scale [cols / 32]
//   Q4_0: nibbles [cols / 2], f16 scale [cols / 32]; value (q - 8) * scale
//   Q4_K: nibbles [cols / 2], uint8 scale and minimum [cols / 32][2], f16 d and dmin [cols / 256][2];
//         value d * scale * q - dmin * minimum
// The nibbles of a group of 32 lie in 16 bytes: byte 4t + i (t < 4, i < 4) holds number 8t + i low and 8t + 4 + i high.
#pragma once

#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline float half_at(const std::byte* at) { return __half2float(*reinterpret_cast<const __half*>(at)); }

__device__ inline int nibble(const std::byte* row, int i) {
  const int in_group = i % 32, byte = static_cast<int>(row[i / 32 * 16 + in_group / 8 * 4 + in_group % 4]);
  return in_group % 8 < 4 ? byte & 15 : byte >> 4;
}

// Number i of a row, exactly what the format defines.
__device__ inline float stored_value(DType type, const std::byte* row, int cols, int i) {
  switch (type) {
    case DType::f32:
      return reinterpret_cast<const float*>(row)[i];
    case DType::f16:
      return __half2float(reinterpret_cast<const __half*>(row)[i]);
    case DType::bf16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
    case DType::q8_0:
      return half_at(row + cols + i / 32 * 2) * static_cast<float>(reinterpret_cast<const int8_t*>(row)[i]);
    case DType::q4_0:
      return half_at(row + cols / 2 + i / 32 * 2) * static_cast<float>(nibble(row, i) - 8);
    case DType::q4_k: {
      const std::byte* fine = row + cols / 2 + i / 32 * 2;
      const std::byte* coarse = row + cols / 2 + cols / 16 + i / 256 * 4;
      const float scale = half_at(coarse) * static_cast<float>(static_cast<int>(fine[0]));
      const float minimum = half_at(coarse + 2) * static_cast<float>(static_cast<int>(fine[1]));
      return scale * static_cast<float>(nibble(row, i)) - minimum;
    }
    default:
      return 0;
  }
}

}  // namespace millrace::cuda

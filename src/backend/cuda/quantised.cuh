// Rows of weights as the file has them, number by number: for tables, and for packing.
#pragma once

#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline float half_at(const std::byte* at) { return __half2float(*reinterpret_cast<const __half*>(at)); }

// Of the eight groups of 32 of a Q4_K group of 256: what its numbers are multiplied with, and what is taken off.
__device__ inline float2 scale_and_minimum(const std::byte* super, int group) {
  const std::byte* packed = super + 4;  // twelve bytes: eight scales and minimums of six bits
  auto at = [&](int i) { return static_cast<int>(packed[i]); };
  int scale, minimum;
  if (group < 4) {
    scale = at(group) & 63;
    minimum = at(group + 4) & 63;
  } else {
    scale = (at(group + 4) & 15) | (at(group - 4) >> 6) << 4;
    minimum = at(group + 4) >> 4 | (at(group) >> 6) << 4;
  }
  return {half_at(super) * static_cast<float>(scale), half_at(super + 2) * static_cast<float>(minimum)};
}

// The small integer that stands for number i of a row.
__device__ inline int stored_integer(DType type, const std::byte* row, int i) {
  if (type == DType::q8_0) return static_cast<int8_t>(row[i / 32 * 34 + 2 + i % 32]);
  if (type == DType::q4_0) {
    const int byte = static_cast<int>(row[i / 32 * 18 + 2 + i % 16]);
    return i % 32 < 16 ? byte & 15 : byte >> 4;
  }
  if (type == DType::mxfp4) {
    const int byte = static_cast<int>(row[i / 32 * 17 + 1 + i % 16]);
    return i % 32 < 16 ? byte & 15 : byte >> 4;
  }
  if (type == DType::q6_k) {
    const std::byte* super = row + i / 256 * 210;
    const int half = i % 256 / 128, place = i % 128;
    const int low = static_cast<int>(super[half * 64 + place % 64]) >> (place / 64 * 4) & 15;
    return low | (static_cast<int>(super[128 + half * 32 + place % 32]) >> (place / 32 * 2) & 3) << 4;
  }
  const int byte = static_cast<int>(row[i / 256 * 144 + 16 + i % 256 / 64 * 32 + i % 32]);
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

// What the numbers of a Q6_K group of 16 are multiplied with.
__device__ inline float q6_k_factor(const std::byte* row, int i) {
  const std::byte* super = row + i / 256 * 210;
  return half_at(super + 208) * static_cast<float>(static_cast<int8_t>(super[192 + i % 256 / 16]));
}
// A code of MXFP4: a sign, two bits of exponent, one of mantissa.
__device__ inline float four_bit_float(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent == 0
                         ? 0.5f * static_cast<float>(mantissa)
                         : static_cast<float>(1 << exponent) * 0.5f * (1 + 0.5f * static_cast<float>(mantissa));
  return code < 8 ? size : -size;
}

// Number i of a row, exactly what the format defines.
__device__ inline float stored_value(DType type, const std::byte* row, int i) {
  switch (type) {
    case DType::f32:
      return reinterpret_cast<const float*>(row)[i];
    case DType::f16:
      return __half2float(reinterpret_cast<const __half*>(row)[i]);
    case DType::bf16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
    case DType::q8_0:
      return half_at(row + i / 32 * 34) * static_cast<float>(stored_integer(type, row, i));
    case DType::q4_0:
      return half_at(row + i / 32 * 18) * static_cast<float>(stored_integer(type, row, i) - 8);
    case DType::q4_k: {
      const float2 factors = scale_and_minimum(row + i / 256 * 144, i % 256 / 32);
      return factors.x * static_cast<float>(stored_integer(type, row, i)) - factors.y;
    }
    case DType::q6_k:
      return q6_k_factor(row, i) * static_cast<float>(stored_integer(type, row, i) - 32);
    case DType::mxfp4:
      return ldexpf(four_bit_float(stored_integer(type, row, i)), static_cast<int>(row[i / 32 * 17]) - 127);
    default:
      return 0;
  }
}

}  // namespace millrace::cuda

// Rows of weights as the file has them, number by number: for tables, and for packing.
#pragma once

#include "backend/cuda/packed.h"
#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline float half_at(const std::byte* at) { return __half2float(*reinterpret_cast<const __half*>(at)); }

// Of the eight groups of 32 of a Q4_K or Q5_K group of 256: what its numbers are multiplied with, and what is taken
// off.
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

__device__ inline int byte_at(const std::byte* bytes, int i) { return static_cast<int>(bytes[i]); }
// Four bits of sixteen bytes that hold 32 values: the first sixteen in the low halves.
__device__ inline int nibble(const std::byte* bytes, int i) { return byte_at(bytes, i % 16) >> (i / 16 * 4) & 15; }
__device__ inline int iq4_value(int code) {
  constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[code];
}

// Twice the number that a code of E2M1 stands for.
__device__ inline int fp4_value(int code) {
  const int size = code & 7, twice = size < 5 ? size : size == 5 ? 6 : size == 6 ? 8 : 12;
  return code < 8 ? twice : -twice;
}

// The small integer that stands for number i of a row, as panels of panel_type() keep it: Q6_K's are 32 too large,
// Q4_0's 8.
__device__ inline int stored_integer(DType file, const std::byte* row, int i) {
  const int in = i % 256;  // of a group of 256
  switch (file) {
    case DType::q8_0:
      return static_cast<int8_t>(row[i / 32 * 34 + 2 + i % 32]);
    case DType::q4_0:
      return nibble(row + i / 32 * 18 + 2, i % 32);
    case DType::q4_1:
      return nibble(row + i / 32 * 20 + 4, i % 32);
    case DType::q5_0: {
      const std::byte* group = row + i / 32 * 22;
      return (nibble(group + 6, i % 32) | (byte_at(group, 2 + i % 32 / 8) >> i % 8 & 1) << 4) + 16;
    }
    case DType::q5_1: {
      const std::byte* group = row + i / 32 * 24;
      return nibble(group + 8, i % 32) | (byte_at(group, 4 + i % 32 / 8) >> i % 8 & 1) << 4;
    }
    case DType::iq4_nl:
      return iq4_value(nibble(row + i / 32 * 18 + 2, i % 32));
    case DType::iq4_xs:
      return iq4_value(nibble(row + i / 256 * 136 + 8 + in / 32 * 16, i % 32));
    case DType::mxfp4:
      return nibble(row + i / 32 * 17 + 1, i % 32);
    case DType::fp4_half:
      return fp4_value(nibble(row + i / 32 * 20 + 4, i % 32)) + 32;
    case DType::nvfp4:
      return fp4_value(byte_at(row, i / 64 * 36 + 4 + i % 64 / 16 * 8 + i % 8) >> (i % 16 / 8 * 4) & 15) + 32;
    case DType::q3_k: {
      const std::byte* super = row + i / 256 * 110;
      const int low = byte_at(super, 32 + in / 128 * 32 + in % 32) >> (in % 128 / 32 * 2) & 3;
      return (low | (byte_at(super, in % 32) >> (in / 32) & 1) << 2) + 28;
    }
    case DType::q5_k: {
      const std::byte* super = row + i / 256 * 176;
      const int low = byte_at(super, 48 + in / 64 * 32 + in % 32) >> (in % 64 / 32 * 4) & 15;
      return low | (byte_at(super, 16 + in % 32) >> (in / 32) & 1) << 4;
    }
    case DType::q6_k: {
      const std::byte* super = row + i / 256 * 210;
      const int low = byte_at(super, in / 128 * 64 + in % 64) >> (in % 128 / 64 * 4) & 15;
      return low | (byte_at(super, 128 + in / 128 * 32 + in % 32) >> (in % 128 / 32 * 2) & 3) << 4;
    }
    default:  // Q4_K
      return byte_at(row, i / 256 * 144 + 16 + in / 64 * 32 + in % 32) >> (in % 64 / 32 * 4) & 15;
  }
}

// What number i of a row is multiplied with, exactly.
__device__ inline float stored_factor(DType file, const std::byte* row, int i) {
  const int in = i % 256;
  switch (file) {
    case DType::q8_0:
      return half_at(row + i / 32 * 34);
    case DType::q4_0:
    case DType::iq4_nl:
      return half_at(row + i / 32 * 18);
    case DType::q4_1:
      return half_at(row + i / 32 * 20);
    case DType::q5_0:
      return half_at(row + i / 32 * 22);
    case DType::q5_1:
      return half_at(row + i / 32 * 24);
    case DType::iq4_xs: {
      const std::byte* super = row + i / 256 * 136;
      const int group = in / 32, high = byte_at(super, 2 + group / 4) >> (group % 4 * 2) & 3,
                low = byte_at(super, 4 + group / 2) >> (group % 2 * 4) & 15;
      return half_at(super) * static_cast<float>((low | high << 4) - 32);
    }
    case DType::mxfp4:
      return ldexpf(1.0f, byte_at(row, i / 32 * 17) - 127);
    case DType::fp4_half:
      return half_at(row + i / 32 * 20 + i % 32 / 16 * 2);
    case DType::nvfp4: {  // E4M3, but for 127, which counts as zero, and 255
      const int scale = byte_at(row, i / 64 * 36 + i % 64 / 16);
      if (scale == 127) return 0;
      if (scale == 255) return 240;
      return __half2float(__ushort_as_half(static_cast<unsigned short>((scale & 127) << 7))) * 128.0f;
    }
    case DType::q3_k: {
      const std::byte* super = row + i / 256 * 110;
      const int group = in / 16, low = byte_at(super, 96 + group % 8) >> (group / 8 * 4) & 15,
                high = byte_at(super, 104 + group % 4) >> (group / 4 * 2) & 3;
      return half_at(super + 108) * static_cast<float>((low | high << 4) - 32);
    }
    case DType::q6_k: {
      const std::byte* super = row + i / 256 * 210;
      return half_at(super + 208) * static_cast<float>(static_cast<int8_t>(super[192 + in / 16]));
    }
    default:
      return scale_and_minimum(row + i / 256 * (file == DType::q5_k ? 176 : 144), in / 32).x;
  }
}

// What is added to it, of formats that have that.
__device__ inline float stored_offset(DType file, const std::byte* row, int i) {
  switch (file) {
    case DType::q4_1:
      return half_at(row + i / 32 * 20 + 2);
    case DType::q5_1:
      return half_at(row + i / 32 * 24 + 2);
    case DType::q4_k:
    case DType::q5_k:
      return -scale_and_minimum(row + i / 256 * (file == DType::q5_k ? 176 : 144), i % 256 / 32).y;
    default:
      return 0;
  }
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
__device__ inline float stored_value(DType file, const std::byte* row, int i) {
  if (file == DType::f32) return reinterpret_cast<const float*>(row)[i];
  if (file == DType::f16) return __half2float(reinterpret_cast<const __half*>(row)[i]);
  if (file == DType::bf16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
  const float factor = stored_factor(file, row, i);
  const int integer = stored_integer(file, row, i);
  if (file == DType::mxfp4) return factor * four_bit_float(integer);
  const int middle = panel_type(file) == DType::q6_k ? 32 : file == DType::q4_0 ? 8 : 0;
  return factor * static_cast<float>(integer - middle) + stored_offset(file, row, i);
}

}  // namespace millrace::cuda

// Quantised units of a panel (packed.h) as operands of matrix instructions: lane 4g + t of a warp has of every sixteen
// inputs numbers 2t, 2t + 1 of outputs g and g + 8, then 2t + 8, 2t + 9 of both.
//   Q8_0  sixteen bytes a lane and 32 inputs; float16 factors of outputs g and g + 8; multiplied in float32, rounded
//   once Q4_0  sixteen bytes a lane and 64 inputs; the factors rounded to bfloat16 Q4_K  the same, and what is taken
//   off, negative, beside the factors
// A word of four-bit numbers has those of eight places: place i / 2 from bit 16 (i % 2) + 4 (i / 2) on.
#pragma once

#include "backend/cuda/packed.h"
#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline __nv_bfloat162 as_pair(uint32_t bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); }
__device__ inline uint32_t as_bits(__nv_bfloat162 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }
__device__ inline uint32_t round_pair(float low, float high) { return as_bits(__floats2bfloat162_rn(low, high)); }

// Which input and output number i (of eight) of a lane's place is, within sixteen of each.
__device__ inline int lane_output(int lane, int i) { return lane / 4 + i / 2 % 2 * 8; }
__device__ inline int lane_input(int lane, int i) { return lane % 4 * 2 + i / 4 * 8 + i % 2; }

template <DType Type>
struct Unpack;

// kSteps sixteens of inputs at a time; part p of a unit has its sixteens p * kSteps and following.
template <>
struct Unpack<DType::q8_0> {
  static constexpr int kSteps = 2;
  uint4 numbers;
  float low, high;  // factors of outputs g and g + 8

  __device__ void load(const char* unit, int part, int lane) {
    numbers = reinterpret_cast<const uint4*>(unit)[part * 32 + lane];
    const uint32_t both = *reinterpret_cast<const uint32_t*>(unit + 4096 + part * 32 + lane / 4 * 4);
    const float2 factors = __half22float2(*reinterpret_cast<const __half2*>(&both));
    low = factors.x, high = factors.y;
  }
  __device__ static float number(uint32_t four, int i) {  // bytes are stored with 128 added
    return __uint_as_float(__byte_perm(four, 0x4B000000u, 0x7540u + static_cast<uint32_t>(i))) - 8388736.0f;
  }
  __device__ uint4 step(int i) const {
    const uint32_t first = i == 0 ? numbers.x : numbers.z, second = i == 0 ? numbers.y : numbers.w;
    return {round_pair(number(first, 0) * low, number(first, 1) * low),
            round_pair(number(first, 2) * high, number(first, 3) * high),
            round_pair(number(second, 0) * low, number(second, 1) * low),
            round_pair(number(second, 2) * high, number(second, 3) * high)};
  }
};

// Two four-bit numbers as bfloat16 with 128 added, which is their bits below those of 128.
__device__ inline __nv_bfloat162 nibbles(uint32_t word, int i) {
  return as_pair((word >> (4 * i) & 0x000F000Fu) | 0x43004300u);
}

template <>
struct Unpack<DType::q4_0> {
  static constexpr int kSteps = 4;
  uint4 numbers;
  uint32_t factors[2];  // of the two groups of 32

  __device__ void load(const char* unit, int part, int lane) {
    numbers = reinterpret_cast<const uint4*>(unit)[part * 32 + lane];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      factors[i] = *reinterpret_cast<const uint32_t*>(unit + 2048 + (part * 2 + i) * 32 + lane / 4 * 4);
  }
  __device__ uint4 step(int i) const {
    const uint32_t word = i == 0 ? numbers.x : i == 1 ? numbers.y : i == 2 ? numbers.z : numbers.w;
    const __nv_bfloat162 low = as_pair(__byte_perm(factors[i / 2], 0, 0x1010)),
                         high = as_pair(__byte_perm(factors[i / 2], 0, 0x3232)), middle = as_pair(0x43084308u);
    auto value = [&](int place, __nv_bfloat162 factor) {
      return as_bits(__hmul2(__hsub2(nibbles(word, place), middle), factor));
    };
    return {value(0, low), value(1, high), value(2, low), value(3, high)};
  }
};

template <>
struct Unpack<DType::q4_k> {
  static constexpr int kSteps = 4;
  uint4 numbers;
  uint2 factors[2];  // and what is added

  __device__ void load(const char* unit, int part, int lane) {
    numbers = reinterpret_cast<const uint4*>(unit)[part * 32 + lane];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      factors[i] = *reinterpret_cast<const uint2*>(unit + 2048 + (part * 2 + i) * 64 + lane / 4 * 8);
  }
  __device__ uint4 step(int i) const {
    const uint32_t word = i == 0 ? numbers.x : i == 1 ? numbers.y : i == 2 ? numbers.z : numbers.w;
    const uint2 two = factors[i / 2];
    const __nv_bfloat162 low = as_pair(__byte_perm(two.x, 0, 0x1010)), high = as_pair(__byte_perm(two.x, 0, 0x3232)),
                         low_add = as_pair(__byte_perm(two.y, 0, 0x1010)),
                         high_add = as_pair(__byte_perm(two.y, 0, 0x3232)), base = as_pair(0x43004300u);
    auto value = [&](int place, __nv_bfloat162 factor, __nv_bfloat162 add) {
      return as_bits(__hfma2(__hsub2(nibbles(word, place), base), factor, add));
    };
    return {value(0, low, low_add), value(1, high, high_add), value(2, low, low_add), value(3, high, high_add)};
  }
};

// Number (row, col) of weights in panels.
template <DType Type>
__device__ float unpacked(const Weight& weight, int64_t row, int64_t col) {
  constexpr Unit kUnit = unit_of(Type);
  const int c = static_cast<int>(col % 16), lane = static_cast<int>(row % 8) * 4 + c % 8 / 2;
  const int step = static_cast<int>(col % kUnit.inputs) / 16;
  const std::byte* unit =
      weight.data + row / kPanel * panel_bytes(Type, weight.cols) + col / kUnit.inputs * kUnit.bytes;
  Unpack<Type> numbers;
  numbers.load(reinterpret_cast<const char*>(unit), step / Unpack<Type>::kSteps, lane);
  const uint4 operand = numbers.step(step % Unpack<Type>::kSteps);
  const bool high = row % kPanel >= 8;
  const uint32_t pair = c < 8 ? (high ? operand.y : operand.x) : (high ? operand.w : operand.z);
  return __uint_as_float(c % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
}
__device__ inline float packed_value(const Weight& weight, int64_t row, int64_t col) {
  if (weight.type == DType::q8_0) return unpacked<DType::q8_0>(weight, row, col);
  if (weight.type == DType::q4_0) return unpacked<DType::q4_0>(weight, row, col);
  if (weight.type == DType::q4_k) return unpacked<DType::q4_k>(weight, row, col);
  const uint16_t half = reinterpret_cast<const uint16_t*>(weight.data)[packed_place(row, col, weight.cols)];
  return weight.type == DType::f16 ? __half2float(__ushort_as_half(half)) : __uint_as_float(uint32_t{half} << 16);
}

}  // namespace millrace::cuda

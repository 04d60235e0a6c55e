// Half a quantised chunk, eight outputs (packed.h), as operands of matrix instructions: lane 4g + t of a warp has, of
// every sixteen inputs, numbers 2t, 2t + 1 and 2t + 8, 2t + 9 of output g. Two factors an output, bfloat16.
//   Q8_0  sixteen bytes a lane, with 128 added
//   Q4_0  eight bytes a lane
//   Q4_K  the same, and what is taken off, negative, beside the factors
// A word of four-bit numbers has those of four pairs: pair i from bit 4i and from bit 16 + 4i on.
//
// The lowest eight bits of a bfloat16, with nothing above them, count steps of 2^-133. So small integers are numbers as
// they stand, and one multiplication and addition, rounded once, makes weights of them. Their factors are kept times
// 2^69, what is added times 2^-64: weights come out times 2^-64, and inputs that meet them are raised by 2^64, which
// loses nothing.
#pragma once

#include "backend/cuda/packed.h"
#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline __nv_bfloat162 as_pair(uint32_t bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); }
__device__ inline uint32_t as_bits(__nv_bfloat162 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

inline constexpr float kRaise = 0x1p64f;          // of inputs, and of weights for themselves
inline constexpr float kFactorRaise = 0x1p69f;    // of factors
inline constexpr float kAddedRaise = 1 / kRaise;  // of what is added
__device__ inline __nv_bfloat162 pair_of(uint16_t bits) { return as_pair(bits * 0x10001u); }
__device__ inline uint32_t raised(uint32_t pair) { return as_bits(__hmul2(as_pair(pair), pair_of(0x5F80))); }
__device__ inline uint32_t lowered(uint32_t pair) { return as_bits(__hmul2(as_pair(pair), pair_of(0x1F80))); }
__device__ inline __nv_bfloat162 both_halves(uint32_t two, int which) {
  return as_pair(__byte_perm(two, 0, which == 0 ? 0x1010 : 0x3232));
}

// step(i) gives the operands of the chunk's sixteen inputs number i.
template <DType Type>
struct Unpack;

template <>
struct Unpack<DType::q8_0> {
  uint4 numbers;
  uint32_t factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    factors = reinterpret_cast<const uint32_t*>(chunk + 512)[lane / 4];
  }
  __device__ __forceinline__ uint2 step(int i) const {
    const uint32_t four = i == 0 ? numbers.x : i == 1 ? numbers.y : i == 2 ? numbers.z : numbers.w;
    const __nv_bfloat162 factor = both_halves(factors, i / 2), less = __hmul2(factor, pair_of(0x8080));  // -128 steps
    return {as_bits(__hfma2(as_pair(__byte_perm(four, 0, 0x4140)), factor, less)),
            as_bits(__hfma2(as_pair(__byte_perm(four, 0, 0x4342)), factor, less))};
  }
};

// Two pairs of four-bit numbers: from the lowest bits as they stand, and from the four bits above them, which count
// sixteen times as much, so that nothing need be shifted.
__device__ __forceinline__ uint2 two_pairs(uint32_t word, __nv_bfloat162 factor, __nv_bfloat162 add) {
  const __nv_bfloat162 sixteenth = __hmul2(factor, pair_of(0x3D80));
  return {as_bits(__hfma2(as_pair(word & 0x000F000Fu), factor, add)),
          as_bits(__hfma2(as_pair(word & 0x00F000F0u), sixteenth, add))};
}

template <>
struct Unpack<DType::q4_0> {
  uint2 numbers;
  uint32_t factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint2*>(chunk)[lane];
    factors = reinterpret_cast<const uint32_t*>(chunk + 256)[lane / 4];
  }
  __device__ __forceinline__ uint2 step(int i) const {
    const uint32_t word = i < 2 ? numbers.x : numbers.y;
    const __nv_bfloat162 factor = both_halves(factors, i / 2);
    return two_pairs(i % 2 == 0 ? word : word >> 8, factor, __hmul2(factor, pair_of(0x8008)));  // -8 steps
  }
};

template <>
struct Unpack<DType::q4_k> {
  uint2 numbers;
  uint2 factors;  // and what is added

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint2*>(chunk)[lane];
    factors = reinterpret_cast<const uint2*>(chunk + 256)[lane / 4];
  }
  __device__ __forceinline__ uint2 step(int i) const {
    const uint32_t word = i < 2 ? numbers.x : numbers.y;
    return two_pairs(i % 2 == 0 ? word : word >> 8, both_halves(factors.x, i / 2), both_halves(factors.y, i / 2));
  }
};

// Number (row, col) of weights in panels.
template <DType Type>
__device__ float unpacked(const Weight& weight, int64_t row, int64_t col) {
  const int c = static_cast<int>(col % 16), lane = static_cast<int>(row % 8) * 4 + c % 8 / 2;
  const int64_t chunk = row / kPanel * chunks_of(weight.cols) + col / kChunkInputs;
  Unpack<Type> numbers;
  numbers.load(reinterpret_cast<const char*>(weight.data) + (chunk * 2 + row % kPanel / 8) * (chunk_bytes(Type) / 2),
               lane);
  const uint2 operand = numbers.step(static_cast<int>(col % kChunkInputs) / 16);
  const uint32_t pair = c < 8 ? operand.x : operand.y;
  return __uint_as_float(c % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u) * kRaise;
}
__device__ inline float packed_value(const Weight& weight, int64_t row, int64_t col) {
  if (weight.type == DType::q8_0) return unpacked<DType::q8_0>(weight, row, col);
  if (weight.type == DType::q4_0) return unpacked<DType::q4_0>(weight, row, col);
  if (weight.type == DType::q4_k) return unpacked<DType::q4_k>(weight, row, col);
  const uint16_t half = reinterpret_cast<const uint16_t*>(weight.data)[packed_place(row, col, weight.cols)];
  return weight.type == DType::f16 ? __half2float(__ushort_as_half(half)) : __uint_as_float(uint32_t{half} << 16);
}

}  // namespace millrace::cuda

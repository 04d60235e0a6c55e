// Half a quantised chunk, eight outputs (packed.h), as operands of matrix instructions: lane 4g + t of a warp has, of
// every sixteen inputs, numbers 2t, 2t + 1 and 2t + 8, 2t + 9 of output g.
//   Q8_0  sixteen bytes a lane, with 128 added; two float16 factors an output; multiplied in float32, which is exact,
//         and rounded once
//   Q4_0  eight bytes a lane; the factors rounded to bfloat16
//   Q4_K  the same, and what is taken off, negative, beside the factors
// A word of four-bit numbers has those of four pairs: pair i from bit 4i and from bit 16 + 4i on.
#pragma once

#include "backend/cuda/packed.h"
#include "backend/cuda/ptx.cuh"
#include "backend/ops.h"

namespace millrace::cuda {

__device__ inline __nv_bfloat162 as_pair(uint32_t bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); }
__device__ inline uint32_t as_bits(__nv_bfloat162 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }
__device__ inline uint32_t round_pair(float low, float high) { return as_bits(__floats2bfloat162_rn(low, high)); }

// step(i) gives the operands of the chunk's sixteen inputs number i.
template <DType Type>
struct Unpack;

template <>
struct Unpack<DType::q8_0> {
  uint4 numbers;
  float factors[2];

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    const uint32_t both = reinterpret_cast<const uint32_t*>(chunk + 512)[lane / 4];
    const float2 wide = __half22float2(*reinterpret_cast<const __half2*>(&both));
    factors[0] = wide.x, factors[1] = wide.y;
  }
  // A byte below the bits of 2^15 is that and the number: taking 2^15 + 128 off as it is multiplied loses nothing.
  __device__ static float number(uint32_t four, uint32_t i, float factor, float less) {
    return __fmaf_rn(__uint_as_float(__byte_perm(four, 0x47000000u, 0x7404u + (i << 4))), factor, less);
  }
  __device__ __forceinline__ uint2 step(int i) const {
    const uint32_t four = i == 0 ? numbers.x : i == 1 ? numbers.y : i == 2 ? numbers.z : numbers.w;
    const float factor = factors[i / 2], less = factor * -32896.0f;
    return {round_pair(number(four, 0, factor, less), number(four, 1, factor, less)),
            round_pair(number(four, 2, factor, less), number(four, 3, factor, less))};
  }
};

// Two four-bit numbers as bfloat16 with 128 added, which is their bits below those of 128.
__device__ inline __nv_bfloat162 nibbles(uint32_t word, int pair) {
  return as_pair((word >> (4 * pair) & 0x000F000Fu) | 0x43004300u);
}
__device__ inline __nv_bfloat162 both_halves(uint32_t two, int which) {
  return as_pair(__byte_perm(two, 0, which == 0 ? 0x1010 : 0x3232));
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
    const __nv_bfloat162 factor = both_halves(factors, i / 2), middle = as_pair(0x43084308u);
    return {as_bits(__hmul2(__hsub2(nibbles(word, i % 2 * 2), middle), factor)),
            as_bits(__hmul2(__hsub2(nibbles(word, i % 2 * 2 + 1), middle), factor))};
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
    const __nv_bfloat162 factor = both_halves(factors.x, i / 2), add = both_halves(factors.y, i / 2),
                         base = as_pair(0x43004300u);
    return {as_bits(__hfma2(__hsub2(nibbles(word, i % 2 * 2), base), factor, add)),
            as_bits(__hfma2(__hsub2(nibbles(word, i % 2 * 2 + 1), base), factor, add))};
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

// A quantised chunk of sixteen outputs (packed.h) as operands of matrix instructions: lane 4g + t of a warp has, of
// every sixteen inputs, numbers 2t, 2t + 1 and 2t + 8, 2t + 9 of outputs g and g + 8. Two factors an output, bfloat16.
//   Q8_0  sixteen bytes a lane of outputs 0..7, then of 8..15, with 128 added; factors of g and g + 8
//   Q4_0  eight bytes of either, sixteen a lane; the same factors
//   Q4_K  the same, and what is taken off, negative, behind the factors of each
//   Q5_K  as Q4_K, but behind the lowest four bits come the fifth, four bytes a lane: pair i of outputs 0..7 from bit i
//   and
//         16 + i, of outputs 8..15 from bit 8 + i and 24 + i
//   Q6_K  the lowest four bits as in Q4_0; then the upper two, four bytes a lane of outputs 0..7 and of 8..15, pair i
//   from
//         bit 2i and from bit 16 + 2i on; four factors an output, one for each sixteen inputs
//   MXFP4 as Q4_0, but numbers are a sign, two bits of exponent and one of mantissa, and factors powers of two
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
// One of two numbers, twice. Written so that it is part of the instruction that uses it.
__device__ __forceinline__ __nv_bfloat162 both(__nv_bfloat162 two, int which) {
  uint32_t bits;
  if (which == 0)
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(bits) : "r"(as_bits(two)));
  else
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(bits) : "r"(as_bits(two)));
  return as_pair(bits);
}

// Step i's two pairs of four-bit numbers: from the lowest bits as they stand, and from the four bits above them, which
// count sixteen times as much, so that nothing need be shifted. Of factors and what is added, the first is of steps 0
// and 1, the other of 2 and 3.
__device__ __forceinline__ uint2 two_pairs(const uint2& numbers, __nv_bfloat162 factors, __nv_bfloat162 added, int i) {
  const uint32_t four = i < 2 ? numbers.x : numbers.y, word = i % 2 == 0 ? four : four >> 8;
  const __nv_bfloat162 sixteenths = __hmul2(factors, pair_of(0x3D80)), add = both(added, i / 2);
  return {as_bits(__hfma2(as_pair(word & 0x000F000Fu), both(factors, i / 2), add)),
          as_bits(__hfma2(as_pair(word & 0x00F000F0u), both(sixteenths, i / 2), add))};
}

// half(side, i) gives the operands of the chunk's sixteen inputs number i of outputs 0..7 or 8..15.
template <DType Type>
struct Unpack;

template <>
struct Unpack<DType::q8_0> {
  uint4 numbers[2];
  uint2 factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers[0] = reinterpret_cast<const uint4*>(chunk)[lane];
    numbers[1] = reinterpret_cast<const uint4*>(chunk)[lane + 32];
    factors = reinterpret_cast<const uint2*>(chunk + 1024)[lane / 4];
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint4& of = numbers[side];
    const uint32_t four = i == 0 ? of.x : i == 1 ? of.y : i == 2 ? of.z : of.w;
    const __nv_bfloat162 two = as_pair(side == 0 ? factors.x : factors.y), factor = both(two, i / 2),
                         less = both(__hmul2(two, pair_of(0x8080)), i / 2);  // -128 steps
    return {as_bits(__hfma2(as_pair(__byte_perm(four, 0, 0x4140)), factor, less)),
            as_bits(__hfma2(as_pair(__byte_perm(four, 0, 0x4342)), factor, less))};
  }
};

template <>
struct Unpack<DType::q4_0> {
  uint4 numbers;
  uint2 factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    factors = reinterpret_cast<const uint2*>(chunk + 512)[lane / 4];
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint2 of = side == 0 ? uint2{numbers.x, numbers.y} : uint2{numbers.z, numbers.w};
    const __nv_bfloat162 two = as_pair(side == 0 ? factors.x : factors.y);
    return two_pairs(of, two, __hmul2(two, pair_of(0x8008)), i);  // -8 steps
  }
};

template <>
struct Unpack<DType::q4_k> {
  uint4 numbers;
  uint4 factors;  // and what is added

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    factors = reinterpret_cast<const uint4*>(chunk + 512)[lane / 4];
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint2 of = side == 0 ? uint2{numbers.x, numbers.y} : uint2{numbers.z, numbers.w};
    return two_pairs(of, as_pair(side == 0 ? factors.x : factors.z), as_pair(side == 0 ? factors.y : factors.w), i);
  }
};

template <>
struct Unpack<DType::q5_k> {
  uint4 numbers;
  uint32_t upper;
  uint4 factors;  // and what is added

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    upper = reinterpret_cast<const uint32_t*>(chunk + 512)[lane];
    factors = reinterpret_cast<const uint4*>(chunk + 640)[lane / 4];
  }
  // The fifth bits of a pair, where the fifth bit is.
  __device__ __forceinline__ uint32_t above(int pair) const {
    return (pair < 4 ? upper << (4 - pair) : upper >> (pair - 4)) & 0x00100010u;
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint2 of = side == 0 ? uint2{numbers.x, numbers.y} : uint2{numbers.z, numbers.w};
    const uint32_t four = i < 2 ? of.x : of.y, word = i % 2 == 0 ? four : four >> 8;
    const __nv_bfloat162 factor = both(as_pair(side == 0 ? factors.x : factors.z), i / 2),
                         add = both(as_pair(side == 0 ? factors.y : factors.w), i / 2);
    const uint32_t first = (word & 0x000F000Fu) | above(8 * side + 2 * i),
                   second = (word >> 4 & 0x000F000Fu) | above(8 * side + 2 * i + 1);
    return {as_bits(__hfma2(as_pair(first), factor, add)), as_bits(__hfma2(as_pair(second), factor, add))};
  }
};

template <>
struct Unpack<DType::q6_k> {
  uint4 numbers;
  uint2 upper;
  uint4 factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    upper = reinterpret_cast<const uint2*>(chunk + 512)[lane];
    factors = reinterpret_cast<const uint4*>(chunk + 768)[lane / 4];
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint2 of = side == 0 ? uint2{numbers.x, numbers.y} : uint2{numbers.z, numbers.w};
    const uint32_t above = side == 0 ? upper.x : upper.y;
    const uint32_t four = i < 2 ? of.x : of.y, word = i % 2 == 0 ? four : four >> 8;
    const uint2 all = side == 0 ? uint2{factors.x, factors.y} : uint2{factors.z, factors.w};
    const __nv_bfloat162 two = as_pair(i < 2 ? all.x : all.y), factor = both(two, i % 2),
                         less = both(__hmul2(two, pair_of(0x8020)), i % 2);  // -32 steps
    const uint32_t first_above = i == 0 ? above << 4 : above >> (4 * i - 4),
                   second_above = i == 0 ? above << 2 : above >> (4 * i - 2);
    const uint32_t first = (word & 0x000F000Fu) | (first_above & 0x00300030u),
                   second = (word >> 4 & 0x000F000Fu) | (second_above & 0x00300030u);
    return {as_bits(__hfma2(as_pair(first), factor, less)), as_bits(__hfma2(as_pair(second), factor, less))};
  }
};

// Exponent and mantissa of a number, where a bfloat16 has its lowest bits of exponent and its highest of mantissa, are
// the number times 2^-126.
template <>
struct Unpack<DType::mxfp4> {
  uint4 numbers;
  uint2 factors;

  __device__ __forceinline__ void load(const char* chunk, int lane) {
    numbers = reinterpret_cast<const uint4*>(chunk)[lane];
    factors = reinterpret_cast<const uint2*>(chunk + 512)[lane / 4];
  }
  __device__ __forceinline__ uint2 half(int side, int i) const {
    const uint2 of = side == 0 ? uint2{numbers.x, numbers.y} : uint2{numbers.z, numbers.w};
    const uint32_t four = i < 2 ? of.x : of.y, word = i % 2 == 0 ? four : four >> 8;
    const __nv_bfloat162 factor = both(as_pair(side == 0 ? factors.x : factors.y), i / 2);
    const uint32_t first = (word << 6 & 0x01C001C0u) | (word << 12 & 0x80008000u),
                   second = (word << 2 & 0x01C001C0u) | (word << 8 & 0x80008000u);
    return {as_bits(__hmul2(as_pair(first), factor)), as_bits(__hmul2(as_pair(second), factor))};
  }
};

// Number (row, col) of weights in panels.
template <DType Type>
__device__ float unpacked(const Weight& weight, int64_t row, int64_t col) {
  const int c = static_cast<int>(col % 16), lane = static_cast<int>(row % 8) * 4 + c % 8 / 2;
  const int64_t chunk = row / kPanel * chunks_of(weight.cols) + col / kChunkInputs;
  Unpack<Type> numbers;
  numbers.load(reinterpret_cast<const char*>(weight.data) + chunk * chunk_bytes(Type), lane);
  const int side = static_cast<int>(row % kPanel) / 8, step = static_cast<int>(col % kChunkInputs) / 16;
  const uint2 operand = numbers.half(side, step);
  const uint32_t pair = c < 8 ? operand.x : operand.y;
  return __uint_as_float(c % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u) * kRaise;
}
__device__ inline float packed_value(const Weight& weight, int64_t row, int64_t col) {
  if (weight.type == DType::q8_0) return unpacked<DType::q8_0>(weight, row, col);
  if (weight.type == DType::q4_0) return unpacked<DType::q4_0>(weight, row, col);
  if (weight.type == DType::q4_k) return unpacked<DType::q4_k>(weight, row, col);
  if (weight.type == DType::q5_k) return unpacked<DType::q5_k>(weight, row, col);
  if (weight.type == DType::q6_k) return unpacked<DType::q6_k>(weight, row, col);
  if (weight.type == DType::mxfp4) return unpacked<DType::mxfp4>(weight, row, col);
  const uint16_t half = reinterpret_cast<const uint16_t*>(weight.data)[packed_place(row, col, weight.cols)];
  return weight.type == DType::f16 ? __half2float(__ushort_as_half(half)) : __uint_as_float(uint32_t{half} << 16);
}

}  // namespace millrace::cuda

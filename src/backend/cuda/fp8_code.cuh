// How a row of inputs is rounded to FP8, or to INT8, by kRowThreads threads. Device code.
#pragma once

#include <cuda_fp8.h>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {

// The largest code.
__device__ inline float largest_code(bool integers) { return integers ? 127.0f : 448.0f; }

// A row's factor brings its largest number, as bfloat16, to the largest code.
struct Factor {
  float up, down;
};
__device__ inline Factor row_factor_of(float largest, bool integers, float* room) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowThreads / 32; ++i) largest = fmaxf(largest, room[i]);
  const float most = largest_code(integers);
  return {largest > 0 ? __fdiv_rn(most, largest) : 0.0f, __fdiv_rn(largest, most)};
}
__device__ inline float as_bfloat16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
__device__ inline float largest_of(const float4& four) {
  return fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
}
__device__ inline uint32_t code_of(bool integers, float value) {
  if (!integers) return uint32_t{__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
  return static_cast<uint32_t>(min(max(__float2int_rn(value), -127), 127)) & 255u;
}
__device__ inline uint32_t codes_of(bool integers, const float4& four, float up) {
  const float values[4] = {four.x, four.y, four.z, four.w};
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) codes |= code_of(integers, values[i] * up) << (8 * i);
  return codes;
}
// Numbers low and high of two bfloat16 pairs.
__device__ inline float4 four_of(uint32_t first, uint32_t second) {
  return {__uint_as_float(first << 16), __uint_as_float(first & 0xFFFF0000u), __uint_as_float(second << 16),
          __uint_as_float(second & 0xFFFF0000u)};
}

// Rows of bfloat16 that are held in registers, eight numbers at a time: so many eights a thread.
inline constexpr int kHeldEights = 8;

}  // namespace millrace::cuda

// Inputs rounded to FP8, or to INT8, with a factor for each row, and such weights of a file brought into the layout of
// fp8_rows.cu.
#include <cuda_fp8.h>

#include "backend/cuda/packed.h"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

// The largest code.
__device__ inline float largest_code(const CodedRows& to) { return to.integers ? 127.0f : 448.0f; }

// A row's factor brings its largest number, as bfloat16, to the largest code.
struct Factor {
  float up, down;
};
__device__ inline Factor row_factor_of(float largest, const CodedRows& to, float* room) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowThreads / 32; ++i) largest = fmaxf(largest, room[i]);
  const float most = largest_code(to);
  return {largest > 0 ? __fdiv_rn(most, largest) : 0.0f, __fdiv_rn(largest, most)};
}
__device__ inline float as_bfloat16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
__device__ inline float largest_of(const float4& four) {
  return fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
}
__device__ inline uint32_t code_of(const CodedRows& to, float value) {
  if (!to.integers) return uint32_t{__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
  return static_cast<uint32_t>(min(max(__float2int_rn(value), -127), 127)) & 255u;
}
__device__ inline uint32_t codes_of(const CodedRows& to, const float4& four, float up) {
  const float values[4] = {four.x, four.y, four.z, four.w};
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) codes |= code_of(to, values[i] * up) << (8 * i);
  return codes;
}
// Numbers low and high of two bfloat16 pairs.
__device__ inline float4 four_of(uint32_t first, uint32_t second) {
  return {__uint_as_float(first << 16), __uint_as_float(first & 0xFFFF0000u), __uint_as_float(second << 16),
          __uint_as_float(second & 0xFFFF0000u)};
}

// Rows of bfloat16 on multiples of sixteen bytes, eight numbers at a time, in registers.
constexpr int kHeldEights = 8;
__global__ void __launch_bounds__(kRowThreads) code_halves_kernel(View in, CodedRows to) {
  __shared__ float room[kRowThreads / 32];
  let_next_start();
  see_previous_end();
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const char*>(in.data) + blockIdx.x * in.stride);
  auto* out = reinterpret_cast<char*>(to.data) + blockIdx.x * to.stride;
  const int eights = in.cols / 8;
  uint4 values[kHeldEights];
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j) {
    const int at = static_cast<int>(threadIdx.x) + j * kRowThreads;
    values[j] = at < eights ? from[at] : uint4{};
  }
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j)
    largest = fmaxf(
        largest, fmaxf(largest_of(four_of(values[j].x, values[j].y)), largest_of(four_of(values[j].z, values[j].w))));
  const Factor factor = row_factor_of(largest, to, room);
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j) {
    const int at = static_cast<int>(threadIdx.x) + j * kRowThreads;
    if (at < eights)
      reinterpret_cast<uint2*>(out)[at] = {codes_of(to, four_of(values[j].x, values[j].y), factor.up),
                                           codes_of(to, four_of(values[j].z, values[j].w), factor.up)};
  }
  if (threadIdx.x == 0) *reinterpret_cast<float*>(out + in.cols) = factor.down;
}

// Any others.
__global__ void __launch_bounds__(kRowThreads) code_rows_kernel(View in, CodedRows to) {
  __shared__ float room[kRowThreads / 32];
  let_next_start();
  see_previous_end();
  const int64_t row = blockIdx.x;
  auto four_at = [&](int col) {
    const float4 four = read_four(in, row, col, 4);
    return float4{as_bfloat16(four.x), as_bfloat16(four.y), as_bfloat16(four.z), as_bfloat16(four.w)};
  };
  float largest = 0;
  for (int col = static_cast<int>(threadIdx.x) * 4; col < in.cols; col += kRowThreads * 4)
    largest = fmaxf(largest, largest_of(four_at(col)));
  const Factor factor = row_factor_of(largest, to, room);
  auto* out = reinterpret_cast<char*>(to.data) + row * to.stride;
  for (int col = static_cast<int>(threadIdx.x) * 4; col < in.cols; col += kRowThreads * 4)
    *reinterpret_cast<uint32_t*>(out + col) = codes_of(to, four_at(col), factor.up);
  if (threadIdx.x == 0) *reinterpret_cast<float*>(out + in.cols) = factor.down;
}

// A norm, written as bfloat16 as well.
template <int Each>
__global__ void __launch_bounds__(kRowThreads) code_normed_kernel(Norm norm, View in, View normed, CodedRows to) {
  __shared__ float sums[8], room[kRowThreads / 32];
  const int64_t row = blockIdx.x;
  NormedRow<Each> numbers(norm.kind, norm.epsilon, in.cols, norm.weight);
  numbers.load_weights();
  let_next_start();
  see_previous_end();
  numbers.load([&](int i, int left) { return read_four(in, row, i, left); });
  float largest = 0;
  numbers.finish(norm.bias, sums, [&](int i, const float4& four, int left) {
    const float4 rounded = {as_bfloat16(four.x), as_bfloat16(four.y), as_bfloat16(four.z), as_bfloat16(four.w)};
    largest = fmaxf(largest, largest_of(rounded));
    write_four(normed, row, i, rounded, left);
  });
  const Factor factor = row_factor_of(largest, to, room);
  auto* out = reinterpret_cast<char*>(to.data) + row * to.stride;
  numbers.each([&](int, int i) {  // what this thread has written
    *reinterpret_cast<uint32_t*>(out + i) = codes_of(to, read_four(normed, row, i, 4), factor.up);
  });
  if (threadIdx.x == 0) *reinterpret_cast<float*>(out + in.cols) = factor.down;
}

// A thread for four bytes of codes, and for a factor.
__global__ void pack_fp8_kernel(const uint8_t* from, int64_t first, int64_t rows, int64_t all, int64_t cols,
                                uint8_t* to) {
  constexpr int kGroupBytes = 4 + kFp8Block;
  wait_for_previous();
  const int64_t blocks = cols / kFp8Block, words = cols / 4, each = words + blocks;
  auto* factors = reinterpret_cast<float*>(to + fp8_rows_of(all) * cols);
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * each;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / each, word = i % each, place = first + row;
    const uint8_t* group = from + row * blocks * kGroupBytes;
    if (word < words) {
      group += word / 32 * kGroupBytes + 4 + word % 32 * 4;
      reinterpret_cast<uint32_t*>(to + place * cols)[word] = *reinterpret_cast<const uint32_t*>(group);
    } else {
      const int64_t block = word - words;
      factors[(place / kFp8Tile * blocks + block) * kFp8Tile + place % kFp8Tile] =
          *reinterpret_cast<const float*>(group + block * kGroupBytes);
    }
  }
}

}  // namespace

void code_rows(cudaStream_t stream, View in, const CodedRows& to) {
  const bool halves = in.form == Form::bf16 && in.cols <= kHeldEights * 8 * kRowThreads && in.stride % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(in.data) % 16 == 0;
  launch(stream, halves ? code_halves_kernel : code_rows_kernel, count(in.rows), kRowThreads, 0, in, to);
}

bool code_normed(cudaStream_t stream, const Norm& norm, View in, View normed, const CodedRows& to) {
  if (in.cols > 32 * kRowThreads || normed.form != Form::bf16) return false;
  const auto kernel = in.cols <= 16 * kRowThreads ? code_normed_kernel<4> : code_normed_kernel<8>;
  launch(stream, kernel, count(in.rows), kRowThreads, 0, norm, in, normed, to);
  return true;
}

void pack_fp8(cudaStream_t stream, const std::byte* from, int64_t first, int64_t rows, int64_t all, int64_t cols,
              std::byte* to) {
  launch(stream, pack_fp8_kernel, 1024, 256, 0, reinterpret_cast<const uint8_t*>(from), first, rows, all, cols,
         reinterpret_cast<uint8_t*>(to));
}

cudaError_t load_fp8_code() { return load_kernels(); }

}  // namespace millrace::cuda

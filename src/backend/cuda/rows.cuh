// What kernels share: reading and writing activations in any form, sums over a thread group, activations.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

namespace millrace::cuda {

inline constexpr int kRowThreads = 256;  // of every kernel that sums over a row: part of the meaning of its bits

__device__ inline float read(const View& view, int64_t row, int64_t col) {
  const char* at = static_cast<const char*>(view.data) + row * view.stride;
  if (view.form == Form::f32) return reinterpret_cast<const float*>(at)[col];
  if (view.form == Form::bf16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(at)[col]);
  return __half2float(reinterpret_cast<const __half*>(at)[col]);
}

// The same of what other thread groups of a kernel that still runs have written.
__device__ inline float read_fresh(const View& view, int64_t row, int64_t col) {
  const char* at = static_cast<const char*>(view.data) + row * view.stride;
  if (view.form == Form::f32) return __ldcg(reinterpret_cast<const float*>(at) + col);
  const unsigned short half = __ldcg(reinterpret_cast<const unsigned short*>(at) + col);
  return view.form == Form::bf16 ? __uint_as_float(uint32_t{half} << 16) : __half2float(__ushort_as_half(half));
}

__device__ inline void write(const View& view, int64_t row, int64_t col, float value) {
  char* at = static_cast<char*>(view.data) + row * view.stride;
  if (view.form == Form::f32) {
    reinterpret_cast<float*>(at)[col] = value;
  } else if (view.form == Form::bf16) {
    reinterpret_cast<__nv_bfloat16*>(at)[col] = __float2bfloat16_rn(value);
  } else {
    reinterpret_cast<__half*>(at)[col] = __float2half_rn(value);
  }
}

// All kRowThreads threads that work on a row; a kernel may have others beside them.
__device__ inline void rows_sync() { asm volatile("barrier.sync 1, %0;" ::"n"(kRowThreads) : "memory"); }

// Sum over kRowThreads threads, the same for all of them, in an order that never changes.
__device__ inline float group_sum(float value, float* room) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  rows_sync();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  rows_sync();
  return ((room[0] + room[1]) + (room[2] + room[3])) + ((room[4] + room[5]) + (room[6] + room[7]));
}

__device__ inline float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::silu:
      return __fdividef(x, 1 + __expf(-x));
    case Activation::gelu:
      return 0.5f * x * (1 + erff(x * 0.70710678f));
    case Activation::gelu_tanh:
      return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::relu:
      return fmaxf(x, 0);
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
  }
  return x;
}

// The norm of a row (or a part of one) by kRowThreads threads, each with every kRowThreads-th number in registers, at
// most Each of them. Weights may be read before the row is there.
template <int Each>
struct NormedRow {
  NormKind kind;
  float epsilon;
  int width;
  float values[Each], weights[Each];

  __device__ NormedRow(NormKind norm_kind, float norm_epsilon, int numbers, const float* weight)
      : kind(norm_kind), epsilon(norm_epsilon), width(numbers) {
    each([&](int j, int i) { weights[j] = weight != nullptr ? weight[i] : 1.0f; });
  }
  template <class F>
  __device__ void each(F&& body) {
#pragma unroll
    for (int j = 0; j < Each; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kRowThreads;
      if (i < width) body(j, i);
    }
  }
  // get(i) is number i; put(i, value) takes the normed one. room: eight numbers in shared memory.
  template <class Get, class Put>
  __device__ void run(const float* bias, float* room, Get&& get, Put&& put) {
    each([&](int j, int i) { values[j] = get(i); });
    float mean = 0, square = 0;
    if (kind == NormKind::layer) {
      each([&](int j, int) { mean += values[j]; });
      mean = group_sum(mean, room) / static_cast<float>(width);
    }
    each([&](int j, int) {
      const float v = values[j] - mean;
      square += v * v;
    });
    const float factor = rsqrtf(group_sum(square, room) / static_cast<float>(width) + epsilon);
    each([&](int j, int i) {
      float value = (values[j] - mean) * factor * weights[j];
      if (bias != nullptr) value += bias[i];
      put(i, value);
    });
  }
};

inline int multiprocessors() {
  static const int found = [] {
    int device = 0, number = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device);
    return number > 0 ? number : 1;
  }();
  return found;
}

inline unsigned count(int64_t value) { return static_cast<unsigned>(value); }  // of thread groups

// Gives a kernel all the shared memory there is, so that the next one finds room beside it on the same multiprocessor;
// `bytes` is the most it will ask for itself.
template <class... P>
bool prepare(void (*kernel)(P...), int bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return true;
}

// Queues a kernel that may start while the one before still runs (ptx.cuh says how they wait).
template <class... P, class... A>
void launch(cudaStream_t stream, void (*kernel)(P...), dim3 grid, int threads, size_t shared, A&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, P(arguments)...);
}

}  // namespace millrace::cuda

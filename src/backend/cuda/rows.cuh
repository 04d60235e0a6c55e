// What kernels share: reading and writing activations in any form, sums over a thread block, activations.
#pragma once

#include "backend/cuda/kernels.h"
#include "backend/cuda/load.cuh"
#include "backend/cuda/ptx.cuh"

namespace millrace::cuda {

inline constexpr int kRowThreads = 256;  // of every kernel that sums over a row: part of the meaning of its bits

__device__ inline float read(const View& view, int64_t row, int64_t col) {
  const char* at = static_cast<const char*>(view.data) + row * view.stride;
  if (view.form == Form::f32) return reinterpret_cast<const float*>(at)[col];
  if (view.form == Form::bf16) return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(at)[col]);
  return __half2float(reinterpret_cast<const __half*>(at)[col]);
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

// Two numbers rounded to sixteen bits each.
template <class T>
__device__ uint32_t two(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}
__device__ inline uint32_t two(Form form, float low, float high) {
  return form == Form::f16 ? two<__half>(low, high) : two<__nv_bfloat16>(low, high);
}

// The first position that a row at `position` sees without a gap, as Attention::begin() has it.
__device__ inline int sight_begin(const Attention& attention, int position) {
  const int cut = attention.grid > 0 ? position / attention.grid * attention.grid : 0;
  const int first = attention.window > 0 ? max(cut, position - attention.window + 1) : cut;
  return first <= attention.kept ? 0 : first;
}

// Where what it sees ends, as Attention::end() has it.
__device__ inline int sight_end(const Attention& attention, int position, int visible) {
  return attention.ahead > 0 ? min(visible, position + attention.ahead + 1) : visible;
}

// Sum over the first kRowThreads threads, the same for all of them, in an order that never changes.
__device__ inline void row_sync() { asm volatile("barrier.sync 15, %0;" ::"n"(kRowThreads) : "memory"); }
__device__ inline float group_sum(float value, float* room) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  row_sync();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  row_sync();
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
    case Activation::sigmoid:
      return __fdividef(1, 1 + __expf(-x));
    case Activation::none:
      return x;
  }
  return x;
}
__device__ inline float limited(const GluLimit& limit, float gate, float up) {
  const float g = fminf(gate, limit.limit), u = fminf(fmaxf(up, -limit.limit), limit.limit);
  return (u + limit.shift) * g / (1 + expf(-limit.slope * g));
}
// Four neighbouring numbers of a row, or the `left` that there are and zeros.
__device__ inline float4 read_four(const float* from, int left) {
  if (left >= 4 && reinterpret_cast<uintptr_t>(from) % 16 == 0) return *reinterpret_cast<const float4*>(from);
  float4 four = {from[0], 0, 0, 0};
  if (left > 1) four.y = from[1];
  if (left > 2) four.z = from[2];
  if (left > 3) four.w = from[3];
  return four;
}
__device__ inline float4 read_four(const View& view, int64_t row, int64_t col, int left) {
  if (view.form == Form::f32)
    return read_four(reinterpret_cast<const float*>(static_cast<const char*>(view.data) + row * view.stride) + col,
                     left);
  float4 four = {read(view, row, col), 0, 0, 0};
  if (left > 1) four.y = read(view, row, col + 1);
  if (left > 2) four.z = read(view, row, col + 2);
  if (left > 3) four.w = read(view, row, col + 3);
  return four;
}
__device__ inline void write_four(const View& view, int64_t row, int64_t col, const float4& four, int left) {
  const int bytes = view.form == Form::f32 ? 16 : 8;
  char* at = static_cast<char*>(view.data) + row * view.stride + col * (bytes / 4);
  if (left >= 4 && reinterpret_cast<uintptr_t>(at) % bytes == 0) {
    if (view.form == Form::f32)
      *reinterpret_cast<float4*>(at) = four;
    else
      *reinterpret_cast<uint2*>(at) = {two(view.form, four.x, four.y), two(view.form, four.z, four.w)};
    return;
  }
  write(view, row, col, four.x);
  if (left > 1) write(view, row, col + 1, four.y);
  if (left > 2) write(view, row, col + 2, four.z);
  if (left > 3) write(view, row, col + 3, four.w);
}

// The norm of a row (or a part of one) by kRowThreads threads, each with every kRowThreads-th four numbers in
// registers, at most Each times. Few instructions on purpose: they are gone through once, and fetching them takes
// longer than executing them.
// Even: the row and its weights are so many whole fours, and lie on multiples of sixteen bytes. Held: the weights are
// in registers too, and may be asked for before they are needed.
template <int Each, bool Even = false, bool Held = (Each <= 8)>
struct NormedRow {
  NormKind kind;
  float epsilon;
  int width;
  const float* weight;
  float4 values[Each], weights[Held ? Each : 1];

  __device__ NormedRow(NormKind norm_kind, float norm_epsilon, int numbers, const float* norm_weight)
      : kind(norm_kind), epsilon(norm_epsilon), width(numbers), weight(norm_weight) {}
  __device__ static float4 four_at(const float* from, int left) {
    if constexpr (Even) return *reinterpret_cast<const float4*>(from);
    return read_four(from, left);
  }
  __device__ float4 weight_at(int i) const {
    return weight != nullptr ? four_at(weight + i, width - i) : make_float4(1, 1, 1, 1);
  }
  template <class F>
  __device__ void each(F&& body) {
#pragma unroll
    for (int j = 0; j < Each; ++j) {
      const int i = (static_cast<int>(threadIdx.x) + j * kRowThreads) * 4;
      if (i < width) body(j, i);
    }
  }
  __device__ void take_mean(float mean) {
    each([&](int j, int i) {
      float4& v = values[j];
      v.x -= mean;
      v.y = Even || width - i > 1 ? v.y - mean : 0;
      v.z = Even || width - i > 2 ? v.z - mean : 0;
      v.w = Even || width - i > 3 ? v.w - mean : 0;
    });
  }
  // Before finish(); they do not depend on the row.
  __device__ void load_weights() {
    if constexpr (Held) {
      if (weight != nullptr) {
        each([&](int j, int i) { weights[j] = four_at(weight + i, width - i); });
      } else {
        each([&](int j, int) { weights[j] = make_float4(1, 1, 1, 1); });
      }
    }
  }
  // get(i, left) are numbers i to i + 3, or as many as are left.
  template <class Get>
  __device__ void load(Get&& get) {
    each([&](int j, int i) { values[j] = get(i, width - i); });
  }
  // put(i, four, left) takes the normed ones. room: eight numbers in shared memory.
  template <class Put>
  __device__ void finish(const float* bias, float* room, Put&& put) {
    if (kind == NormKind::layer) {
      float sum = 0;
      each([&](int j, int) { sum += (values[j].x + values[j].y) + (values[j].z + values[j].w); });
      take_mean(group_sum(sum, room) / static_cast<float>(width));
    }
    float square = 0;
    each([&](int j, int) {
      const float4& v = values[j];
      square += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
    });
    const float factor = rsqrtf(group_sum(square, room) / static_cast<float>(width) + epsilon);
    each([&](int j, int i) {
      const float4 v = values[j], w = Held ? weights[Held ? j : 0] : weight_at(i);
      float4 normed = {v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w};
      if (bias != nullptr) {
        const float4 add = four_at(bias + i, width - i);
        normed = {normed.x + add.x, normed.y + add.y, normed.z + add.z, normed.w + add.w};
      }
      put(i, normed, width - i);
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

inline unsigned count(int64_t value) { return static_cast<unsigned>(value); }  // of thread blocks

// Gives a kernel all the shared memory there is, so that the next one finds room beside it on the same multiprocessor;
// `bytes` is the most it will ask for itself.
template <class... P>
bool prepare(void (*kernel)(P...), int bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  return true;
}

// About the kernels of the file that asks: nothing here is shared between files.
namespace {
__global__ void asked_kernel() {}
[[maybe_unused]] cudaError_t load_kernels() { return load_file_of(reinterpret_cast<const void*>(asked_kernel)); }
// Whether they wait for the kernel before by themselves: those that were compiled for Hopper, and run as such, do.
[[maybe_unused]] bool kernels_wait() {
  static const bool found = [] {
    cudaFuncAttributes attributes = {};
    return cudaFuncGetAttributes(&attributes, asked_kernel) == cudaSuccess && attributes.ptxVersion >= 90;
  }();
  return found;
}
}  // namespace

// Queues a kernel that, where kernels wait by themselves (ptx.cuh), may start while the one before still runs. Clusters
// of more than one thread block are Hopper's.
struct Launch {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};

  Launch(cudaStream_t stream, dim3 grid, int threads, size_t shared, int cluster, bool early) {
    config.gridDim = grid;
    config.blockDim = static_cast<unsigned>(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    if (early) {
      attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
      attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    }
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
};
template <class... P, class... A>
static void launch(cudaStream_t stream, void (*kernel)(P...), dim3 grid, int threads, size_t shared, A&&... arguments) {
  const Launch how(stream, grid, threads, shared, 1, kernels_wait());
  cudaLaunchKernelEx(&how.config, kernel, P(arguments)...);
}

}  // namespace millrace::cuda

// What kernels for products of at most eight rows share: inputs in shared memory, normed first if need be, chunks of
// weights on their way through a warp's registers, and where sums go. kThreads threads, a warp for a panel.
#pragma once

#include <type_traits>

#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {

inline constexpr int kWarps = 8;
inline constexpr int kThreads = 32 * kWarps;
static_assert(kThreads == kRowThreads);

// A row of inputs in shared memory: in every 32, what a lane needs for two steps lies together. Rows start half a bank
// row apart.
__host__ __device__ constexpr int whole(int cols) { return (cols + kChunkInputs - 1) / kChunkInputs * kChunkInputs; }
__host__ __device__ constexpr int input_pitch(int cols) { return whole(cols) * 2 + 64; }
__device__ inline int input_place(int k) {
  return (k & ~31) + (k % 8 / 2) * 8 + k % 32 / 16 * 4 + k % 16 / 8 * 2 + k % 2;
}

template <class T>
__device__ T as(float value) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else
    return __float2bfloat16_rn(value);
}

template <class T>
__device__ void multiply(float (&sums)[4], const uint4& weights, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, weights, b0, b1);
  else
    multiply_add(sums, weights, b0, b1);
}

inline constexpr int kNormEach = 32;  // numbers of a thread, where a norm comes first

template <class T>
__device__ void bring_input(const Products& work, char* inputs) {
  const int cols = work.cols, rows = work.in.rows, pitch = input_pitch(cols);
  const char* from = static_cast<const char*>(work.in.data);
  if (work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16)) {
#pragma unroll 8
    for (int i = threadIdx.x; i < rows * (cols / 8); i += kThreads) {
      const int row = i / (cols / 8), eighth = i % (cols / 8);
      const uint4 eight = __ldcg(reinterpret_cast<const uint4*>(from + row * work.in.stride) + eighth);
      uint32_t* pairs = reinterpret_cast<uint32_t*>(inputs + row * pitch) + input_place(eighth * 8) / 2;
      pairs[0] = eight.x;
      pairs[4] = eight.y;
      pairs[8] = eight.z;
      pairs[12] = eight.w;
    }
    return;
  }
  for (int row = 0; row < rows; ++row) {
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += kThreads)
      reinterpret_cast<T*>(inputs + row * pitch)[input_place(i)] = as<T>(read_fresh(work.in, row, i));
  }
}

// Rows that are normed first are float32.
template <class T, int Each, class Wait>
__device__ void norm_input(const Products& work, const Norm& norm, char* inputs, float* room, Wait&& wait) {
  NormedRow<Each> numbers(norm.kind, norm.epsilon, work.cols, norm.weight);
  // Which part is written for others: each thread group has one, or the first has all.
  const int part = gridDim.x >= Each ? static_cast<int>(blockIdx.x) : blockIdx.x == 0 ? -1 : Each;
  wait();
  for (int row = 0; row < work.in.rows; ++row) {
    const auto* from = reinterpret_cast<const float*>(static_cast<const char*>(work.in.data) + row * work.in.stride);
    numbers.run(
        norm.bias, room, [&](int i) { return __ldcg(from + i); },
        [&](int i, float value) {
          reinterpret_cast<T*>(inputs + row * input_pitch(work.cols))[input_place(i)] = as<T>(value);
          if (part < 0 || i / kThreads == part) write(work.normed, row, i, value);
        });
  }
}

// Inputs, normed first if need be, and zeros in what the last chunk has beyond them. wait() returns when they can be
// read.
template <class T, bool Normed, class Wait>
__device__ void prepare_input(const Products& work, const Norm& norm, char* inputs, float* room, Wait&& wait) {
  const int cols = work.cols, pitch = input_pitch(cols);
  for (int i = threadIdx.x; i < work.in.rows * kChunkInputs; i += kThreads) {
    const int col = cols + i % kChunkInputs;
    if (col < whole(cols)) reinterpret_cast<T*>(inputs + i / kChunkInputs * pitch)[input_place(col)] = as<T>(0);
  }
  if constexpr (Normed) {
    if (cols <= kNormEach / 2 * kThreads)
      norm_input<T, kNormEach / 2>(work, norm, inputs, room, wait);
    else
      norm_input<T, kNormEach>(work, norm, inputs, room, wait);
  } else {
    wait();
    bring_input<T>(work, inputs);
  }
}

// A chunk of a panel on its way through a warp's registers: four steps of sixteen inputs. How lanes' sums belong to
// outputs and rows depends on which operand the weights are.
template <class T>
struct Halves {
  using Number = T;
  static constexpr int kBytes = kChunkBytes;
  static constexpr int kLeastGroups = 2, kMostGroups = 4;  // chunks of a stage
  uint4 weights[4];

  struct Sums {
    float all[4] = {};
    __device__ float value(int i) const { return all[i]; }
  };
  __device__ void load(const char* chunk, int lane) {
    const uint32_t from =
        shared_address(chunk) + static_cast<uint32_t>(lane % 8 * 16 + lane / 8 % 2 * 1024 + lane / 16 * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = load_matrices(from + static_cast<uint32_t>(i) * 256);
  }
  __device__ void multiply_into(Sums& sums, int i, uint32_t first, uint32_t second) const {
    multiply<T>(sums.all, weights[i], first, second);
  }
  __device__ static int row_of(int lane, int i) { return lane % 4 * 2 + i % 2; }
  __device__ static int output_of(int lane, int i) { return lane / 4 + i / 2 * 8; }
};

// Inputs are the first operand here, so that each half of the panel has a chain of its own.
template <DType Type>
struct Quantised {
  using Number = __nv_bfloat16;
  static constexpr int kBytes = chunk_bytes(Type);
  static constexpr int kLeastGroups = Type == DType::q8_0 ? 4 : 8, kMostGroups = 8;
  Unpack<Type> weights[2];

  struct Sums {
    float halves[2][4] = {};
    __device__ float value(int i) const { return halves[i / 2][i % 2]; }
  };
  __device__ void load(const char* chunk, int lane) {
    weights[0].load(chunk, lane);
    weights[1].load(chunk + kBytes / 2, lane);
  }
  __device__ void multiply_into(Sums& sums, int i, uint32_t first, uint32_t second) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 operand = weights[half].step(i);
      multiply<Number>(sums.halves[half], {first, 0, second, 0}, operand.x, operand.y);
    }
  }
  __device__ static int row_of(int lane, int) { return lane / 4; }
  __device__ static int output_of(int lane, int i) { return i / 2 * 8 + lane % 4 * 2 + i % 2; }
};

// The same with the inputs: in[0] has two steps' operands, in[1] the next two's.
template <class Format>
struct Group {
  Format weights;
  uint4 in[2];

  __device__ void load(const char* stage, int group, const uint4* inputs, int lane) {
    weights.load(stage + group * Format::kBytes, lane);
#pragma unroll
    for (int i = 0; i < 2; ++i) in[i] = inputs[(group * 2 + i) * 4];
  }
  __device__ void multiply_into(typename Format::Sums& sums) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights.multiply_into(sums, 2 * i, in[i].x, in[i].y);
      weights.multiply_into(sums, 2 * i + 1, in[i].z, in[i].w);
    }
  }
};

// A stage of weights: what comes next is read while this is multiplied. Unrolled, because one warp has little else to
// do while it waits for its own instructions.
template <class Format, int Groups>
__device__ __forceinline__ void take_whole(typename Format::Sums& sums, const char* stage, const uint4* inputs,
                                           int lane) {
  Group<Format> two[2];
  two[0].load(stage, 0, inputs, lane);
#pragma unroll
  for (int i = 0; i < Groups; ++i) {
    if (i + 1 < Groups) two[(i + 1) % 2].load(stage, i + 1, inputs, lane);
    __syncwarp();  // keeps the reads in front
    two[i % 2].multiply_into(sums);
  }
}
template <class Format>
__device__ __forceinline__ void take(typename Format::Sums& sums, const char* stage, int groups, const uint4* inputs,
                                     int lane) {
  if (groups == Format::kMostGroups) return take_whole<Format, Format::kMostGroups>(sums, stage, inputs, lane);
  if (groups == Format::kLeastGroups) return take_whole<Format, Format::kLeastGroups>(sums, stage, inputs, lane);
  for (int i = 0; i < groups; ++i) {
    Group<Format> one;
    one.load(stage, i, inputs, lane);
    one.multiply_into(sums);
  }
}

// Which panel of which part a unit of work (and, of gated ones, a side) is.
struct Place {
  int part, panel;
};
template <bool Gated>
__device__ inline Place place_of(const Products& work, int unit, int side) {
  if constexpr (Gated) return {side, unit};
  Place at = {0, unit};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int panels = (work.parts[i].rows + kPanel - 1) / kPanel;
    if (at.part == i && i + 1 < work.count && at.panel >= panels) at.panel -= panels, at.part = i + 1;
  }
  return at;
}

// What the stream of a panel's outputs was before; read long before it is needed.
template <class Format>
__device__ __forceinline__ void read_residual(const Products& work, const Place& at, float (&kept)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = Format::row_of(lane, i), row = at.panel * kPanel + Format::output_of(lane, i);
    if (token < work.in.rows && row < work.parts[0].rows)
      kept[i] = __ldcg(work.residual + token * work.residual_stride + row);
  }
}

// Where sums go. `kept` has the stream, or the gate's side.
template <class Format, bool Gated>
__device__ __forceinline__ void finish(const Products& work, const Place& at, int side,
                                       const typename Format::Sums& sums, float (&kept)[4], int lane) {
  const Products::Part& part = work.parts[at.part];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = Format::row_of(lane, i), row = at.panel * kPanel + Format::output_of(lane, i);
    if (token >= work.in.rows || row >= part.rows) continue;
    const float value = part.bias != nullptr ? sums.value(i) + part.bias[row] : sums.value(i);
    if constexpr (Gated) {
      if (side == 0) {
        kept[i] = value;
        continue;
      }
      const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, part.rows, work.out_form};
      write(out, token, row, activated(work.activation, kept[i]) * value);
    } else if (work.residual != nullptr) {
      work.residual[token * work.residual_stride + row] = kept[i] + work.residual_scale * value;
    } else {
      part.out[token * part.out_stride + row] = value;
    }
  }
}

}  // namespace millrace::cuda

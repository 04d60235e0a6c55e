// The parts of few_rows.cu, which the lab measures too: inputs in shared memory, normed first if need be, chunks of
// weights on their way through a warp's registers, and where sums go. kRowThreads threads or more, a warp for a panel.
#pragma once

#include <type_traits>

#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {

// A row of inputs in shared memory: in every 32, what a lane needs for two steps lies together. Rows start half a bank
// row apart.
__host__ __device__ constexpr int whole(int cols) { return (cols + kChunkInputs - 1) / kChunkInputs * kChunkInputs; }
__host__ __device__ constexpr int input_pitch(int cols) { return whole(cols) * 2 + 64; }
inline constexpr int kChunkPieces = kChunkInputs / 8;  // of sixteen bytes, of a row
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
__device__ __forceinline__ void multiply(float (&sums)[4], const uint4& weights, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, weights, b0, b1);
  else
    multiply_add(sums, weights, b0, b1);
}

inline constexpr int kNormEach = 8;  // times four numbers of a thread, where a norm comes first
inline constexpr int kWidestInput = kNormEach * 4 * kRowThreads;

// A pair of inputs as weights of this format meet them (unpack.cuh).
template <class Format>
__device__ __forceinline__ uint32_t as_met(uint32_t pair) {
  return Format::kRaises ? raised(pair) : pair;
}

// Reads inputs; `meanwhile` is done when the first row has been asked for, before it is there.
template <class Format, class Meanwhile>
__device__ void bring_input(const Products& work, char* inputs, Meanwhile&& meanwhile) {
  using T = typename Format::Number;
  constexpr int kAtOnce = 8;
  const int cols = work.cols, threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const bool whole_pieces = work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16);
  for (int row = 0; row < work.in.rows; ++row) {
    const char* from = static_cast<const char*>(work.in.data) + row * work.in.stride;
    char* to = inputs + row * input_pitch(cols);
    if (whole_pieces) {
      for (int first = 0; first < cols / 8; first += kAtOnce * threads) {
        uint4 eight[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int i = first + j * threads + thread;
          if (first + j * threads >= cols / 8) break;
          if (i < cols / 8) eight[j] = reinterpret_cast<const uint4*>(from)[i];
        }
        if (row == 0 && first == 0) meanwhile();
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          const int i = first + j * threads + thread;
          if (first + j * threads >= cols / 8) break;
          if (i >= cols / 8) continue;
          uint32_t* pairs = reinterpret_cast<uint32_t*>(to) + input_place(i * 8) / 2;
          pairs[0] = as_met<Format>(eight[j].x);
          pairs[4] = as_met<Format>(eight[j].y);
          pairs[8] = as_met<Format>(eight[j].z);
          pairs[12] = as_met<Format>(eight[j].w);
        }
      }
    } else {
      if (row == 0) meanwhile();
#pragma unroll 2
      for (int i = thread; i < cols; i += threads)
        reinterpret_cast<T*>(to)[input_place(i)] = as<T>(read(work.in, row, i) * (Format::kRaises ? kRaise : 1.0f));
    }
  }
}

template <class T>
__device__ uint32_t as_two(float low, float high) {
  const T two[2] = {as<T>(low), as<T>(high)};
  return *reinterpret_cast<const uint32_t*>(two);
}

// Rows that are normed first are float32.
template <class Format, int Each, bool Held, class Meanwhile>
__device__ __forceinline__ void norm_input(const Products& work, const Norm& norm, char* inputs, float* room,
                                           Meanwhile&& meanwhile) {
  using T = typename Format::Number;
  NormedRow<Each, true, Held> numbers(norm.kind, norm.epsilon, work.cols, norm.weight);
  if constexpr (!Format::kInputsFirst) numbers.load_weights();
  wait_for_previous();
#pragma unroll 1
  for (int row = 0; row < work.in.rows; ++row) {
    const auto* from = reinterpret_cast<const float*>(static_cast<const char*>(work.in.data) + row * work.in.stride);
    char* to = inputs + row * input_pitch(work.cols);
    numbers.load([&](int i, int) { return *reinterpret_cast<const float4*>(from + i); });
    if (row == 0) {
      if constexpr (Format::kInputsFirst) numbers.load_weights();
      meanwhile();
    }
    numbers.finish(norm.bias, room, [&](int i, const float4& four, int) {
      uint32_t* pairs = reinterpret_cast<uint32_t*>(to) + input_place(i) / 2;
      pairs[0] = as_met<Format>(as_two<T>(four.x, four.y));
      pairs[4] = as_met<Format>(as_two<T>(four.z, four.w));
    });
  }
}

// What the norm came to, for others that read it: each thread block writes a part. After all threads have normed.
template <class Format>
__device__ void write_normed(const Products& work, const char* inputs) {
  for (int row = 0; row < work.in.rows; ++row) {
    auto* to = reinterpret_cast<uint32_t*>(static_cast<char*>(work.normed.data) + row * work.normed.stride);
    const auto* pairs = reinterpret_cast<const uint32_t*>(inputs + row * input_pitch(work.cols));
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < work.cols / 2;
         i += static_cast<int>(gridDim.x * blockDim.x))
      to[i] = Format::kRaises ? lowered(pairs[input_place(2 * i) / 2]) : pairs[input_place(2 * i) / 2];
  }
}

// Inputs, normed first if need be, and zeros in what the last chunk has beyond them. Waits for the kernel in front; all
// threads may use what is there afterwards. `meanwhile`: what each thread does while inputs are on their way. Held:
// there are registers for the widest norm's weights.
template <class Format, bool Normed, bool Held, class Meanwhile>
__device__ void prepare_input(const Products& work, const Norm& norm, char* inputs, float* room,
                              Meanwhile&& meanwhile) {
  using T = typename Format::Number;
  const int cols = work.cols, pitch = input_pitch(cols);
  if (cols % kChunkInputs != 0) {
    for (int i = threadIdx.x; i < work.in.rows * kChunkInputs; i += static_cast<int>(blockDim.x)) {
      const int col = cols + i % kChunkInputs;
      if (col < whole(cols)) reinterpret_cast<T*>(inputs + i / kChunkInputs * pitch)[input_place(col)] = as<T>(0);
    }
  }
  if constexpr (Normed) {
    if (threadIdx.x >= kRowThreads) {
      wait_for_previous();
      meanwhile();
    } else if (cols <= kWidestInput / 2) {
      norm_input<Format, kNormEach / 2, true>(work, norm, inputs, room, meanwhile);
    } else {
      norm_input<Format, kNormEach, Held>(work, norm, inputs, room, meanwhile);
    }
    __syncthreads();
    write_normed<Format>(work, inputs);
  } else {
    wait_for_previous();
    bring_input<Format>(work, inputs, meanwhile);
    __syncthreads();
  }
}

// What a lane has of a panel's outputs.
struct Sums {
  float all[4] = {};
};

inline constexpr int kMostStages = 24;  // of a ring

// A chunk of a panel on its way through a warp's registers: four steps of sixteen inputs. Weights are the first
// operand.
template <class T>
struct Halves {
  using Number = T;
  static constexpr bool kRaises = false;
  static constexpr int kBytes = kChunkBytes;
  static constexpr int kWarps = 12, kFewWarps = 12;  // the latter where outputs are few and a norm comes first
  // Inputs come behind whatever was asked for before them. First: they are asked for as soon as they may be, and part
  // of the ring when they are there; otherwise behind the norm's weights, and all of the ring while they are on their
  // way. The former gains where products bind, the latter keeps memory busy.
  static constexpr bool kInputsFirst = false;
  static int first_bytes(int cols) { return (cols <= 2048 ? 96 : 128) << 10; }  // asked for before inputs
  static int early_stages(bool, bool, int) { return kMostStages; }         // before they are there; of so many bytes
  static constexpr int kLeastGroups = 4, kMostGroups = 4, kFewGroups = 4;  // chunks of a stage
  static constexpr int kLeastStages = 3;                                   // of a ring
  uint4 weights[4];
  __device__ __forceinline__ void load(const char* chunk, int lane) {
    const uint32_t from =
        shared_address(chunk) + static_cast<uint32_t>(lane % 8 * 16 + lane / 8 % 2 * 1024 + lane / 16 * 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[i] = load_matrices(from + static_cast<uint32_t>(i) * 256);
  }
  __device__ __forceinline__ void multiply_into(Sums& sums, int i, uint32_t first, uint32_t second) const {
    multiply<T>(sums.all, weights[i], first, second);
  }
};

// Which row and output of its panel a lane's sum number i is.
__device__ inline int row_of(int lane, int i) { return lane % 4 * 2 + i % 2; }
__device__ inline int output_of(int lane, int i) { return lane / 4 + i / 2 * 8; }

template <DType Type>
struct Quantised {
  using Number = __nv_bfloat16;
  static constexpr bool kRaises = true;
  static constexpr int kBytes = chunk_bytes(Type);
  static constexpr bool kLarge = Type == DType::q8_0 || Type == DType::q6_k;
  static constexpr int kWarps = 16, kFewWarps = 24;  // unpacking is many instructions
  static constexpr bool kInputsFirst = true;
  static int first_bytes(int) { return (kLarge ? 128 : 64) << 10; }
  static int early_stages(bool gated, bool normed, int bytes) {
    if (kLarge) return gated || normed ? 1 : kMostStages;
    return gated ? 2 : normed ? 1 : ((72 << 10) + bytes - 1) / bytes;
  }
  static constexpr int kLeastGroups = kLarge ? 4 : 8, kMostGroups = 8, kFewGroups = 4;
  static constexpr int kLeastStages = kLarge ? 3 : 2;
  Unpack<Type> weights;

  __device__ __forceinline__ void load(const char* chunk, int lane) { weights.load(chunk, lane); }
  __device__ __forceinline__ void multiply_into(Sums& sums, int i, uint32_t first, uint32_t second) const {
    const uint2 low = weights.half(0, i), high = weights.half(1, i);
    multiply<Number>(sums.all, {low.x, high.x, low.y, high.y}, first, second);
  }
};

// Calls start with the format that weights of this type are kept in.
template <class Format>
struct FormatIs {};
template <class F>
void by_format(DType type, F&& start) {
  switch (type) {
    case DType::f16:
      return start(FormatIs<Halves<__half>>{});
    case DType::q8_0:
      return start(FormatIs<Quantised<DType::q8_0>>{});
    case DType::q4_0:
      return start(FormatIs<Quantised<DType::q4_0>>{});
    case DType::q4_k:
      return start(FormatIs<Quantised<DType::q4_k>>{});
    case DType::q5_k:
      return start(FormatIs<Quantised<DType::q5_k>>{});
    case DType::q6_k:
      return start(FormatIs<Quantised<DType::q6_k>>{});
    case DType::mxfp4:
      return start(FormatIs<Quantised<DType::mxfp4>>{});
    default:
      return start(FormatIs<Halves<__nv_bfloat16>>{});
  }
}

// The same with the inputs: in[0] has two steps' operands, in[1] the next two's.
template <class Format>
struct Group {
  Format weights;
  uint4 in[2];

  __device__ __forceinline__ void load(const char* chunk, const uint4* inputs, int lane) {
    weights.load(chunk, lane);
#pragma unroll
    for (int i = 0; i < 2; ++i) in[i] = inputs[i * 4];
  }
  __device__ __forceinline__ void multiply_into(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights.multiply_into(sums, 2 * i, in[i].x, in[i].y);
      weights.multiply_into(sums, 2 * i + 1, in[i].z, in[i].w);
    }
  }
};

// A stage of weights: what comes next is read while this is multiplied. A loop of few instructions: longer ones are
// slower than what they gain (lab/log.md).
template <class Format>
__device__ __forceinline__ void take(Sums& sums, const char* stage, int groups, const uint4* inputs, int lane) {
  Group<Format> even, odd;
  even.load(stage, inputs, lane);
#pragma unroll 1
  for (; groups > 1; groups -= 2) {
    odd.load(stage + Format::kBytes, inputs + kChunkPieces, lane);
    even.multiply_into(sums);
    stage += 2 * Format::kBytes, inputs += 2 * kChunkPieces;
    if (groups > 2) even.load(stage, inputs, lane);
    odd.multiply_into(sums);
  }
  if (groups == 1) even.multiply_into(sums);
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
__device__ inline void read_residual(const Products& work, int panel, float (&kept)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = row_of(lane, i), row = panel * kPanel + output_of(lane, i);
    if (token < work.in.rows && row < work.parts[0].rows) kept[i] = work.residual[token * work.residual_stride + row];
  }
}

// Where a unit's sums go; a gate's come first. `kept` has the stream, if there is one.
template <bool Gated>
__device__ __forceinline__ void finish(const Products& work, int unit, const Sums (&sums)[Gated ? 2 : 1],
                                       const float (&kept)[4], int lane) {
  const Place at = place_of<Gated>(work, unit, 0);
  const Products::Product& part = work.parts[at.part];
  auto with_bias = [&](float value, const float* bias, int row) { return bias != nullptr ? value + bias[row] : value; };
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = row_of(lane, i), row = at.panel * kPanel + output_of(lane, i);
    if (token >= work.in.rows || row >= part.rows) continue;
    const float value = with_bias(sums[0].all[i], part.bias, row);
    if constexpr (Gated) {
      const View to = {part.out, part.out_stride * 4, work.in.rows, part.rows, work.out_form};
      const float up = with_bias(sums[1].all[i], work.parts[1].bias, row);
      write(to, token, row, activated(work.activation, value) * up);
    } else if (work.residual != nullptr) {
      work.residual[token * work.residual_stride + row] = kept[i] + work.residual_scale * value;
    } else {
      part.out[token * part.out_stride + row] = value;
    }
  }
}

}  // namespace millrace::cuda

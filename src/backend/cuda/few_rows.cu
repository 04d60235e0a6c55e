// Products of at most eight rows, at the speed of memory. A warp takes a panel of sixteen outputs (of gated products
// its two halves) from the first input to the last; its weights come in stretches of a few kilobytes through a ring of
// its own in shared memory, so many ahead that memory never waits. The first ring full is asked for before the kernel
// in front has ended: weights do not depend on it.
#include <type_traits>

#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMostStages = 24;          // of a warp
constexpr int kSharedBytes = 110 << 10;  // half of what there is, so that the next kernel finds room
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

template <class T>
__device__ void bring_input(const Products& work, const Norm& norm, bool has_norm, char* inputs, const float* weight,
                            float* staged, float* room) {
  const int cols = work.cols, rows = work.in.rows, pitch = input_pitch(cols);
  const char* from = static_cast<const char*>(work.in.data);
  for (int i = threadIdx.x; i < rows * kChunkInputs; i += kThreads) {  // what the last chunk has beyond the row
    const int col = cols + i % kChunkInputs;
    if (col < whole(cols)) reinterpret_cast<T*>(inputs + i / kChunkInputs * pitch)[input_place(col)] = as<T>(0);
  }
  if (!has_norm && work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16)) {
#pragma unroll 8
    for (int i = threadIdx.x; i < rows * (cols / 8); i += kThreads) {
      const int row = i / (cols / 8), eighth = i % (cols / 8);
      const uint4 eight = reinterpret_cast<const uint4*>(from + row * work.in.stride)[eighth];
      uint32_t* pairs = reinterpret_cast<uint32_t*>(inputs + row * pitch) + input_place(eighth * 8) / 2;
      pairs[0] = eight.x;
      pairs[4] = eight.y;
      pairs[8] = eight.z;
      pairs[12] = eight.w;
    }
    return;
  }
  for (int row = 0; row < rows; ++row) {
    T* to = reinterpret_cast<T*>(inputs + row * pitch);
    if (!has_norm) {
#pragma unroll 8
      for (int i = threadIdx.x; i < cols; i += kThreads) to[input_place(i)] = as<T>(read(work.in, row, i));
      continue;
    }
    stage_row(reinterpret_cast<const float*>(from + row * work.in.stride), cols, staged);
    const float2 factors = norm_factors(norm.kind, norm.epsilon, cols, room, [&](int i) { return staged[i]; });
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += kThreads) {
      const float value = normed(staged[i], factors, norm.weight != nullptr ? weight : nullptr, norm.bias, i);
      to[input_place(i)] = as<T>(value);
      if (blockIdx.x == 0) write(work.normed, row, i, value);
    }
    rows_sync();
  }
}

// How a warp's panels are read: in stages of kInputs inputs, and what multiplying with one of them is. `inputs` is the
// lane's place in its row; `steps` sixteens of inputs are there.
template <class T>
struct Halves {
  using Number = T;
  static constexpr int kInputs = 2 * kChunkInputs, kBytes = 2 * kChunkBytes;
  static constexpr Unit kUnit = {kChunkInputs, kChunkBytes};

  __device__ static void take(float (&sums)[4], const char* stage, int steps, const uint4* inputs, bool filled,
                              int lane) {
    const uint32_t from =
        shared_address(stage) + static_cast<uint32_t>(lane % 8 * 16 + lane / 8 % 2 * 1024 + lane / 16 * 128);
    uint4 weights[8], both[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < steps) weights[i] = load_matrices(from + static_cast<uint32_t>(i / 4 * kChunkBytes + i % 4 * 256));
      if (i < steps && i % 2 == 0 && filled) both[i / 2] = inputs[i / 2 * 4];
    }
    __syncwarp();  // keeps the reads in front
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < steps)
        multiply<T>(sums, weights[i], i % 2 != 0 ? both[i / 2].z : both[i / 2].x,
                    i % 2 != 0 ? both[i / 2].w : both[i / 2].y);
    }
  }
};

template <DType Type, int Units>
struct Quantised {
  using Number = __nv_bfloat16;
  static constexpr Unit kUnit = unit_of(Type);
  static constexpr int kInputs = Units * kUnit.inputs, kBytes = Units * kUnit.bytes;

  __device__ static void take(float (&sums)[4], const char* stage, int steps, const uint4* inputs, bool filled,
                              int lane) {
    constexpr int kSteps = Unpack<Type>::kSteps, kParts = 16 / kSteps;
#pragma unroll 4
    for (int part = 0; part < Units * kParts; ++part) {
      if (part * kSteps >= steps) break;
      const Unpack<Type> numbers(stage + part / kParts * kUnit.bytes, part % kParts, lane);
#pragma unroll
      for (int i = 0; i < kSteps; i += 2) {
        const uint4 both = filled ? inputs[(part * kSteps + i) / 2 * 4] : uint4{};
        multiply<Number>(sums, numbers.step(i), both.x, both.y);
        multiply<Number>(sums, numbers.step(i + 1), both.z, both.w);
      }
    }
  }
};

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

// How the work is cut: a thread group has every gridDim.x-th unit, `streams` of its warps take turns with those.
struct Cut {
  int units, streams, stages;
};

// What a warp asks memory for next.
template <class Format, bool Gated>
struct Stream {
  const Products& work;
  Cut cut;
  int unit, side = 0, input = 0;
  const std::byte* from = nullptr;

  __device__ Stream(const Products& all, const Cut& how, int warp)
      : work(all), cut(how), unit(static_cast<int>(blockIdx.x) + warp * static_cast<int>(gridDim.x)) {}

  __device__ bool done() const { return unit >= cut.units; }
  __device__ void next_segment() {
    input = 0;
    if (Gated && side == 0) {
      side = 1;
    } else {
      side = 0;
      unit += cut.streams * static_cast<int>(gridDim.x);
    }
  }
  __device__ void ask(uint32_t to, uint32_t barrier) {  // by one lane
    if (input == 0) {
      const Place at = place_of<Gated>(work, unit, side);
      const int units = (work.cols + Format::kUnit.inputs - 1) / Format::kUnit.inputs;
      from = work.parts[at.part].weights + int64_t{at.panel} * units * Format::kUnit.bytes;
    }
    const int left = (work.cols - input + Format::kUnit.inputs - 1) / Format::kUnit.inputs * Format::kUnit.bytes;
    const uint32_t bytes = static_cast<uint32_t>(left < Format::kBytes ? left : Format::kBytes);
    barrier_expect(barrier, bytes);
    copy_bytes(to, from, bytes, barrier);
    from += bytes;
    input += Format::kInputs;
    if (input >= work.cols) next_segment();
  }
};

// Where sums go: lane 4g + t has outputs g and g + 8 of rows 2t and 2t + 1.
template <bool Gated>
__device__ void finish(const Products& work, const Place& at, int side, const float (&sums)[4], float (&gate)[4],
                       int lane) {
  const Products::Part& part = work.parts[at.part];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = lane % 4 * 2 + i % 2, row = at.panel * kPanel + lane / 4 + i / 2 * 8;
    if (token >= work.in.rows || row >= part.rows) continue;
    const float value = part.bias != nullptr ? sums[i] + part.bias[row] : sums[i];
    if constexpr (Gated) {
      if (side == 0) {
        gate[i] = value;
        continue;
      }
      const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, part.rows, work.out_form};
      write(out, token, row, activated(work.activation, gate[i]) * value);
    } else {
      part.out[token * part.out_stride + row] = value;
      if (work.residual == nullptr) continue;
      float* to = work.residual + token * work.residual_stride + row;
      *to = *to + work.residual_scale * value;
    }
  }
}

template <class Format, bool Gated>
__global__ void __launch_bounds__(kThreads, 2)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Norm norm, bool has_norm, Cut cut) {
  using T = typename Format::Number;
  extern __shared__ __align__(128) char shared[];
  __shared__ float room[kWarps];
  __shared__ __align__(8) uint64_t barriers[kWarps * kMostStages];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool streams = warp < cut.streams;
  char* ring = shared + warp * cut.stages * Format::kBytes;
  const uint32_t full = shared_address(barriers + warp * kMostStages);
  Stream<Format, Gated> ahead(work, cut, warp);
  if (streams && lane == 0) {
    for (int i = 0; i < cut.stages; ++i) barrier_begin(full + static_cast<uint32_t>(i) * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int i = 0; i < cut.stages && !ahead.done(); ++i)
      ahead.ask(shared_address(ring + i * Format::kBytes), full + static_cast<uint32_t>(i) * 8);
  }
  char* inputs = shared + cut.streams * cut.stages * Format::kBytes;
  float* staged = reinterpret_cast<float*>(inputs + work.in.rows * input_pitch(work.cols));
  float* weight = staged + work.cols;  // of the norm: fixed at load, so there before the kernel in front is done
  if (has_norm && norm.weight != nullptr) stage_row(norm.weight, work.cols, weight);
  wait_for_previous();
  bring_input<T>(work, norm, has_norm, inputs, weight, staged, room);
  __syncthreads();
  if (!streams) return;

  const bool filled = lane / 4 < work.in.rows;
  const uint4* mine =
      reinterpret_cast<const uint4*>(inputs + (filled ? lane / 4 : 0) * input_pitch(work.cols)) + lane % 4;
  const int steps = whole(work.cols) / 16;
  float gate[4] = {};
  int stage = 0;
  uint32_t round = 0;
  for (int unit = static_cast<int>(blockIdx.x) + warp * static_cast<int>(gridDim.x); unit < cut.units;
       unit += cut.streams * static_cast<int>(gridDim.x)) {
#pragma unroll 1
    for (int side = 0; side < (Gated ? 2 : 1); ++side) {
      float sums[4] = {};
      for (int step = 0; step < steps; step += Format::kInputs / 16) {
        const uint32_t barrier = full + static_cast<uint32_t>(stage) * 8;
        barrier_wait(barrier, round);
        Format::take(sums, ring + stage * Format::kBytes, steps - step, mine + step / 2 * 4, filled, lane);
        __syncwarp();
        if (lane == 0 && !ahead.done()) ahead.ask(shared_address(ring + stage * Format::kBytes), barrier);
        if (++stage == cut.stages) stage = 0, round ^= 1;
      }
      finish<Gated>(work, place_of<Gated>(work, unit, side), side, sums, gate, lane);
    }
  }
}

// Inputs; for the norm two rows of float32 numbers.
int64_t input_bytes(int64_t rows, int64_t cols, bool norm) {
  return rows * input_pitch(static_cast<int>(cols)) + (norm ? cols * 8 : 0) + 64;
}
constexpr int64_t kLeastRing = 40 << 10;

template <class Format, bool Gated>
void start(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(few_rows_kernel<Format, Gated>, kSharedBytes);
  static_cast<void>(prepared);
  Cut cut = {};
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) cut.units += (work.parts[i].rows + kPanel - 1) / kPanel;
  const int grid = cut.units < multiprocessors() ? cut.units : multiprocessors();
  const int of_one = (cut.units + grid - 1) / grid, rounds = (of_one + kWarps - 1) / kWarps;
  cut.streams = (of_one + rounds - 1) / rounds;
  const int64_t other = input_bytes(work.in.rows, work.cols, work.norm != nullptr);
  const int64_t fit = (kSharedBytes - other) / (cut.streams * Format::kBytes);
  cut.stages = static_cast<int>(fit < kMostStages ? fit : kMostStages);
  const Norm none;
  launch(stream, few_rows_kernel<Format, Gated>, static_cast<unsigned>(grid), kThreads,
         static_cast<size_t>(other + cut.streams * cut.stages * Format::kBytes), work,
         work.norm != nullptr ? *work.norm : none, work.norm != nullptr, cut);
}

template <class Format>
void start_either(cudaStream_t stream, const Products& work) {
  return work.gated ? start<Format, true>(stream, work) : start<Format, false>(stream, work);
}

}  // namespace

bool few_rows_fit(int32_t rows, int32_t cols, bool norm) {
  return rows <= kFewRows && input_bytes(rows, cols, norm) + kLeastRing <= kSharedBytes;
}

void few_rows(cudaStream_t stream, const Products& work) {
  switch (work.type) {
    case DType::f16:
      return start_either<Halves<__half>>(stream, work);
    case DType::q8_0:
      return start_either<Quantised<DType::q8_0, 1>>(stream, work);
    case DType::q4_0:
      return start_either<Quantised<DType::q4_0, 2>>(stream, work);
    case DType::q4_k:
      return start_either<Quantised<DType::q4_k, 2>>(stream, work);
    default:
      return start_either<Halves<__nv_bfloat16>>(stream, work);
  }
}

}  // namespace millrace::cuda

// Products of at most eight rows, at the speed of memory. A warp takes a panel of sixteen outputs (of gated products
// its two sides) from the first input to the last; its weights come in stretches of a few kilobytes through a ring of
// its own in shared memory, so many ahead that memory never waits. The first ring full is asked for before the kernel
// in front has ended: weights do not depend on it.
#include <type_traits>

#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMostStages = 24;      // of a stream
constexpr int kShared = 220 << 10;   // a deep ring gains more than room for the next kernel would
constexpr int kHelped = kWarps / 2;  // so many streams have a warp of their own that asks for weights
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

constexpr int kNormEach = 32;  // numbers of a thread, where a norm comes first

template <class T>
__device__ void bring_input(const Products& work, char* inputs) {
  const int cols = work.cols, rows = work.in.rows, pitch = input_pitch(cols);
  const char* from = static_cast<const char*>(work.in.data);
  if (work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16)) {
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
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += kThreads)
      reinterpret_cast<T*>(inputs + row * pitch)[input_place(i)] = as<T>(read(work.in, row, i));
  }
}

// Inputs, normed first if need be, and zeros in what the last chunk has beyond them. Waits for the kernel in front.
template <class T, bool Normed>
__device__ void prepare_input(const Products& work, const Norm& norm, char* inputs, float* room) {
  const int cols = work.cols, pitch = input_pitch(cols);
  for (int i = threadIdx.x; i < work.in.rows * kChunkInputs; i += kThreads) {
    const int col = cols + i % kChunkInputs;
    if (col < whole(cols)) reinterpret_cast<T*>(inputs + i / kChunkInputs * pitch)[input_place(col)] = as<T>(0);
  }
  if constexpr (Normed) {
    NormedRow<kNormEach> numbers(norm.kind, norm.epsilon, cols, norm.weight);
    wait_for_previous();
    for (int row = 0; row < work.in.rows; ++row) {
      numbers.run(
          norm.bias, room, [&](int i) { return read(work.in, row, i); },
          [&](int i, float value) {
            reinterpret_cast<T*>(inputs + row * pitch)[input_place(i)] = as<T>(value);
            if (blockIdx.x == 0) write(work.normed, row, i, value);
          });
    }
  } else {
    wait_for_previous();
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
__device__ void take_whole(typename Format::Sums& sums, const char* stage, const uint4* inputs, int lane) {
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
__device__ void take(typename Format::Sums& sums, const char* stage, int groups, const uint4* inputs, int lane) {
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

// How the work is cut: a thread group has every gridDim.x-th unit, its streams (a warp each) take turns with those.
// Stages are so many groups of 64 inputs.
struct Cut {
  int units, streams, stages, groups, stage_bytes;
};

// What a stream asks memory for next.
template <class Format, bool Gated>
struct Asking {
  const Products& work;
  Cut cut;
  int unit, side = 0, input = 0;
  const std::byte* from = nullptr;

  __device__ Asking(const Products& all, const Cut& how, int stream)
      : work(all), cut(how), unit(static_cast<int>(blockIdx.x) + stream * static_cast<int>(gridDim.x)) {}

  __device__ bool done() const { return unit >= cut.units; }
  __device__ void next(uint32_t to, uint32_t barrier) {  // by one lane
    if (input == 0) {
      const Place at = place_of<Gated>(work, unit, side);
      from = work.parts[at.part].weights + int64_t{at.panel} * chunks_of(work.cols) * Format::kBytes;
    }
    const int left = static_cast<int>(chunks_of(work.cols - input)) * Format::kBytes;
    const int bytes = left < cut.stage_bytes ? left : cut.stage_bytes;
    barrier_expect(barrier, static_cast<uint32_t>(bytes));
    copy_bytes(to, from, static_cast<uint32_t>(bytes), barrier);
    from += bytes;
    input += cut.groups * kChunkInputs;
    if (input < work.cols) return;
    input = 0;
    side = Gated && side == 0 ? 1 : 0;
    if (side == 0) unit += cut.streams * static_cast<int>(gridDim.x);
  }
};

// What the stream of a panel's outputs was before; read long before it is needed.
template <class Format>
__device__ void read_residual(const Products& work, const Place& at, float (&kept)[4], int lane) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = Format::row_of(lane, i), row = at.panel * kPanel + Format::output_of(lane, i);
    if (token < work.in.rows && row < work.parts[0].rows) kept[i] = work.residual[token * work.residual_stride + row];
  }
}

// Where sums go. `kept` has the stream, or the gate's side.
template <class Format, bool Gated>
__device__ void finish(const Products& work, const Place& at, int side, const typename Format::Sums& sums,
                       float (&kept)[4], int lane) {
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

// A stream's ring: of every stage a barrier that it is full and, where another warp asks, one that it is free.
struct Ring {
  char* stages;
  uint32_t barriers;
  int stage_bytes, count, stage = 0;
  uint32_t round = 0;

  __device__ char* at() const { return stages + stage * stage_bytes; }
  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(stage) * 16; }
  __device__ uint32_t free() const { return full() + 8; }
  __device__ void next() {
    if (++stage == count) stage = 0, round ^= 1;
  }
};

template <class Format, bool Gated>
__device__ void multiply_stream(const Products& work, const Cut& cut, Ring ring, Asking<Format, Gated>& ahead,
                                int stream, const char* inputs, bool helped) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lanes beyond the last row compute the first one again; nobody asks for it.
  const int row = lane / 4 < work.in.rows ? lane / 4 : 0;
  const uint4* mine = reinterpret_cast<const uint4*>(inputs + row * input_pitch(work.cols)) + lane % 4;
  const int groups = whole(work.cols) / kChunkInputs;
  float kept[4] = {};
  for (int unit = static_cast<int>(blockIdx.x) + stream * static_cast<int>(gridDim.x); unit < cut.units;
       unit += cut.streams * static_cast<int>(gridDim.x)) {
#pragma unroll 1
    for (int side = 0; side < (Gated ? 2 : 1); ++side) {
      const Place at = place_of<Gated>(work, unit, side);
      if (!Gated && work.residual != nullptr) read_residual<Format>(work, at, kept, lane);
      typename Format::Sums sums;
      for (int group = 0; group < groups; group += cut.groups) {
        barrier_wait(ring.full(), ring.round);
        take<Format>(sums, ring.at(), min(cut.groups, groups - group), mine + group * 8, lane);
        __syncwarp();
        if (lane == 0) {
          if (helped)
            barrier_arrive(ring.free());
          else if (!ahead.done())
            ahead.next(shared_address(ring.at()), ring.full());
        }
        ring.next();
      }
      finish<Format, Gated>(work, at, side, sums, kept, lane);
    }
  }
}

template <class Format, bool Gated, bool Normed>
__global__ void __launch_bounds__(kThreads, 2)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Norm norm, Cut cut) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float room[kWarps];
  __shared__ __align__(16) uint64_t barriers[kWarps * kMostStages * 2];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool helped = cut.streams <= kHelped;
  const int stream = helped ? warp % kHelped : warp;
  const bool mine = stream < cut.streams, asks = mine && lane == 0 && (!helped || warp >= kHelped);
  Ring ring = {shared + stream * cut.stages * cut.stage_bytes, shared_address(barriers + stream * kMostStages * 2),
               cut.stage_bytes, cut.stages};
  Asking<Format, Gated> ahead(work, cut, stream);
  if (asks) {
    for (int i = 0; i < cut.stages; ++i) {
      barrier_begin(ring.barriers + static_cast<uint32_t>(i) * 16, 1);
      barrier_begin(ring.barriers + static_cast<uint32_t>(i) * 16 + 8, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (Ring early = ring; early.round == 0 && !ahead.done(); early.next())
      ahead.next(shared_address(early.at()), early.full());
  }
  char* inputs = shared + cut.streams * cut.stages * cut.stage_bytes;
  prepare_input<typename Format::Number, Normed>(work, norm, inputs, room);
  __syncthreads();
  if (!mine) return;
  if (!helped || warp < kHelped) return multiply_stream<Format, Gated>(work, cut, ring, ahead, stream, inputs, helped);
  for (; asks && !ahead.done(); ring.next()) {
    barrier_wait(ring.free(), ring.round);
    ahead.next(shared_address(ring.at()), ring.full());
  }
}

int64_t input_bytes(int64_t rows, int64_t cols) { return rows * input_pitch(static_cast<int>(cols)) + 64; }
constexpr int64_t kLeastRing = 60 << 10;

template <class Format, bool Gated, bool Normed>
void start(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(few_rows_kernel<Format, Gated, Normed>, kShared);
  static_cast<void>(prepared);
  Cut cut = {};
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) cut.units += (work.parts[i].rows + kPanel - 1) / kPanel;
  const int grid = cut.units < multiprocessors() ? cut.units : multiprocessors();
  const int of_one = (cut.units + grid - 1) / grid, rounds = (of_one + kWarps - 1) / kWarps;
  cut.streams = (of_one + rounds - 1) / rounds;
  cut.groups = cut.streams <= kHelped ? Format::kMostGroups : Format::kLeastGroups;
  cut.stage_bytes = cut.groups * Format::kBytes;
  const int64_t other = input_bytes(work.in.rows, work.cols);
  const int64_t fit = (kShared - other) / (cut.streams * cut.stage_bytes);
  cut.stages = static_cast<int>(fit < kMostStages ? fit : kMostStages);
  const Norm none;
  launch(stream, few_rows_kernel<Format, Gated, Normed>, static_cast<unsigned>(grid), kThreads,
         static_cast<size_t>(other + cut.streams * cut.stages * cut.stage_bytes), work,
         work.norm != nullptr ? *work.norm : none, cut);
}

template <class Format>
void start_either(cudaStream_t stream, const Products& work) {
  if (work.norm != nullptr)
    return work.gated ? start<Format, true, true>(stream, work) : start<Format, false, true>(stream, work);
  return work.gated ? start<Format, true, false>(stream, work) : start<Format, false, false>(stream, work);
}

}  // namespace

bool few_rows_fit(int32_t rows, int32_t cols, bool norm) {
  return rows <= kFewRows && input_bytes(rows, cols) + kLeastRing <= kShared && (!norm || cols <= kNormEach * kThreads);
}

void few_rows(cudaStream_t stream, const Products& work) {
  switch (work.type) {
    case DType::f16:
      return start_either<Halves<__half>>(stream, work);
    case DType::q8_0:
      return start_either<Quantised<DType::q8_0>>(stream, work);
    case DType::q4_0:
      return start_either<Quantised<DType::q4_0>>(stream, work);
    case DType::q4_k:
      return start_either<Quantised<DType::q4_k>>(stream, work);
    default:
      return start_either<Halves<__nv_bfloat16>>(stream, work);
  }
}

}  // namespace millrace::cuda

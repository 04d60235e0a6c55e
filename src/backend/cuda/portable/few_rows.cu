// Products of at most sixteen rows, at the speed of memory, without Hopper's instructions. Each warp of a thread group
// has a panel of sixteen outputs (of gated products its two sides) and goes from the first input to the last, all of
// them in step: stages of a few chunks come through a ring in shared memory by copies of sixteen bytes. A warp asks for
// its own weights, all threads together for the inputs.
#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

constexpr int kMostWarps = 8, kMostGroups = 8, kStages = 4;
constexpr int kRing = 48 << 10;  // two thread groups find room on every multiprocessor (100 KB at least)

// How the work is cut: a unit is a panel, or the two of a gate; thread groups have so many warps, stages so many groups
// of 64 inputs (a power of two).
struct Cut {
  int units = 0, warps = 0, groups = 0;
  int chunks = 0, segment = 0;  // of inputs: all of them, and those of a segment
};

// A stage: inputs, eight rows a tile and 128 bytes a row, pieces turned by the row's number; then what each warp has.
template <class Format, bool Gated, int Tiles>
struct Layout {
  static constexpr int kSides = Gated ? 2 : 1, kRows = 8 * Tiles;
  __host__ __device__ static constexpr int input_bytes(int groups) { return groups * kRows * 128; }
  __host__ __device__ static constexpr int warp_bytes(int groups) { return groups * kSides * Format::kBytes; }
  __host__ __device__ static constexpr int stage_bytes(int warps, int groups) {
    return input_bytes(groups) + warps * warp_bytes(groups);
  }
};

template <class T>
__device__ uint4 eight_of(const View& view, int64_t row, int col) {
  auto pair = [&](int i) { return as_two<T>(read(view, row, col + i), read(view, row, col + i + 1)); };
  return {pair(0), pair(2), pair(4), pair(6)};
}

template <class Format, bool Gated, int Tiles>
__device__ void bring_inputs(const Products& work, const Cut& cut, int first_chunk, char* to) {
  using T = typename Format::Number;
  const bool as_is = work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16);
  const int pieces = cut.groups * 8;
  for (int i = static_cast<int>(threadIdx.x); i < work.in.rows * pieces; i += static_cast<int>(blockDim.x)) {
    const int row = i / pieces, piece = i % pieces, col = first_chunk * kChunkInputs + piece * 8;
    char* place = to + (piece / 8 * (8 * Tiles) + row) * 128 + ((piece ^ row) & 7) * 16;
    const bool inside = col < work.cols;  // a multiple of eight
    if (as_is) {
      const char* from = static_cast<const char*>(work.in.data) + row * work.in.stride + (inside ? col : 0) * 2;
      copy_16(shared_address(place), from, inside ? 16 : 0);
    } else {
      *reinterpret_cast<uint4*>(place) = inside ? eight_of<T>(work.in, row, col) : uint4{};
    }
  }
}

// One stage, or what is left for it; always a group of copies, so that they can be counted.
template <class Format, bool Gated, int Tiles>
__device__ void bring(const Products& work, const Cut& cut, const std::byte* const (&from)[Gated ? 2 : 1], int number,
                      char* stage) {
  using Size = Layout<Format, Gated, Tiles>;
  const int first = number * cut.groups, lane = static_cast<int>(threadIdx.x) % 32;
  if (first < cut.chunks) {
    const int bytes = min(cut.groups, cut.chunks - first) * Format::kBytes;
#pragma unroll
    for (int side = 0; side < Size::kSides; ++side) {
      if (from[side] == nullptr) continue;
      const std::byte* source = from[side] + int64_t{first} * Format::kBytes;
      const uint32_t to = shared_address(stage) +
                          static_cast<uint32_t>(Size::input_bytes(cut.groups) +
                                                static_cast<int>(threadIdx.x) / 32 * Size::warp_bytes(cut.groups) +
                                                side * cut.groups * Format::kBytes);
#pragma unroll 4
      for (int i = lane * 16; i < bytes; i += 512) copy_16(to + static_cast<uint32_t>(i), source + i, 16);
    }
    bring_inputs<Format, Gated, Tiles>(work, cut, first, stage);
  }
  copies_end();
}

// A warp's sums of a segment and of all segments before it.
template <int Sides, int Tiles>
struct Chains {
  Sums now[Sides][Tiles], all[Sides][Tiles];
  int left;  // chunks of the segment
  bool first = true;

  __device__ explicit Chains(int segment) : left(segment) {}
  __device__ void join() {
#pragma unroll
    for (int side = 0; side < Sides; ++side) {
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float sum = now[side][tile].all[i];
          all[side][tile].all[i] = first ? sum : all[side][tile].all[i] + sum;
        }
        now[side][tile] = {};
      }
    }
    first = false;
  }
};

template <class Format, bool Gated, int Tiles>
__device__ void multiply_stage(Chains<Gated ? 2 : 1, Tiles>& chains, const Cut& cut, const char* stage, int groups) {
  using Size = Layout<Format, Gated, Tiles>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* weights =
      stage + Size::input_bytes(cut.groups) + static_cast<int>(threadIdx.x) / 32 * Size::warp_bytes(cut.groups);
  const uint32_t inputs = shared_address(stage) + static_cast<uint32_t>(lane % 8 * 128);
  const uint32_t piece = static_cast<uint32_t>((lane / 8 ^ lane % 8) * 16);
#pragma unroll 2
  for (int group = 0; group < groups; ++group) {
    if (chains.left == 0) {
      chains.join();
      chains.left = cut.segment;
    }
    --chains.left;
    uint4 in[Tiles][2];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        in[tile][half] = load_matrices(inputs + static_cast<uint32_t>((group * Size::kRows + tile * 8) * 128) +
                                       (piece ^ static_cast<uint32_t>(half * 64)));
    }
    Format numbers[Size::kSides];
#pragma unroll
    for (int side = 0; side < Size::kSides; ++side)
      numbers[side].load(weights + (side * cut.groups + group) * Format::kBytes, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int side = 0; side < Size::kSides; ++side) {
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          const uint4& both = in[tile][i / 2];
          numbers[side].multiply_into(chains.now[side][tile], i, i % 2 == 0 ? both.x : both.z,
                                      i % 2 == 0 ? both.y : both.w);
        }
      }
    }
  }
}

// Calls body with every result that a lane has: tile, number among its four, row and output.
template <int Tiles, class F>
__device__ __forceinline__ void each_result(const Products& work, int panel, int outputs, F&& body) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = tile * 8 + row_of(lane, i), output = panel * kPanel + output_of(lane, i);
      if (token < work.in.rows && output < outputs) body(tile, i, int64_t{token}, output);
    }
  }
}

__device__ inline float with_bias(float value, const float* bias, int output) {
  return bias != nullptr ? value + bias[output] : value;
}

template <class Format, bool Gated, int Tiles>
__global__ void __launch_bounds__(kMostWarps * 32, 2)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Cut cut) {
  using Size = Layout<Format, Gated, Tiles>;
  extern __shared__ __align__(128) char shared[];
  wait_for_previous();
  const int unit = static_cast<int>(blockIdx.x) * cut.warps + static_cast<int>(threadIdx.x) / 32;
  const bool mine = unit < cut.units;
  const Place at = place_of<Gated>(work, mine ? unit : 0, 0);
  const Products::Part& part = work.parts[at.part];
  const std::byte* from[Size::kSides];
#pragma unroll
  for (int side = 0; side < Size::kSides; ++side)
    from[side] = mine ? work.parts[at.part + side].weights + int64_t{at.panel} * cut.chunks * Format::kBytes : nullptr;
  const int stage_bytes = Size::stage_bytes(cut.warps, cut.groups);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) bring<Format, Gated, Tiles>(work, cut, from, i, shared + i * stage_bytes);
  float kept[Tiles][4] = {};  // the stream as it was
  if (!Gated && work.residual != nullptr && mine)
    each_result<Tiles>(work, at.panel, part.rows, [&](int tile, int i, int64_t token, int output) {
      kept[tile][i] = work.residual[token * work.residual_stride + output];
    });
  Chains<Size::kSides, Tiles> chains(cut.segment);
  const int count = (cut.chunks + cut.groups - 1) / cut.groups;
  for (int number = 0; number < count; ++number) {
    copies_wait<kStages - 2>();
    __syncthreads();  // everybody's copies are there, and everybody is done with the stage before
    const int next = number + kStages - 1;
    bring<Format, Gated, Tiles>(work, cut, from, next, shared + next % kStages * stage_bytes);
    if (mine)
      multiply_stage<Format, Gated, Tiles>(chains, cut, shared + number % kStages * stage_bytes,
                                           min(cut.groups, cut.chunks - number * cut.groups));
  }
  if (!mine) return;
  chains.join();
  each_result<Tiles>(work, at.panel, part.rows, [&](int tile, int i, int64_t token, int output) {
    const float value = with_bias(chains.all[0][tile].all[i], part.bias, output);
    if constexpr (Gated) {
      const float up = with_bias(chains.all[1][tile].all[i], work.parts[1].bias, output);
      const View to = {part.out, part.out_stride * 4, work.in.rows, part.rows, work.out_form};
      write(to, token, output, activated(work.activation, value) * up);
    } else if (work.residual != nullptr) {
      work.residual[token * work.residual_stride + output] = kept[tile][i] + work.residual_scale * value;
    } else {
      part.out[token * part.out_stride + output] = value;
    }
  });
}

// Thread groups of so much shared memory that a multiprocessor has room for.
int groups_beside(int bytes) {
  static const int found = [] {
    int device = 0, all = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    return all;
  }();
  return found / (bytes + 1024) > 1 ? found / (bytes + 1024) : 1;  // each takes a kilobyte more
}

// So many warps that the last round of thread groups leaves least of the machine idle, and the longest stages that
// leave room for kStages of them.
template <class Size>
Cut cut_of(const Products& work) {
  Cut best = {.chunks = static_cast<int>(chunks_of(work.cols)), .segment = segment_chunks(work.cols, work.segments)};
  for (int i = 0; i < (Size::kSides == 2 ? 1 : work.count); ++i)
    best.units += static_cast<int>(panels_of(work.parts[i].rows));
  const int slots = multiprocessors() * groups_beside(kRing);
  int64_t least = INT64_MAX;
  for (int warps = 1; warps <= kMostWarps; ++warps) {
    int groups = kMostGroups;
    while (groups > 0 && Size::stage_bytes(warps, groups) > kRing / kStages) groups /= 2;
    if (groups == 0) break;
    const int64_t rounds = ((best.units + warps - 1) / warps + slots - 1) / slots;
    if (rounds * warps > least) continue;
    least = rounds * warps;
    best.warps = warps, best.groups = groups;
  }
  return best;
}

template <class Format, bool Gated, int Tiles>
void start(cudaStream_t stream, const Products& work) {
  using Size = Layout<Format, Gated, Tiles>;
  static_assert(Size::stage_bytes(1, 1) <= kRing / kStages);
  static const bool prepared = prepare(few_rows_kernel<Format, Gated, Tiles>, kRing);
  static_cast<void>(prepared);
  const Cut cut = cut_of<Size>(work);
  launch(stream, few_rows_kernel<Format, Gated, Tiles>, count((cut.units + cut.warps - 1) / cut.warps), cut.warps * 32,
         static_cast<size_t>(kStages * Size::stage_bytes(cut.warps, cut.groups)), work, cut);
}

template <class Format>
void start_either(cudaStream_t stream, const Products& work) {
  if (work.in.rows <= 8)
    return work.gated ? start<Format, true, 1>(stream, work) : start<Format, false, 1>(stream, work);
  return work.gated ? start<Format, true, 2>(stream, work) : start<Format, false, 2>(stream, work);
}

}  // namespace

bool few_rows_fit(int32_t rows, int32_t, bool norm) { return rows <= kFewRows && !norm; }

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

cudaError_t load_few_rows() { return load_kernels(); }

}  // namespace millrace::cuda::portable

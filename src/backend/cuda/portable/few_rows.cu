// Products of at most sixteen rows, at the speed of memory, without Hopper's instructions. Each warp of a thread block
// has a panel of sixteen outputs (of gated products its two sides), or one segment of it, and goes from the first input
// to the last, all of them in step: stages of a few chunks come through a ring in shared memory by copies of sixteen
// bytes. A warp asks for its own weights, all threads together for the inputs.
#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

constexpr int kMostWarps = 16, kMostUnits = 8, kMostGroups = 8, kStages = 4;
constexpr int kRing = 48 << 10;      // two thread blocks find room on every multiprocessor (100 KB at least)
constexpr int kMostRing = 96 << 10;  // where less would not do

// How the work is cut: a unit is a panel, or the two of a gate. Thread blocks have so many units; each has a warp for
// every span of its inputs: all of them, or a segment. Stages are so many groups of 64 inputs of every span. Spans and
// groups are powers of two.
struct Cut {
  int units = 0, beside = 0, spans = 1, groups = 0;
  int chunks = 0, segment = 0, span = 0;  // of inputs: all of them, those of a segment and of a span
  int warps() const { return beside * spans; }
};

// A stage: inputs of every span, eight rows a tile and 128 bytes a row, pieces turned by the row's number; then what
// each warp has.
template <class Format, bool Gated, int Tiles>
struct Layout {
  static constexpr int kSides = Gated ? 2 : 1, kRows = 8 * Tiles;
  __host__ __device__ static constexpr int input_bytes(int groups) { return groups * kRows * 128; }  // of a span
  __host__ __device__ static constexpr int warp_bytes(int groups) { return groups * kSides * Format::kBytes; }
  __host__ __device__ static constexpr int stage_bytes(int units, int spans, int groups) {
    return spans * (input_bytes(groups) + units * warp_bytes(groups));
  }
};

// Which unit of its thread block and which span a warp has.
struct Warp {
  int number, unit, span;
  __device__ explicit Warp(const Cut& cut)
      : number(static_cast<int>(threadIdx.x) / 32), unit(number / cut.spans), span(number % cut.spans) {}
};

template <class T>
__device__ uint4 eight_of(const View& view, int64_t row, int col) {
  auto pair = [&](int i) { return as_two<T>(read(view, row, col + i), read(view, row, col + i + 1)); };
  return {pair(0), pair(2), pair(4), pair(6)};
}

// Groups from `first` on of every span.
template <class Format, bool Gated, int Tiles>
__device__ void bring_inputs(const Products& work, const Cut& cut, int first, char* to) {
  using T = typename Format::Number;
  const bool as_is = work.in.form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16);
  const int groups_shift = 31 - __clz(cut.groups), shift = 31 - __clz(cut.spans) + groups_shift + 3;
  for (int i = static_cast<int>(threadIdx.x); i < work.in.rows << shift; i += static_cast<int>(blockDim.x)) {
    const int row = i >> shift, piece = i & ((1 << shift) - 1), group = piece / 8, span = group >> groups_shift;
    const int chunk = span * cut.span + first + (group & (cut.groups - 1)), col = chunk * kChunkInputs + piece % 8 * 8;
    char* place = to + (group * (8 * Tiles) + row) * 128 + ((piece ^ row) & 7) * 16;
    const bool inside = col < work.cols;  // a multiple of eight
    if (as_is) {
      const char* from = static_cast<const char*>(work.in.data) + row * work.in.stride + (inside ? col : 0) * 2;
      copy_16(shared_address(place), from, inside ? 16 : 0);
    } else {
      *reinterpret_cast<uint4*>(place) = inside ? eight_of<T>(work.in, row, col) : uint4{};
    }
  }
}

// One stage, or what is left for it; always a group of copies, so that they can be counted. chunks: of this warp's
// span.
template <class Format, bool Gated, int Tiles>
__device__ void bring(const Products& work, const Cut& cut, const std::byte* const (&from)[Gated ? 2 : 1], int chunks,
                      int number, char* stage) {
  using Size = Layout<Format, Gated, Tiles>;
  const int first = number * cut.groups, lane = static_cast<int>(threadIdx.x) % 32;
  const int bytes = min(cut.groups, chunks - first) * Format::kBytes;  // none left: nothing is copied
#pragma unroll
  for (int side = 0; side < Size::kSides; ++side) {
    const std::byte* source = from[side] + int64_t{first} * Format::kBytes;
    const uint32_t to = shared_address(stage) + static_cast<uint32_t>(cut.spans * Size::input_bytes(cut.groups) +
                                                                      Warp(cut).number * Size::warp_bytes(cut.groups) +
                                                                      side * cut.groups * Format::kBytes);
#pragma unroll 4
    for (int i = lane * 16; i < bytes; i += 512) copy_16(to + static_cast<uint32_t>(i), source + i, 16);
  }
  if (first < cut.span) bring_inputs<Format, Gated, Tiles>(work, cut, first, stage);
  copies_end();
}

// A warp's sums of a segment and of all segments before it.
template <int Sides, int Tiles>
struct Chains {
  Sums now[Sides][Tiles], all[Sides][Tiles];
  int left;  // chunks of the segment
  bool first = true;

  __device__ explicit Chains(int segment) : left(segment) {}
  // Where spans are segments: sums of one warp's span go to those of another's before it, through shared memory.
  static constexpr int kFloats = Sides * Tiles * 4;
  __device__ void write(float* to) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kFloats; ++i) to[i * 32 + lane] = all[i / 4 / Tiles][i / 4 % Tiles].all[i % 4];
  }
  __device__ void add(const float* from) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kFloats; ++i) {
      float& sum = all[i / 4 / Tiles][i / 4 % Tiles].all[i % 4];
      sum = sum + from[i * 32 + lane];
    }
  }
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
  const Warp warp(cut);
  const char* weights = stage + cut.spans * Size::input_bytes(cut.groups) + warp.number * Size::warp_bytes(cut.groups);
  const uint32_t inputs =
      shared_address(stage) + static_cast<uint32_t>(warp.span * Size::input_bytes(cut.groups) + lane % 8 * 128);
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
      for (int half = 0; half < 2; ++half) {
        const uint4 four = load_matrices(inputs + static_cast<uint32_t>((group * Size::kRows + tile * 8) * 128) +
                                         (piece ^ static_cast<uint32_t>(half * 64)));
        in[tile][half] = {as_met<Format>(four.x), as_met<Format>(four.y), as_met<Format>(four.z),
                          as_met<Format>(four.w)};
      }
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
__global__ void __launch_bounds__(kMostWarps * 32, 1)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Cut cut) {
  using Size = Layout<Format, Gated, Tiles>;
  extern __shared__ __align__(128) char shared[];
  wait_for_previous();
  const Warp warp(cut);
  const int unit = static_cast<int>(blockIdx.x) * cut.beside + warp.unit;
  const bool mine = unit < cut.units;
  const int chunks = mine ? min(cut.span, cut.chunks - warp.span * cut.span) : 0;  // of this warp
  const Place at = place_of<Gated>(work, mine ? unit : 0, 0);
  const Products::Product& part = work.parts[at.part];
  const std::byte* from[Size::kSides];
#pragma unroll
  for (int side = 0; side < Size::kSides; ++side)
    from[side] =
        work.parts[at.part + side].weights + (int64_t{at.panel} * cut.chunks + warp.span * cut.span) * Format::kBytes;
  const int stage_bytes = Size::stage_bytes(cut.beside, cut.spans, cut.groups);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i)
    bring<Format, Gated, Tiles>(work, cut, from, chunks, i, shared + i * stage_bytes);
  const bool finishes = mine && warp.span == 0;
  float kept[Tiles][4] = {};  // the stream as it was
  if (!Gated && work.residual != nullptr && finishes)
    each_result<Tiles>(work, at.panel, part.rows, [&](int tile, int i, int64_t token, int output) {
      kept[tile][i] = work.residual[token * work.residual_stride + output];
    });
  using Sum = Chains<Size::kSides, Tiles>;
  Sum chains(cut.segment);
  const int count = (cut.span + cut.groups - 1) / cut.groups;
  for (int number = 0; number < count; ++number) {
    copies_wait<kStages - 2>();
    __syncthreads();  // everybody's copies are there, and everybody is done with the stage before
    const int next = number + kStages - 1;
    bring<Format, Gated, Tiles>(work, cut, from, chunks, next, shared + next % kStages * stage_bytes);
    multiply_stage<Format, Gated, Tiles>(chains, cut, shared + number % kStages * stage_bytes,
                                         min(cut.groups, chunks - number * cut.groups));
  }
  chains.join();
  if (cut.spans > 1) {  // segments are added in their order
    __syncthreads();
    float* parts = reinterpret_cast<float*>(shared) + warp.number * (Sum::kFloats * 32);
    if (warp.span > 0) chains.write(parts);
    __syncthreads();
    for (int i = 1; finishes && i < cut.spans; ++i) chains.add(parts + i * (Sum::kFloats * 32));
  }
  if (!finishes) return;
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

// Thread blocks of so much shared memory that a multiprocessor has room for.
int groups_beside(int bytes) {
  static const int found = [] {
    int device = 0, all = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    return all;
  }();
  return found / (bytes + 1024) > 1 ? found / (bytes + 1024) : 1;  // each takes a kilobyte more
}

// The longest stages that leave room for kStages of them in `ring` bytes; 0: none do.
template <class Size>
int longest_stage(int units, int spans, int ring) {
  int groups = kMostGroups;
  while (groups > 0 && Size::stage_bytes(units, spans, groups) > ring / kStages) groups /= 2;
  return groups;
}

// A warp for each segment if there is room for that. So many units that the last round of thread blocks leaves least of
// the machine idle.
template <class Size>
Cut cut_of(const Products& work) {
  Cut best = {.chunks = static_cast<int>(chunks_of(work.cols)), .segment = segment_chunks(work.cols, work.segments)};
  best.span = best.chunks;
  if (Size::stage_bytes(1, work.segments, 1) <= kMostRing / kStages && work.segments <= kMostWarps)
    best.spans = work.segments, best.span = best.segment;
  for (int i = 0; i < (Size::kSides == 2 ? 1 : work.count); ++i)
    best.units += static_cast<int>(panels_of(work.parts[i].rows));
  int64_t least = INT64_MAX;
  for (int beside = 1; beside <= kMostUnits && beside * best.spans <= kMostWarps; ++beside) {
    int groups = longest_stage<Size>(beside, best.spans, kRing);
    if (groups == 0 && (best.spans > 1 || beside == 1)) groups = longest_stage<Size>(beside, best.spans, kMostRing);
    if (groups == 0) break;
    const int slots = multiprocessors() * groups_beside(kStages * Size::stage_bytes(beside, best.spans, groups));
    const int64_t rounds = ((best.units + beside - 1) / beside + slots - 1) / slots;
    if (rounds * beside > least) continue;
    least = rounds * beside;
    best.beside = beside, best.groups = groups;
  }
  return best;
}

template <class Format, bool Gated, int Tiles>
void start(cudaStream_t stream, const Products& work) {
  using Size = Layout<Format, Gated, Tiles>;
  static_assert(Size::stage_bytes(1, 1, 1) <= kRing / kStages);
  static_assert(Chains<Size::kSides, Tiles>::kFloats * 32 * 4 <= kStages * Size::stage_bytes(1, 1, 1));
  static const bool prepared = prepare(few_rows_kernel<Format, Gated, Tiles>, kMostRing);
  static_cast<void>(prepared);
  const Cut cut = cut_of<Size>(work);
  launch(stream, few_rows_kernel<Format, Gated, Tiles>, count((cut.units + cut.beside - 1) / cut.beside),
         cut.warps() * 32, static_cast<size_t>(kStages * Size::stage_bytes(cut.beside, cut.spans, cut.groups)), work,
         cut);
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
  by_format(work.type, [&]<class Format>(FormatIs<Format>) { start_either<Format>(stream, work); });
}

cudaError_t load_few_rows() { return load_kernels(); }

}  // namespace millrace::cuda::portable

// Products of experts: every pair of a row and an expert (backend/routing.h) with that expert's matrix. Chunks of 64
// inputs come through rings in shared memory by copies of sixteen bytes, rows from wherever they lie. The inputs are
// cut into segments (packed.h, expert_segments); a sum is a chain over each, and the chains are added in order. Where
// experts have few pairs, a thread block takes one panel and up to 8 pairs, a warp for each segment: there is little to
// do for each panel, and it is to be done at once. Else a warp takes a panel and up to 32 or 64 pairs through all
// segments, one after another. Gates go with what comes through them. How many rows each expert has is known to the
// device only: the grid is for as many tiles as there can be, and those that there are not end at once.
#include <algorithm>

#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

template <class Format>
constexpr bool kQuantised = Format::kBytes < kChunkBytes;
// A warp has a panel, or one of the gates and one of what goes through them.
template <class Format, int Warps, int Eights, bool Gated>
struct Sizes {
  static constexpr int kThreads = Warps * 32, kRows = 8 * Eights, kSides = Gated ? 2 : 1;
  static constexpr int kInputBytes = kRows * 128, kSideBytes = Warps * Format::kBytes;
  static constexpr int kStageBytes = kInputBytes + kSides * kSideBytes;
  // Sums of large tiles of quantised weights leave no registers for those of the segments before.
  static constexpr bool kTotalsShared = kQuantised<Format> && Eights == 8;
  static constexpr int kStages = kTotalsShared ? 3 : 4, kRingBytes = kStages * kStageBytes;
  static constexpr int kTotals = kSides * Eights * 4;  // of a thread
  static constexpr int kShared = kRingBytes + (kTotalsShared ? kTotals * kThreads * 4 : 0);
  static_assert(kShared <= 99 << 10 && Format::kBytes % 16 == 0);
};

// As many tiles of so many rows as there can be.
int64_t tiles_of(const ExpertProducts& work, int64_t rows) {
  if (work.head_rows > 0) return work.experts * ((work.head_rows + rows - 1) / rows);
  return std::min<int64_t>(work.pairs, work.pairs / rows + std::min<int64_t>(work.experts, work.pairs));
}

struct Tile {
  int expert, first, pairs;  // expert < 0: there is no such tile
};
// Tile number so and so of all experts', each of which has as many as its pairs need. All lanes of a warp.
template <int Rows>
__device__ Tile tile_of(const ExpertProducts& work, int number) {
  if (work.head_rows > 0) {
    const int tiles = (work.head_rows + Rows - 1) / Rows, first = number % tiles * Rows;
    return {number / tiles, first, min(Rows, work.head_rows - first)};
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int e = 0; e < work.experts; e += 32) {
    const int mine = e + lane;
    const int begin = mine < work.experts ? work.first[mine] : 0, end = mine < work.experts ? work.first[mine + 1] : 0;
    const int tiles = (end - begin + Rows - 1) / Rows;
    int up_to = tiles;  // of these 32 experts, this one included
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, up_to, step);
      if (lane >= step) up_to += other;
    }
    const int total = __shfl_sync(~0u, up_to, 31);
    if (number < total) {
      const int at = __ffs(static_cast<int>(__ballot_sync(~0u, up_to > number))) - 1;
      const int before = __shfl_sync(~0u, up_to - tiles, at);
      const int first = __shfl_sync(~0u, begin, at) + (number - before) * Rows, last = __shfl_sync(~0u, end, at);
      return {e + at, first, min(Rows, last - first)};
    }
    number -= total;
  }
  return {-1, 0, 0};
}

// Asks for a chunk, as thread so and so of those that do: 128 bytes of every row, their sixteenths turned by the row's
// number, and the panels' chunks.
template <class Format, class Size>
__device__ void bring(const ExpertProducts& work, const Tile& tile, const int32_t* rows, int64_t first_panel,
                      int panels_there, int chunk, uint32_t stage, int thread) {
#pragma unroll
  for (int i = thread; i < Size::kRows * 8; i += Size::kThreads) {
    const int row = i / 8, piece = i % 8;
    const bool inside = row < tile.pairs && chunk * kChunkInputs + piece * 8 < work.cols;
    const char* from = static_cast<const char*>(work.in.data);
    if (inside)
      from += rows[row] * work.in.stride + int64_t{tile.expert} * work.in_apart * 2 + int64_t{chunk} * 128 + piece * 16;
    copy_16(stage + static_cast<uint32_t>(row * 128 + ((piece ^ row) & 7) * 16), from, inside ? 16 : 0);
  }
  constexpr int kPieces = Format::kBytes / 16;  // of a panel's chunk
#pragma unroll
  for (int side = 0; side < Size::kSides; ++side) {
    const std::byte* panels =
        (side == 0 ? work.weights : work.up) + tile.expert * work.stride + first_panel * work.chunks * Format::kBytes;
    for (int i = thread; i < Size::kSideBytes / 16; i += Size::kThreads) {
      const int panel = i / kPieces;
      const bool inside = panel < panels_there;
      const std::byte* from = panels;
      if (inside) from += (int64_t{panel} * work.chunks + chunk) * Format::kBytes + i % kPieces * 16;
      copy_16(stage + static_cast<uint32_t>(Size::kInputBytes + side * Size::kSideBytes + i * 16), from,
              inside ? 16 : 0);
    }
  }
}

template <class Format, int Eights>
__device__ void multiply_chunk(Sums (&sums)[Eights], const char* panel, uint32_t inputs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Format weights;
  weights.load(panel, lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t at = inputs + static_cast<uint32_t>(lane % 8 * 128 + (((half * 4 + lane / 8) ^ lane) & 7) * 16);
#pragma unroll
    for (int eight = 0; eight < Eights; ++eight) {
      const uint4 in = load_matrices(at + static_cast<uint32_t>(eight * 1024));
      weights.multiply_into(sums[eight], 2 * half, as_met<Format>(in.x), as_met<Format>(in.y));
      weights.multiply_into(sums[eight], 2 * half + 1, as_met<Format>(in.z), as_met<Format>(in.w));
    }
  }
}

// A segment's sums join those before it, and begin anew.
template <int Sides, int Eights>
__device__ void add_segment(Sums (&sums)[Sides][Eights], Sums (&totals)[Sides][Eights], bool first) {
#pragma unroll
  for (int side = 0; side < Sides; ++side) {
#pragma unroll
    for (int eight = 0; eight < Eights; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float &sum = sums[side][eight].all[i], &total = totals[side][eight].all[i];
        total = first ? sum : total + sum;
        sum = 0;
      }
    }
  }
}

// The same with the sums before in shared memory, a column for each thread.
template <int Sides, int Eights>
__device__ void add_segment(Sums (&sums)[Sides][Eights], float* totals, int threads, bool first) {
#pragma unroll
  for (int side = 0; side < Sides; ++side) {
#pragma unroll
    for (int eight = 0; eight < Eights; ++eight) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float &sum = sums[side][eight].all[i], &total = totals[((side * Eights + eight) * 4 + i) * threads];
        total = first ? sum : total + sum;
        sum = 0;
      }
    }
  }
}

// Where a warp's sums go.
template <int Eights, int Sides>
__device__ void finish(const ExpertProducts& work, const Tile& tile, int panel, const Sums (&sums)[Sides][Eights]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t before = int64_t{tile.expert} * work.outputs;
  const View to = {work.out, work.out_stride * 4, 0, 0, work.out_form};
#pragma unroll
  for (int eight = 0; eight < Eights; ++eight) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = eight * 8 + row_of(lane, i), output = panel * kPanel + output_of(lane, i);
      if (pair >= tile.pairs || output >= work.outputs) continue;
      float value = sums[0][eight].all[i];
      if (work.bias != nullptr) value += work.bias[before + output];
      if constexpr (Sides == 2) {
        float up = sums[1][eight].all[i];
        if (work.up_bias != nullptr) up += work.up_bias[before + output];
        value = work.limit.limit > 0 ? limited(work.limit, value, up) : activated(work.activation, value) * up;
        write(to, tile.first + pair, output, value);
      } else {
        work.out[(tile.first + pair) * work.out_stride + int64_t{tile.expert} * work.out_apart + output] = value;
      }
    }
  }
}

template <class Format, int Warps, int Eights, bool Gated>
__global__ void __launch_bounds__(Warps * 32) experts_kernel(ExpertProducts work) {
  using Size = Sizes<Format, Warps, Eights, Gated>;
  extern __shared__ __align__(128) char room[];
  __shared__ int32_t rows[Size::kRows];
  wait_for_previous();
  const Tile tile = tile_of<Size::kRows>(work, static_cast<int>(blockIdx.y));
  if (tile.expert < 0) return;
  for (int i = static_cast<int>(threadIdx.x); i < tile.pairs; i += Size::kThreads)
    rows[i] = work.row != nullptr ? work.row[tile.first + i] : tile.first + i;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, first_panel = static_cast<int>(blockIdx.x) * Warps,
            panels_there = (work.outputs + kPanel - 1) / kPanel - first_panel;
  const uint32_t stages = shared_address(room);
  auto ask = [&](int chunk) {
    if (chunk < work.chunks)
      bring<Format, Size>(work, tile, rows, first_panel, panels_there, chunk,
                          stages + static_cast<uint32_t>(chunk % Size::kStages * Size::kStageBytes),
                          static_cast<int>(threadIdx.x));
    copies_end();
  };
  for (int chunk = 0; chunk < Size::kStages - 1; ++chunk) ask(chunk);
  Sums sums[Size::kSides][Eights], totals[Size::kSides][Eights];
  [[maybe_unused]] float* column = reinterpret_cast<float*>(room + Size::kRingBytes) + threadIdx.x;
  const int segments = expert_segments(work.chunks), length = segment_chunks_of(work.chunks, segments);
#pragma unroll 1
  for (int chunk = 0; chunk < work.chunks; ++chunk) {
    copies_wait<Size::kStages - 2>();
    __syncthreads();  // the chunk is there for all, and all have done with the one before
    ask(chunk + Size::kStages - 1);
    const int stage = chunk % Size::kStages * Size::kStageBytes;
#pragma unroll
    for (int side = 0; side < Size::kSides; ++side)
      multiply_chunk<Format, Eights>(sums[side],
                                     room + stage + Size::kInputBytes + side * Size::kSideBytes + warp * Format::kBytes,
                                     stages + static_cast<uint32_t>(stage));
    if ((chunk + 1) % length != 0 && chunk + 1 < work.chunks) continue;
    if constexpr (Size::kTotalsShared)
      add_segment(sums, column, Size::kThreads, chunk < length);
    else
      add_segment(sums, totals, chunk < length);
  }
  if constexpr (Size::kTotalsShared) {
#pragma unroll
    for (int i = 0; i < Size::kTotals; ++i)
      totals[i / (4 * Eights)][i / 4 % Eights].all[i % 4] = column[i * Size::kThreads];
  }
  finish(work, tile, first_panel + warp, totals);
}

// A warp's ring of chunks is its own.
template <class Format, bool Gated>
struct FewSizes : Sizes<Format, 1, 1, Gated> {
  static constexpr int kStages = Format::kBytes > 1024 ? 3 : 4;
  static constexpr int kWarpBytes = kStages * FewSizes::kStageBytes;
  static constexpr int kShared = kExpertSegments * kWarpBytes;
};

template <class Format, bool Gated>
__global__ void __launch_bounds__(kExpertSegments * 32) few_experts_kernel(ExpertProducts work) {
  using Size = FewSizes<Format, Gated>;
  extern __shared__ __align__(128) char room[];
  __shared__ int32_t rows[Size::kRows];
  __shared__ float parts[kExpertSegments][Size::kSides][4][32];
  wait_for_previous();
  const Tile tile = tile_of<Size::kRows>(work, static_cast<int>(blockIdx.y));
  if (tile.expert < 0) return;
  if (static_cast<int>(threadIdx.x) < tile.pairs)
    rows[threadIdx.x] = work.row != nullptr ? work.row[tile.first + threadIdx.x] : tile.first + threadIdx.x;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            panel = static_cast<int>(blockIdx.x);
  const int segments = expert_segments(work.chunks), length = segment_chunks_of(work.chunks, segments);
  const int begin = warp * length, end = warp < segments ? min(begin + length, work.chunks) : begin;
  char* mine = room + warp * Size::kWarpBytes;
  const uint32_t stages = shared_address(mine);
  auto ask = [&](int chunk) {
    if (chunk < end)
      bring<Format, Size>(work, tile, rows, panel, 1, chunk,
                          stages + static_cast<uint32_t>((chunk - begin) % Size::kStages * Size::kStageBytes), lane);
    copies_end();
  };
  for (int chunk = begin; chunk < begin + Size::kStages - 1; ++chunk) ask(chunk);
  Sums sums[Size::kSides][1], totals[Size::kSides][1];
#pragma unroll 1
  for (int chunk = begin; chunk < end; ++chunk) {
    copies_wait<Size::kStages - 2>();
    __syncwarp();  // the chunk is there for all lanes, and all have done with the one before
    ask(chunk + Size::kStages - 1);
    const int stage = (chunk - begin) % Size::kStages * Size::kStageBytes;
#pragma unroll
    for (int side = 0; side < Size::kSides; ++side)
      multiply_chunk<Format, 1>(sums[side], mine + stage + Size::kInputBytes + side * Size::kSideBytes,
                                stages + static_cast<uint32_t>(stage));
  }
#pragma unroll
  for (int side = 0; side < Size::kSides; ++side)
    for (int i = 0; i < 4; ++i) parts[warp][side][i][lane] = sums[side][0].all[i];
  __syncthreads();
  if (warp != 0) return;
  for (int segment = 0; segment < segments; ++segment) {
#pragma unroll
    for (int side = 0; side < Size::kSides; ++side)
      for (int i = 0; i < 4; ++i) sums[side][0].all[i] = parts[segment][side][i][lane];
    add_segment(sums, totals, segment == 0);
  }
  finish(work, tile, panel, totals);
}

template <class Format, bool Gated>
void start_few(cudaStream_t stream, const ExpertProducts& work) {
  using Size = FewSizes<Format, Gated>;
  constexpr auto kKernel = few_experts_kernel<Format, Gated>;
  static const bool prepared = prepare(kKernel, Size::kShared);
  static_cast<void>(prepared);
  launch(stream, kKernel, dim3(count(panels_of(work.outputs)), count(tiles_of(work, Size::kRows))),
         kExpertSegments * 32, Size::kShared, work);
}

template <class Format, int Warps, int Eights, bool Gated>
void start(cudaStream_t stream, const ExpertProducts& work) {
  using Size = Sizes<Format, Warps, Eights, Gated>;
  constexpr auto kKernel = experts_kernel<Format, Warps, Eights, Gated>;
  static const bool prepared = prepare(kKernel, Size::kShared);
  static_cast<void>(prepared);
  const int64_t tiles = tiles_of(work, Size::kRows);
  const int64_t panels = panels_of(work.outputs);
  launch(stream, kKernel, dim3(count((panels + Warps - 1) / Warps), count(tiles)), Size::kThreads, Size::kShared, work);
}

// By how many pairs an expert has on average: who computes what, no matter of bits.
template <class Format, bool Gated>
void start_any(cudaStream_t stream, const ExpertProducts& work) {
  constexpr int kWarps = Gated ? 4 : 8;  // of large tiles, as many as find room
  if (work.pairs <= int64_t{work.experts} * 8) return start_few<Format, Gated>(stream, work);
  if (work.pairs <= int64_t{work.experts} * 32) return start<Format, kWarps, 4, Gated>(stream, work);
  start<Format, kWarps, 8, Gated>(stream, work);
}

// Weights as in the file: a warp for each result, inputs in float32.
__global__ void any_experts_kernel(ExpertProducts work, DType type) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t output = int64_t{blockIdx.y} * (blockDim.x / 32) + threadIdx.x / 32;
  const int pair = static_cast<int>(blockIdx.x);
  if (output >= work.outputs || pair < work.first[0] || pair >= work.first[work.experts]) return;
  int low = 0, high = work.experts;  // the last expert that begins at the pair or before it, and has some
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (work.first[middle] <= pair ? low : high) = middle;
  }
  const int64_t row = work.row != nullptr ? work.row[pair] : pair;
  const std::byte* numbers = work.weights + low * work.stride + output * (work.stride / work.outputs);
  float sum = 0;
  for (int i = lane; i < work.cols; i += 32) sum = fmaf(stored_value(type, numbers, i), read(work.in, row, i), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane != 0) return;
  if (work.bias != nullptr) sum += work.bias[low * int64_t{work.outputs} + output];
  work.out[pair * work.out_stride + output] = sum;
}

}  // namespace

void expert_products(cudaStream_t stream, const ExpertProducts& work, DType type) {
  if (work.pairs == 0) return;
  by_format(type, [&]<class Format>(FormatIs<Format>) {
    work.up != nullptr ? start_any<Format, true>(stream, work) : start_any<Format, false>(stream, work);
  });
}

void any_expert_products(cudaStream_t stream, const ExpertProducts& work, DType type) {
  if (work.pairs == 0) return;
  const dim3 grid(count(work.pairs), count((work.outputs + 7) / 8));
  launch(stream, any_experts_kernel, grid, 256, 0, work, type);
}

cudaError_t load_experts() { return load_kernels(); }

}  // namespace millrace::cuda

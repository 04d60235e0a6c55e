// Products of experts: every pair of a row and an expert (backend/routing.h) with that expert's matrix. A thread group
// takes some panels of one expert, a warp each, and up to 8, 32 or 64 of its pairs; chunks of 64 inputs come through a
// ring in shared memory by copies of sixteen bytes, rows from wherever they lie. A sum is one chain over all inputs
// (packed.h, one segment), whichever size of tile computes it; gates go with what comes through them. How many rows
// each expert has is known to the device only: the grid is for as many tiles as there can be, and those that there are
// not end at once.
#include <algorithm>

#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

// A warp has a panel, or one of the gates and one of what goes through them.
template <class Format, int Warps, int Eights, bool Gated>
struct Sizes {
  static constexpr int kThreads = Warps * 32, kRows = 8 * Eights, kSides = Gated ? 2 : 1;
  static constexpr int kInputBytes = kRows * 128, kSideBytes = Warps * Format::kBytes;
  static constexpr int kStageBytes = kInputBytes + kSides * kSideBytes;
  static constexpr int kStages = Eights == 1 ? 8 : 4;  // few rows wait for memory only
  static constexpr int kShared = kStages * kStageBytes;
  static_assert(kShared <= 99 << 10 && Format::kBytes % 16 == 0);
};

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

// Asks for a chunk: 128 bytes of every row, their sixteenths turned by the row's number, and the panels' chunks.
template <class Format, class Size>
__device__ void bring(const ExpertProducts& work, const Tile& tile, const int32_t* rows, int64_t first_panel,
                      int panels_there, int chunk, uint32_t stage) {
  const int thread = static_cast<int>(threadIdx.x);
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
                          stages + static_cast<uint32_t>(chunk % Size::kStages * Size::kStageBytes));
    copies_end();
  };
  for (int chunk = 0; chunk < Size::kStages - 1; ++chunk) ask(chunk);
  Sums sums[Size::kSides][Eights];
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
  }
  finish(work, tile, first_panel + warp, sums);
}

template <class Format, int Warps, int Eights, bool Gated>
void start(cudaStream_t stream, const ExpertProducts& work) {
  using Size = Sizes<Format, Warps, Eights, Gated>;
  constexpr auto kKernel = experts_kernel<Format, Warps, Eights, Gated>;
  static const bool prepared = prepare(kKernel, Size::kShared);
  static_cast<void>(prepared);
  const int64_t nonempty = std::min<int64_t>(work.experts, work.pairs),
                most = std::min<int64_t>(work.pairs, work.pairs / Size::kRows + nonempty),
                of_heads = work.experts * int64_t{(work.head_rows + Size::kRows - 1) / Size::kRows},
                tiles = work.head_rows > 0 ? of_heads : most;
  const int64_t panels = panels_of(work.outputs);
  launch(stream, kKernel, dim3(count((panels + Warps - 1) / Warps), count(tiles)), Size::kThreads, Size::kShared, work);
}

// By how many pairs an expert has on average: who computes what, no matter of bits.
template <class Format, bool Gated>
void start_any(cudaStream_t stream, const ExpertProducts& work) {
  constexpr int kWarps = Gated ? 4 : 8;  // of large tiles, as many as find room
  // A warp by itself: there are few panels, and all multiprocessors are to read some of them at once.
  if (work.pairs <= int64_t{work.experts} * 8) return start<Format, 1, 1, Gated>(stream, work);
  if (work.pairs <= int64_t{work.experts} * 32) return start<Format, kWarps, 4, Gated>(stream, work);
  start<Format, kWarps, 8, Gated>(stream, work);
}

// Weights as in the file: a warp for each result, inputs in float32.
__global__ void any_experts_kernel(ExpertProducts work, DType type) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t output = int64_t{blockIdx.y} * (blockDim.x / 32) + threadIdx.x / 32;
  const int pair = static_cast<int>(blockIdx.x);
  if (output >= work.outputs) return;
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

// Products of any number of rows without Hopper's instructions. A thread block takes a tile of rows by outputs; chunks
// of 64 inputs come through a ring in shared memory by copies of sixteen bytes, and every warp multiplies its share of
// the rows with 32 outputs. Sums are the chain of packed.h.
#include <algorithm>

#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/packed.h"
#include "backend/cuda/portable/portable.h"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda::portable {
namespace {

constexpr int kRowGroup = 16;  // tiles of rows that go through all the outputs together

// A tile, the rows that a warp has of it (times 32 outputs), and how many stages the ring has.
template <int Rows, int Outputs, int WarpRows, int Stages>
struct Sizes {
  static constexpr int kRows = Rows, kOutputs = Outputs, kWarpRows = WarpRows, kStages = Stages;
  static constexpr int kAcross = Outputs / 32, kWarps = Rows / WarpRows * kAcross, kThreads = kWarps * 32;
  static constexpr int kRowTiles = WarpRows / 16, kSlots = Outputs / kPanel;
  static constexpr int kInputBytes = Rows * 128, kStageBytes = kInputBytes + kSlots * kChunkBytes;
  static constexpr int kShared = Stages * kStageBytes;
  static_assert(kShared <= 99 << 10);
  static_assert(Rows * 8 % kThreads == 0 && kSlots * 128 % kThreads == 0 && kThreads % 128 == 0);
};

struct Tiles {
  int rows = 0, outputs = 0;    // how many there are
  int chunks = 0, segment = 0;  // of inputs: all of them, and those of a segment
};

struct Tile {
  int first_row, part, first_panel;
};
template <class Size, bool Gated>
__device__ Tile tile_of(const Products& work, const Tiles& tiles, int number) {
  const int before = number / (kRowGroup * tiles.outputs) * kRowGroup, in = number % (kRowGroup * tiles.outputs);
  const int rows = min(kRowGroup, tiles.rows - before);
  Tile tile = {(before + in % rows) * Size::kRows, 0, in / rows};
  if constexpr (!Gated) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int count = (work.parts[i].rows + Size::kOutputs - 1) / Size::kOutputs;
      if (tile.part == i && i + 1 < work.count && tile.first_panel >= count)
        tile.first_panel -= count, tile.part = i + 1;
    }
  }
  tile.first_panel *= Gated ? Size::kSlots / 2 : Size::kSlots;
  return tile;
}

// What a thread copies of every chunk: the same sixteenth of some rows' 128 bytes, and sixteen bytes of some panels.
// Panels lie in slots; of gated products gate and up take turns, so that a warp has both of the same outputs.
template <class Size, bool Gated>
struct Bringing {
  static constexpr int kInputs = Size::kRows * 8 / Size::kThreads, kWeights = Size::kSlots * 128 / Size::kThreads;
  const char* inputs;
  int64_t stride;
  const std::byte* weights[kWeights];  // null: no such panel
  int rows, cols;                      // of this thread's rows those that there are; inputs from its first one on

  __device__ Bringing(const Products& work, const Tiles& tiles, const Tile& tile) {
    const int thread = static_cast<int>(threadIdx.x), first = tile.first_row + thread / 8;
    inputs = static_cast<const char*>(work.in.data) + first * work.in.stride + thread % 8 * 16;
    stride = work.in.stride * (Size::kThreads / 8);
    rows = first < work.in.rows ? (work.in.rows - first - 1) / (Size::kThreads / 8) + 1 : 0;
    cols = work.cols - thread % 8 * 8;
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      const int slot = thread / 128 + i * (Size::kThreads / 128);
      const Products::Product& part = work.parts[Gated ? slot % 2 : tile.part];
      const int panel = tile.first_panel + (Gated ? slot / 2 : slot);
      const bool there = panel * kPanel < part.rows;
      weights[i] = there ? part.weights + int64_t{panel} * tiles.chunks * kChunkBytes + thread % 128 * 16 : nullptr;
    }
  }
  __device__ void chunk(const Products& work, int number, uint32_t stage) const {
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t to = stage + static_cast<uint32_t>(thread / 8 * 128 + ((thread ^ thread / 8) & 7) * 16);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      const bool inside = i < rows && number * kChunkInputs < cols;
      copy_16(to + static_cast<uint32_t>(i * (Size::kThreads / 8) * 128),
              inside ? inputs + i * stride + int64_t{number} * 128 : static_cast<const char*>(work.in.data),
              inside ? 16 : 0);
    }
    const uint32_t panels = stage + static_cast<uint32_t>(Size::kInputBytes + thread * 16);
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      const std::byte* from =
          weights[i] != nullptr ? weights[i] + int64_t{number} * kChunkBytes : work.parts[0].weights;
      copy_16(panels + static_cast<uint32_t>(i * Size::kThreads * 16), from, weights[i] != nullptr ? 16 : 0);
    }
  }
};

// A warp's sums: [its rows, sixteen at a time][eight outputs]. Lane 4g + t has in [..][..][i] row g + i / 2 * 8, output
// 2t + i % 2.
template <class Size>
using WarpSums = float[Size::kRowTiles][4][4];

template <class T, class Size>
__device__ void multiply_chunk(WarpSums<Size>& sums, uint32_t stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / Size::kAcross * Size::kWarpRows + lane % 16;
  const uint32_t inputs = stage + static_cast<uint32_t>(row * 128);
  const uint32_t piece = static_cast<uint32_t>((lane / 16 ^ row % 8) * 16);
  const uint32_t weights = stage + static_cast<uint32_t>(Size::kInputBytes + warp % Size::kAcross * 2 * kChunkBytes +
                                                         lane % 8 * 16 + lane / 8 % 2 * 128 + lane / 16 * 1024);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint4 rows[Size::kRowTiles], panels[2];
#pragma unroll
    for (int i = 0; i < Size::kRowTiles; ++i)
      rows[i] =
          load_matrices(inputs + static_cast<uint32_t>(i * 16 * 128) + (piece ^ static_cast<uint32_t>(step * 32)));
#pragma unroll
    for (int i = 0; i < 2; ++i)
      panels[i] = load_matrices(weights + static_cast<uint32_t>(i * kChunkBytes + step * 256));
#pragma unroll
    for (int i = 0; i < Size::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        multiply<T>(sums[i][2 * j], rows[i], panels[j].x, panels[j].y);
        multiply<T>(sums[i][2 * j + 1], rows[i], panels[j].z, panels[j].w);
      }
    }
  }
}

// A segment's sums go to those of the segments before.
template <class Size>
__device__ void join(WarpSums<Size>& all, WarpSums<Size>& sums, bool first) {
#pragma unroll
  for (int i = 0; i < Size::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        all[i][j][k] = first ? sums[i][j][k] : all[i][j][k] + sums[i][j][k];
        sums[i][j][k] = 0;
      }
    }
  }
}

// Two neighbouring outputs of a row.
__device__ inline float2 with_bias(float2 pair, const Products::Product& part, int output) {
  if (part.bias != nullptr) {
    pair.x += part.bias[output];
    if (output + 1 < part.rows) pair.y += part.bias[output + 1];
  }
  return pair;
}
__device__ inline void put(const Products& work, const Products::Product& part, int64_t token, int output,
                           float2 pair) {
  if (output >= part.rows) return;
  pair = with_bias(pair, part, output);
  const bool adds = work.residual != nullptr, both = output + 1 < part.rows;
  float* place = (adds ? work.residual + token * work.residual_stride : part.out + token * part.out_stride) + output;
  if (both && reinterpret_cast<uintptr_t>(place) % 8 == 0) {
    auto* two = reinterpret_cast<float2*>(place);
    if (adds) {
      const float2 old = *two;
      pair = {old.x + work.residual_scale * pair.x, old.y + work.residual_scale * pair.y};
    }
    *two = pair;
    return;
  }
  place[0] = adds ? place[0] + work.residual_scale * pair.x : pair.x;
  if (both) place[1] = adds ? place[1] + work.residual_scale * pair.y : pair.y;
}
__device__ inline void put_gated(const Products& work, int64_t token, int output, float2 gate, float2 up) {
  const Products::Product& part = work.parts[0];
  if (output >= part.rows) return;
  gate = with_bias(gate, part, output);
  up = with_bias(up, work.parts[1], output);
  const View to = {part.out, part.out_stride * 4, work.in.rows, part.rows, work.out_form};
  write(to, token, output, activated(work.activation, gate.x) * up.x);
  if (output + 1 < part.rows) write(to, token, output + 1, activated(work.activation, gate.y) * up.y);
}

template <class Size, bool Gated>
__device__ void finish(const Products& work, const Tile& tile, const WarpSums<Size>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int panel = tile.first_panel + warp % Size::kAcross * (Gated ? 1 : 2);
#pragma unroll
  for (int i = 0; i < Size::kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = tile.first_row + warp / Size::kAcross * Size::kWarpRows + i * 16 + half * 8 + lane / 4;
      if (token >= work.in.rows) continue;
      auto pair = [&](int j) { return make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]); };
#pragma unroll
      for (int j = 0; j < (Gated ? 2 : 4); ++j) {
        const int output = panel * kPanel + j * 8 + lane % 4 * 2;
        if constexpr (Gated)
          put_gated(work, token, output, pair(j), pair(j + 2));
        else
          put(work, work.parts[tile.part], token, output, pair(j));
      }
    }
  }
}

template <class T, class Size, bool Gated>
__global__ void __launch_bounds__(Size::kThreads)
    many_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Tiles tiles) {
  extern __shared__ __align__(128) char raw[];
  const uint32_t ring = shared_address(raw);
  wait_for_previous();
  const Tile tile = tile_of<Size, Gated>(work, tiles, static_cast<int>(blockIdx.x));
  const Bringing<Size, Gated> bringing(work, tiles, tile);
  auto bring = [&](int chunk) {
    if (chunk < tiles.chunks)
      bringing.chunk(work, chunk, ring + static_cast<uint32_t>(chunk % Size::kStages * Size::kStageBytes));
    copies_end();
  };
#pragma unroll
  for (int i = 0; i < Size::kStages - 1; ++i) bring(i);
  WarpSums<Size> sums = {}, all = {};
  int left = tiles.segment;
  bool first = true;
  for (int chunk = 0; chunk < tiles.chunks; ++chunk) {
    copies_wait<Size::kStages - 2>();
    __syncthreads();  // everybody's copies are there, and everybody is done with the stage before
    bring(chunk + Size::kStages - 1);
    if (left == 0) {
      join<Size>(all, sums, first);
      first = false;
      left = tiles.segment;
    }
    --left;
    multiply_chunk<T, Size>(sums, ring + static_cast<uint32_t>(chunk % Size::kStages * Size::kStageBytes));
  }
  join<Size>(all, sums, first);
  finish<Size, Gated>(work, tile, all);
}

// ---- host side

template <class Size>
Tiles tiles_of(const Products& work) {
  Tiles tiles = {.rows = (work.in.rows + Size::kRows - 1) / Size::kRows,
                 .chunks = static_cast<int>(chunks_of(work.cols)),
                 .segment = segment_chunks(work.cols, work.segments)};
  const int each = work.gated ? Size::kOutputs / 2 : Size::kOutputs;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) tiles.outputs += (work.parts[i].rows + each - 1) / each;
  return tiles;
}

template <class T, class Size, bool Gated>
void start(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(many_rows_kernel<T, Size, Gated>, Size::kShared);
  static_cast<void>(prepared);
  const Tiles tiles = tiles_of<Size>(work);
  launch(stream, many_rows_kernel<T, Size, Gated>, count(int64_t{tiles.rows} * tiles.outputs), Size::kThreads,
         static_cast<size_t>(Size::kShared), work, tiles);
}

// Smaller tiles lose some speed, and leave less of the machine idle: about how long all of them take.
template <class Size>
double cost(const Products& work) {
  constexpr double kLoss = 1 + 0.2 * (Size::kRows < 128 ? 1 : 0) + 0.2 * (128 / Size::kOutputs - 1);
  const Tiles tiles = tiles_of<Size>(work);
  const int64_t all = int64_t{tiles.rows} * tiles.outputs, rounds = (all + multiprocessors() - 1) / multiprocessors();
  return static_cast<double>(rounds * Size::kRows * Size::kOutputs) * kLoss;
}

// The first of the sizes that costs least.
template <class T, class First, class... Others>
void start_best(cudaStream_t stream, const Products& work) {
  if constexpr (sizeof...(Others) > 0) {
    if (!((cost<First>(work) <= cost<Others>(work)) && ...)) return start_best<T, Others...>(stream, work);
  }
  return work.gated ? start<T, First, true>(stream, work) : start<T, First, false>(stream, work);
}

template <class T>
void start_with(cudaStream_t stream, const Products& work) {
  start_best<T, Sizes<128, 128, 64, 3>, Sizes<128, 64, 32, 3>, Sizes<64, 64, 32, 3>, Sizes<64, 32, 16, 4>>(stream,
                                                                                                           work);
}

}  // namespace

cudaError_t many_rows(cudaStream_t stream, const Products& work) {
  if (work.type == DType::f16)
    start_with<__half>(stream, work);
  else
    start_with<__nv_bfloat16>(stream, work);
  return cudaSuccess;
}

cudaError_t load_many_rows() { return load_kernels(); }

}  // namespace millrace::cuda::portable

// What the kernels for more than a few rows share: tiles, the ring that brings inputs and weights, and how a group of
// four warps multiplies them. many_rows.cu and spread_rows.cu; nothing here is shared between those two at run time.
#pragma once

#include <cuda.h>

#include <algorithm>

#include "backend/cuda/packed.h"
#include "backend/cuda/products.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace millrace::cuda {

// A product whose segments are computed by different thread blocks. False: it is not one for which that would be
// quicker, and nothing has been queued.
bool spread_rows(cudaStream_t stream, const Products& work);

namespace {

inline constexpr int kRingBytes = 200 << 10;
inline constexpr int kMostBytes = 224 << 10;  // of a ring and a room beside it
inline constexpr int kRowGroup = 16;          // tiles of rows that go through all the outputs together
inline constexpr int kEarlyBytes = 64 << 10;  // of weights asked for before inputs, which would queue behind them

// Groups of 64 rows by so many outputs. Together: so many thread blocks, a cluster, have neighbouring tiles of rows and
// the same outputs; each asks for its share of the weights, which arrives at all of them. Buffer: bytes behind the
// ring.
template <int Groups, int Outputs, int Together = 1, int Buffer = 0>
struct Sizes {
  static constexpr int kTogether = Together;
  static constexpr int kRows = 64 * Groups;
  static constexpr int kInputBytes = kRows * 128, kWeightBytes = Outputs * 128;
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kStages = std::min(16, (Buffer == 0 ? kRingBytes : kMostBytes - Buffer) / kStageBytes);
  static constexpr int kEarly = std::clamp(kEarlyBytes / kWeightBytes, 1, kStages);  // stages before inputs
  static constexpr int kShared = kStages * kStageBytes + Buffer + 1024;
};

struct Tiles {
  int rows = 0, outputs = 0;  // how many there are
  int chunks = 0;             // of inputs
  int segment = 0;            // chunks of a segment of them
  int box_rows = 0;           // rows a copy of inputs brings
  int last_rows = 0;          // and of the last tile of rows: asking for rows that are not there takes long
  bool boxes = false;         // the stream can be added to by the copy engine
};
struct Maps {
  CUtensorMap inputs, last_inputs, weights[3], stream;
};

struct Tile {
  int first_row, part, first_output;
};
// Of a cluster's tiles, which have one number, the one of its thread block `rank`. It may lie beyond the last row.
template <int Groups, int Outputs, bool Gated, int Together = 1>
__device__ Tile tile_of(const Products& work, const Tiles& tiles, int number, int rank = 0) {
  constexpr int kGroup = kRowGroup / Together;
  const int before = number / (kGroup * tiles.outputs) * kGroup, in = number % (kGroup * tiles.outputs);
  const int rows = min(kGroup, (tiles.rows + Together - 1) / Together - before);
  Tile tile = {((before + in % rows) * Together + rank) * 64 * Groups, 0, in / rows};
  if constexpr (!Gated) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int count = (work.parts[i].rows + Outputs - 1) / Outputs;
      if (tile.part == i && i + 1 < work.count && tile.first_output >= count)
        tile.first_output -= count, tile.part = i + 1;
    }
  }
  tile.first_output *= Gated ? Outputs / 2 : Outputs;
  return tile;
}

template <class Size>
struct Ring {
  uint32_t stages, barriers;  // of every stage one that it is full, one that it is free
  int stage = 0;
  uint32_t round = 0;

  __device__ uint32_t at() const { return stages + static_cast<uint32_t>(stage * Size::kStageBytes); }
  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(stage) * 16; }
  __device__ uint32_t free() const { return full() + 8; }
  __device__ void next() {
    if (++stage == Size::kStages) stage = 0, round ^= 1;
  }
};

// Makes a ring's barriers; all threads of a kernel. What is shared is overwritten when all have given it back.
template <int Groups, class Size>
__device__ __forceinline__ void begin(const Ring<Size>& ring) {
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < Size::kStages; ++i) {
      barrier_begin(ring.barriers + i * 16, 1);
      barrier_begin(ring.barriers + i * 16 + 8, Groups * Size::kTogether);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (Size::kTogether > 1) {
    cluster_sync();  // nothing may be sent to barriers that are not there yet
  } else {
    __syncthreads();
  }
}

// Once: nobody reads them again.
template <class Size, bool Gated, bool Once>
__device__ void ask_weights(const Maps& maps, const Tile& tile, int chunk, const Ring<Size>& ring) {
  const int panel = tile.first_output / kPanel;
  auto ask = [&](uint32_t to, const CUtensorMap& map) {
    if constexpr (Once) {
      copy_box(to, map, 0, chunk * 4, panel, ring.full(), read_once());
    } else {
      copy_box(to, map, 0, chunk * 4, panel, ring.full());
    }
  };
  const uint32_t to = ring.at() + Size::kInputBytes;
  ask(to, maps.weights[Gated ? 0 : tile.part]);
  if constexpr (Gated) ask(to + Size::kWeightBytes / 2, maps.weights[1]);
}

// A thread block's half of them, for both of a pair: gate or up, or the first or last panels.
template <class Size, bool Gated>
__device__ void ask_half_weights(const Maps& maps, const Tile& tile, int chunk, const Ring<Size>& ring, int rank) {
  constexpr int kHalf = Size::kWeightBytes / 2;
  const uint32_t to = ring.at() + static_cast<uint32_t>(Size::kInputBytes + rank * kHalf);
  const int panel = tile.first_output / kPanel + (Gated ? 0 : rank * (kHalf / kChunkBytes));
  copy_box_to(3, to, maps.weights[Gated ? rank : tile.part], 0, chunk * 4, panel, ring.full());
}

// A stage may be overwritten, as far as these four warps are concerned: said to every thread block that brings
// something there, by a thread of another warp.
template <class Size>
__device__ __forceinline__ void give_back(uint32_t free) {
  if constexpr (Size::kTogether == 1) {
    if (threadIdx.x % 128 == 0) barrier_arrive(free);
  } else {
    const uint32_t rank = threadIdx.x % 128 / 32;
    if (threadIdx.x % 32 == 0 && rank < Size::kTogether) barrier_arrive_at(free, rank);
  }
}

// What a group of four warps does with a tile: chunk after chunk, a stage given back when the next one's products have
// been started.
template <class T, class Size, int Sums>
__device__ void multiply(Ring<Size>& ring, int chunks, float (&sums)[Sums]) {
  const uint32_t mine = threadIdx.x / 128 * 8192;
  uint32_t to_free = 0;
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    barrier_wait(ring.full(), ring.round);
    const uint64_t inputs = inputs_at(ring.at() + mine), weights = weights_at(ring.at() + Size::kInputBytes);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply_add<T>(sums, inputs + static_cast<uint64_t>(k) * 2, weights + static_cast<uint64_t>(k) * 16, chunk + k);
    products_end();
    if constexpr (Size::kStages <= 3) {  // so few that the next one cannot wait
      products_finished<0>();
      give_back<Size>(ring.free());
    } else {
      products_finished<1>();
      if (to_free != 0) give_back<Size>(to_free);
      to_free = ring.free();
    }
  }
  products_finished<0>();
  if (to_free != 0) give_back<Size>(to_free);
}

// ---- host side

// Rows of inputs: boxes of 64 numbers of so many rows, zeros beyond the end.
inline bool map_inputs(CUtensorMap& map, const View& in, int rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(in.cols), static_cast<cuuint64_t>(in.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(in.stride)};
  const cuuint32_t box[2] = {kChunkInputs, static_cast<cuuint32_t>(rows)}, steps[2] = {1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, in.data, sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
// Those of all tiles of so many rows; false: they cannot be described.
inline bool map_inputs(Maps& maps, Tiles& tiles, const Products& work, int tile_rows) {
  View in = work.in;
  in.cols = work.cols;
  const int left = in.rows - (tiles.rows - 1) * tile_rows;
  tiles.box_rows = tiles.rows > 1 ? tile_rows : (left + 7) / 8 * 8;
  tiles.last_rows = (left + 7) / 8 * 8;
  return map_inputs(maps.inputs, in, tiles.box_rows) && map_inputs(maps.last_inputs, in, tiles.last_rows);
}
// Panels: boxes of one chunk of so many of them.
inline bool map_weights(CUtensorMap& map, const Products::Product& part, int chunks, int outputs) {
  const cuuint64_t sizes[3] = {256, static_cast<cuuint64_t>(chunks) * 4, static_cast<cuuint64_t>(panels_of(part.rows))};
  const cuuint64_t strides[2] = {512, static_cast<cuuint64_t>(chunks) * kChunkBytes};
  const cuuint32_t box[3] = {256, 4, static_cast<cuuint32_t>(outputs / kPanel)}, steps[3] = {1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<std::byte*>(part.weights), sizes, strides, box,
                   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The stream: boxes of 32 numbers of 64 rows. False: it cannot be described.
inline bool map_stream(CUtensorMap& map, const Products& work) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(work.parts[0].rows), static_cast<cuuint64_t>(work.in.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(work.residual_stride) * 4};
  const cuuint32_t box[2] = {32, 64}, steps[2] = {1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, work.residual, sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

inline int tiles_across(const Products& work, int outputs) {
  int count = 0;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) {
    const int each = work.gated ? outputs / 2 : outputs;
    count += (work.parts[i].rows + each - 1) / each;
  }
  return count;
}

}  // namespace
}  // namespace millrace::cuda

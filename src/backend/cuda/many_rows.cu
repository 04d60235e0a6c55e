// Products of any number of rows. A thread group takes 64 or 128 rows by so many outputs that all multiprocessors have
// something to do; one thread asks for inputs and weights, a ring of stages of 64 inputs ahead, and four warps for
// every 64 rows multiply. Sums are the chain of packed.h.
#include <cuda.h>

#include <algorithm>

#include "backend/cuda/packed.h"
#include "backend/cuda/products.cuh"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kRingBytes = 200 << 10;
constexpr int kRowGroup = 16;  // tiles of rows that go through all the outputs together

template <int Groups, int Outputs>
struct Sizes {
  static constexpr int kRows = 64 * Groups;
  static constexpr int kInputBytes = kRows * 128, kWeightBytes = Outputs * 128;
  static constexpr int kStageBytes = kInputBytes + kWeightBytes;
  static constexpr int kStages = std::min(12, kRingBytes / kStageBytes);
  static constexpr int kShared = kStages * kStageBytes + 1024;
  static constexpr int kThreads = Groups * 128 + 32;
};

struct Tiles {
  int rows = 0, outputs = 0;  // how many there are
  int chunks = 0;             // of inputs
};
struct Maps {
  CUtensorMap inputs, weights[3];
};

struct Tile {
  int first_row, part, first_output;
};
template <int Groups, int Outputs, bool Gated>
__device__ Tile tile_of(const Products& work, const Tiles& tiles, int number) {
  const int before = number / (kRowGroup * tiles.outputs) * kRowGroup, in = number % (kRowGroup * tiles.outputs);
  const int together = min(kRowGroup, tiles.rows - before);
  Tile tile = {(before + in % together) * 64 * Groups, 0, in / together};
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

template <class Size, bool Gated>
__device__ void ask_weights(const Maps& maps, const Tile& tile, int chunk, const Ring<Size>& ring) {
  const uint32_t to = ring.at() + Size::kInputBytes;
  const int panel = tile.first_output / kPanel;
  if constexpr (Gated) {
    copy_box(to, maps.weights[0], 0, chunk * 4, panel, ring.full());
    copy_box(to + Size::kWeightBytes / 2, maps.weights[1], 0, chunk * 4, panel, ring.full());
  } else {
    copy_box(to, maps.weights[tile.part], 0, chunk * 4, panel, ring.full());
  }
}

// The thread that asks. Weights of the first ring full do not wait for the kernel in front.
template <int Groups, int Outputs, bool Gated>
__device__ void bring(const Products& work, const Tiles& tiles, const Maps& maps, Ring<Sizes<Groups, Outputs>> ring) {
  using Size = Sizes<Groups, Outputs>;
  const int count = tiles.rows * tiles.outputs;
  const Tile first = tile_of<Groups, Outputs, Gated>(work, tiles, static_cast<int>(blockIdx.x));
  const int early = min(Size::kStages, tiles.chunks);
  Ring<Size> start = ring;
  for (int chunk = 0; chunk < early; ++chunk, start.next()) {
    barrier_expect(start.full(), Size::kStageBytes);
    ask_weights<Size, Gated>(maps, first, chunk, start);
  }
  wait_for_previous();
  asm volatile("fence.proxy.async;" ::: "memory");
  for (int number = static_cast<int>(blockIdx.x); number < count; number += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_of<Groups, Outputs, Gated>(work, tiles, number);
    for (int chunk = 0; chunk < tiles.chunks; ++chunk, ring.next()) {
      if (number != static_cast<int>(blockIdx.x) || chunk >= early) {
        barrier_wait(ring.free(), ring.round ^ 1);
        barrier_expect(ring.full(), Size::kStageBytes);
        ask_weights<Size, Gated>(maps, tile, chunk, ring);
      }
      copy_box(ring.at(), maps.inputs, chunk * kChunkInputs, tile.first_row, ring.full());
    }
  }
}

// Two neighbouring outputs of a row: bias, and the stream if the result is added to it.
__device__ inline void put(const Products& work, const Products::Part& to, int64_t token, int output, float2 value) {
  if (to.bias != nullptr)
    value = {value.x + to.bias[output], value.y + (output + 1 < to.rows ? to.bias[output + 1] : 0)};
  float* place = to.out + token * to.out_stride + output;
  float* also = work.residual != nullptr ? work.residual + token * work.residual_stride + output : nullptr;
  if (output + 1 < to.rows && to.out_stride % 2 == 0 && (also == nullptr || work.residual_stride % 2 == 0)) {
    *reinterpret_cast<float2*>(place) = value;
    if (also == nullptr) return;
    const float2 old = *reinterpret_cast<const float2*>(also);
    *reinterpret_cast<float2*>(also) = {old.x + work.residual_scale * value.x, old.y + work.residual_scale * value.y};
    return;
  }
  place[0] = value.x;
  if (also != nullptr) also[0] = also[0] + work.residual_scale * value.x;
  if (output + 1 >= to.rows) return;
  place[1] = value.y;
  if (also != nullptr) also[1] = also[1] + work.residual_scale * value.y;
}

template <int Outputs>
__device__ void finish(const Products& work, const Tile& tile, const float (&sums)[Outputs / 2]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4, t = lane % 4;
  const Products::Part& to = work.parts[tile.part];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = tile.first_row + thread / 32 * 16 + g + 8 * i;
    if (token >= work.in.rows) continue;
#pragma unroll
    for (int j = 0; j < Outputs / 8; ++j) {
      const int output = tile.first_output + j * 8 + 2 * t;
      if (output < to.rows) put(work, to, token, output, {sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]});
    }
  }
}

// act(gate) * up: the second half of a thread's sums belongs to the first.
template <int Outputs>
__device__ void finish_gated(const Products& work, const Tile& tile, const float (&sums)[Outputs / 2]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4, t = lane % 4;
  const int rows = work.parts[0].rows;
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, rows, work.out_form};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = tile.first_row + thread / 32 * 16 + g + 8 * i;
    if (token >= work.in.rows) continue;
#pragma unroll
    for (int j = 0; j < Outputs / 16; ++j) {
      const int output = tile.first_output + j * 8 + 2 * t;
      float values[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float gate = sums[4 * j + 2 * i + k], up = sums[Outputs / 4 + 4 * j + 2 * i + k];
        if (output + k < rows) {
          if (work.parts[0].bias != nullptr) gate += work.parts[0].bias[output + k];
          if (work.parts[1].bias != nullptr) up += work.parts[1].bias[output + k];
        }
        values[k] = activated(work.activation, gate) * up;
      }
      if (output + 1 < rows) {
        write_pair(out, token, output, values[0], values[1]);
      } else if (output < rows) {
        write(out, token, output, values[0]);
      }
    }
  }
}

// What a group of four warps does with a tile: chunk after chunk, a stage given back when the next one's products have
// been started.
template <class T, class Size, int Sums>
__device__ void multiply(Ring<Size>& ring, int chunks, float (&sums)[Sums]) {
  const uint32_t mine = threadIdx.x / 128 * 8192;
  uint32_t to_free = 0;
  auto give_back = [&] {
    if (threadIdx.x % 128 == 0 && to_free != 0)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(to_free) : "memory");
  };
  for (int chunk = 0; chunk < chunks; ++chunk, ring.next()) {
    barrier_wait(ring.full(), ring.round);
    const uint64_t inputs = inputs_at(ring.at() + mine), weights = weights_at(ring.at() + Size::kInputBytes);
    products_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      multiply_add<T>(sums, inputs + static_cast<uint64_t>(k) * 2, weights + static_cast<uint64_t>(k) * 16, chunk + k);
    products_end();
    products_finished<1>();
    give_back();
    to_free = ring.free();
  }
  products_finished<0>();
  give_back();
}

template <class T, int Groups, int Outputs, bool Gated>
__global__ void __launch_bounds__(Groups * 128 + 32, 1)
    many_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Maps maps, Tiles tiles) {
  using Size = Sizes<Groups, Outputs>;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[2 * Size::kStages];
  let_next_start();
  Ring<Size> ring = {(shared_address(raw) + 1023) & ~1023u, shared_address(barriers)};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < Size::kStages; ++i) {
      barrier_begin(ring.barriers + i * 16, 1);
      barrier_begin(ring.barriers + i * 16 + 8, Groups);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= Groups * 128) {
    if (threadIdx.x == Groups * 128) bring<Groups, Outputs, Gated>(work, tiles, maps, ring);
    return;
  }
  wait_for_previous();
  for (int number = static_cast<int>(blockIdx.x); number < tiles.rows * tiles.outputs;
       number += static_cast<int>(gridDim.x)) {
    float sums[Outputs / 2];
    multiply<T, Size>(ring, tiles.chunks, sums);
    const Tile tile = tile_of<Groups, Outputs, Gated>(work, tiles, number);
    if constexpr (Gated) {
      finish_gated<Outputs>(work, tile, sums);
    } else {
      finish<Outputs>(work, tile, sums);
    }
  }
}

// ---- host side

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
Encode encoder() {
  static const Encode found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &status) !=
        cudaSuccess)
      return Encode{nullptr};
    return status == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry) : Encode{nullptr};
  }();
  return found;
}

// Rows of inputs: boxes of 64 numbers of so many rows, zeros beyond the end.
bool map_inputs(CUtensorMap& map, const View& in, int rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(in.cols), static_cast<cuuint64_t>(in.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(in.stride)};
  const cuuint32_t box[2] = {kChunkInputs, static_cast<cuuint32_t>(rows)}, steps[2] = {1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, in.data, sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
// Panels: boxes of one chunk of so many of them.
bool map_weights(CUtensorMap& map, const Products::Part& part, int chunks, int outputs) {
  const cuuint64_t sizes[3] = {256, static_cast<cuuint64_t>(chunks) * 4, static_cast<cuuint64_t>(panels_of(part.rows))};
  const cuuint64_t strides[2] = {512, static_cast<cuuint64_t>(chunks) * kChunkBytes};
  const cuuint32_t box[3] = {256, 4, static_cast<cuuint32_t>(outputs / kPanel)}, steps[3] = {1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<std::byte*>(part.weights), sizes, strides, box,
                   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int tiles_across(const Products& work, int outputs) {
  int count = 0;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) {
    const int each = work.gated ? outputs / 2 : outputs;
    count += (work.parts[i].rows + each - 1) / each;
  }
  return count;
}

template <class T, int Groups, int Outputs, bool Gated>
cudaError_t start(cudaStream_t stream, const Products& work) {
  using Size = Sizes<Groups, Outputs>;
  static const bool prepared = prepare(many_rows_kernel<T, Groups, Outputs, Gated>, Size::kShared);
  static_cast<void>(prepared);
  if (encoder() == nullptr) return cudaErrorNotSupported;
  const Tiles tiles = {.rows = (work.in.rows + Size::kRows - 1) / Size::kRows,
                       .outputs = tiles_across(work, Outputs),
                       .chunks = (work.cols + kChunkInputs - 1) / kChunkInputs};
  Maps maps;
  View in = work.in;
  in.cols = work.cols;
  bool fine = map_inputs(maps.inputs, in, Size::kRows);
  for (int i = 0; i < work.count; ++i)
    fine = fine && map_weights(maps.weights[i], work.parts[i], tiles.chunks, Gated ? Outputs / 2 : Outputs);
  if (!fine) return cudaErrorInvalidValue;
  const int grid = std::min(multiprocessors(), tiles.rows * tiles.outputs);
  launch(stream, many_rows_kernel<T, Groups, Outputs, Gated>, static_cast<unsigned>(grid), Size::kThreads,
         Size::kShared, work, maps, tiles);
  return cudaSuccess;
}

template <class T, int Groups>
cudaError_t start_with(cudaStream_t stream, const Products& work) {
  const int down = (work.in.rows + 64 * Groups - 1) / (64 * Groups), enough = multiprocessors() * 9 / 10;
  auto fills = [&](int outputs) { return down * tiles_across(work, outputs) >= enough; };
  if (work.gated) {
    if (Groups == 2 && fills(256)) return start<T, Groups, 256, true>(stream, work);
    return fills(128) ? start<T, Groups, 128, true>(stream, work) : start<T, Groups, 64, true>(stream, work);
  }
  if (Groups == 2 && fills(256)) return start<T, Groups, 256, false>(stream, work);
  if (fills(128)) return start<T, Groups, 128, false>(stream, work);
  return fills(64) ? start<T, Groups, 64, false>(stream, work) : start<T, Groups, 32, false>(stream, work);
}

}  // namespace

cudaError_t many_rows(cudaStream_t stream, const Products& work) {
  const bool few = work.in.rows <= 64;
  if (work.type == DType::f16) return few ? start_with<__half, 1>(stream, work) : start_with<__half, 2>(stream, work);
  return few ? start_with<__nv_bfloat16, 1>(stream, work) : start_with<__nv_bfloat16, 2>(stream, work);
}

}  // namespace millrace::cuda

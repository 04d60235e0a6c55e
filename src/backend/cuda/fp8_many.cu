// Products of FP8 weights with inputs that are rounded to FP8, and of INT8 with INT8, for many rows: two groups of four
// warps share what a thread of its own brings (fp8_rows.cuh).
#include "backend/cuda/fp8_rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kManyTile = 128;         // rows
constexpr int kRowTilesTogether = 16;  // go through all the outputs together
constexpr int kManyStages = 4;
constexpr int kManyStageBytes = 2 * kTileBytes + kManyTile * kFp8Block;
constexpr int kPutStride = kFp8Tile + 4;  // floats from row to row of what is about to be written
constexpr int kPutFloats = kManyTile * kPutStride;
constexpr int kManyShared = 1024 + kManyStages * (kManyStageBytes + 2 * kFactorBytes) + 2 * kPutFloats * 4;
constexpr int kManyThreads = 256 + 128;

struct ManyWay {
  const Products& work;
  const Fp8Tiles& tiles;
  int number = static_cast<int>(blockIdx.x);

  __device__ bool more() const { return number < tiles.rows * tiles.outputs; }
  __device__ void next() { number += static_cast<int>(gridDim.x); }
  template <int Outputs>
  __device__ Fp8Tile tile() const {
    const int before = number / (kRowTilesTogether * tiles.outputs) * kRowTilesTogether,
              in = number % (kRowTilesTogether * tiles.outputs), rows = min(kRowTilesTogether, tiles.rows - before);
    return place_of<Outputs>(work, in / rows, (before + in % rows) * kManyTile);
  }
};

// Where index i of a thread's sums is in that room.
__device__ inline int place_in_room(int i) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  return (i / 4 * 8 + lane % 4 * 2 + i % 2) * kPutStride + warp * 16 + lane / 4 + i % 4 / 2 * 8;
}
// Sums into shared memory, row by row, so that rows are written in one go.
__device__ inline void lay_out(float* room, const float (&total)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) room[place_in_room(i)] = total[i];
}
// A segment's sums join those of the segments before it: in the room, or, of the last one, in registers.
__device__ inline void add_segment(float* room, float (&sums)[64], bool first, bool last) {
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    float& kept = room[place_in_room(i)];
    const float all = (first ? 0.0f : kept) + sums[i];
    if (!last) kept = all;
    sums[i] = last ? all : 0.0f;
  }
}
// A group's 128 rows of 64 results, sixteen threads a row.
__device__ inline void put_laid_out(const Products& work, const Fp8Tile& tile, const float* room) {
  const Products::Part& to = work.parts[tile.part];
  const int thread = static_cast<int>(threadIdx.x) % 128, col = thread % 16 * 4,
            left = to.rows - tile.first_output - col;
  if (left <= 0) return;
  float* base = work.residual != nullptr ? work.residual : to.out;
  const int64_t stride = work.residual != nullptr ? work.residual_stride : to.out_stride;
  base += tile.first_output + col;
  const bool whole = left >= 4 && reinterpret_cast<uintptr_t>(base) % 16 == 0 && stride % 4 == 0;
#pragma unroll 1
  for (int first = thread / 16; first < kManyTile; first += 64) {
    float4 old[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int row = tile.first_row + first + 8 * j;
      if (work.residual != nullptr && row < work.coded.rows) old[j] = read_four(base + row * stride, whole ? 4 : left);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int row = tile.first_row + first + 8 * j;
      if (row >= work.coded.rows) continue;
      float4 four = *reinterpret_cast<const float4*>(room + (first + 8 * j) * kPutStride + col);
      if (work.residual != nullptr)
        four = {old[j].x + work.residual_scale * four.x, old[j].y + work.residual_scale * four.y,
                old[j].z + work.residual_scale * four.z, old[j].w + work.residual_scale * four.w};
      float* place = base + row * stride;
      if (whole) {
        *reinterpret_cast<float4*>(place) = four;
      } else {
        place[0] = four.x;
        if (left > 1) place[1] = four.y;
        if (left > 2) place[2] = four.z;
        if (left > 3) place[3] = four.w;
      }
    }
  }
}
// Both groups: 128 rows of 64 gated results, eight of them a thread at a time.
__device__ inline void put_gated_laid_out(const Products& work, const Fp8Tile& tile, const float* gates,
                                          const float* ups) {
  const int col = static_cast<int>(threadIdx.x) % 8 * 8, output = tile.first_output + col, outputs = work.parts[0].rows;
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.coded.rows, outputs, work.out_form};
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x) / 8; at < kManyTile; at += 32) {
    const int row = tile.first_row + at;
    if (row >= work.coded.rows) break;
    float values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i] = activated(work.activation, gates[at * kPutStride + col + i]) * ups[at * kPutStride + col + i];
    char* place = static_cast<char*>(out.data) + row * out.stride + output * 2;
    if (out.form == Form::bf16 && output + 8 <= outputs && reinterpret_cast<uintptr_t>(place) % 16 == 0) {
      *reinterpret_cast<uint4*>(place) = {
          two<__nv_bfloat16>(values[0], values[1]), two<__nv_bfloat16>(values[2], values[3]),
          two<__nv_bfloat16>(values[4], values[5]), two<__nv_bfloat16>(values[6], values[7])};
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (output + i < outputs) write(out, row, output + i, values[i]);
    }
  }
}

// Each group of four warps has 64 outputs, or one side of a gate; a thread of a third one asks for inputs and weights,
// those of the next tile too.
template <class Sum, bool Gated, bool Cut>
__global__ void __launch_bounds__(kManyThreads, 1)
    fp8_many_kernel(const __grid_constant__ Products work, const __grid_constant__ Fp8Maps maps, Fp8Tiles tiles) {
  constexpr int kOutputs = Gated ? kFp8Tile : 2 * kFp8Tile;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[2 * kManyStages];
  char* base = raw + (((shared_address(raw) + 1023) & ~1023u) - shared_address(raw));
  const float* factors = reinterpret_cast<const float*>(base + kManyStages * kManyStageBytes);
  float* rooms = reinterpret_cast<float*>(base + kManyStages * (kManyStageBytes + 2 * kFactorBytes));
  const uint32_t ring_at = shared_address(base), full = shared_address(barriers), free = full + 8 * kManyStages;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kManyStages; ++i) barrier_begin(full + 8 * i, 1), barrier_begin(free + 8 * i, 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ManyWay way = {work, tiles};
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % 128 != 0) return;
    Fp8Tile tile = way.tile<kOutputs>();
    bool last = false;
    uint32_t bytes = 0;
    auto look = [&] {
      last = tile.first_row == (tiles.rows - 1) * kManyTile;
      bytes = static_cast<uint32_t>(2 * (kTileBytes + kFactorBytes) +
                                    (last ? tiles.last_rows : tiles.box_rows) * kFp8Block);
    };
    auto ask_weights = [&](int block, uint32_t stage) {
      const uint32_t to = ring_at + stage * kManyStageBytes, barrier = full + 8 * stage;
      barrier_expect(barrier, bytes);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int part = Gated ? side : tile.part, output = tile.first_output + (Gated ? 0 : side * kFp8Tile);
        copy_box(to + static_cast<uint32_t>(side * kTileBytes), maps.weights[part], block * kFp8Block, output, barrier);
        copy_bytes(shared_address(factors) + (stage * 2 + static_cast<uint32_t>(side)) * kFactorBytes,
                   factors_at(work, part, output, tiles.blocks, block), kFactorBytes, barrier, read_once());
      }
    };
    auto ask_inputs = [&](int block, uint32_t stage) {
      copy_box(ring_at + stage * kManyStageBytes + 2 * kTileBytes, last ? maps.last_inputs : maps.inputs,
               block * kFp8Block, tile.first_row, full + 8 * stage);
    };
    look();
    const int early = min(kManyStages, tiles.blocks);
    for (int i = 0; i < early; ++i) ask_weights(i, static_cast<uint32_t>(i));
    wait_for_previous();
    asm volatile("fence.proxy.async;" ::: "memory");
    for (int i = 0; i < early; ++i) ask_inputs(i, static_cast<uint32_t>(i));
    int block = early;
    uint32_t asked = static_cast<uint32_t>(early);
    for (;;) {
      for (; block < tiles.blocks; ++block, ++asked) {
        const uint32_t stage = asked % kManyStages;
        if (asked >= kManyStages) barrier_wait(free + 8 * stage, (asked / kManyStages - 1) & 1);
        ask_weights(block, stage);
        ask_inputs(block, stage);
      }
      way.next();
      if (!way.more()) return;
      tile = way.tile<kOutputs>();
      look();
      block = 0;
    }
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  wait_for_previous();
  float* room = rooms + group * kPutFloats;
  uint32_t seen = 0;
  auto multiply_next = [&](uint32_t number, Sum(&sums)[64]) {
    const uint32_t stage = number % kManyStages, at = ring_at + stage * kManyStageBytes;
    barrier_wait(full + 8 * stage, number / kManyStages & 1);
    products_begin();
    multiply_block(at + static_cast<uint32_t>(group * kTileBytes), at + 2 * kTileBytes, sums);
    products_end();
  };
  for (; way.more(); way.next()) {
    float total[64] = {};  // of the segment that is under way
    // Adds a block's sums, which are there, and gives its stage back. Sums of segments meet in the room that results go
    // through.
    auto take = [&](uint32_t number, int block, const Sum(&sums)[64]) {
      const uint32_t stage = number % kManyStages;
      add_block(factors + (stage * 2 + static_cast<uint32_t>(group)) * kFp8Tile, sums, total);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(free + 8 * stage);
      if constexpr (Cut) {
        if ((block + 1) % tiles.segment != 0 && block + 1 != tiles.blocks) return;
        if (block + 1 == tiles.segment) group_sync(Gated ? 1 : 1 + group, Gated ? 256 : 128);  // it has been read
        add_segment(room, total, block < tiles.segment, block + 1 == tiles.blocks);
      }
    };
    // One block is multiplied while the sums of the one before are added.
    Sum even[64], odd[64];
    multiply_next(seen, even);
    int i = 0;
#pragma unroll 1
    for (; i + 2 < tiles.blocks; i += 2) {
      multiply_next(seen + 1, odd);
      products_finished<1>();
      take(seen, i, even);
      multiply_next(seen + 2, even);
      products_finished<1>();
      take(seen + 1, i + 1, odd);
      seen += 2;
    }
    if (i + 1 < tiles.blocks) {
      multiply_next(seen + 1, odd);
      products_finished<1>();
      take(seen, i, even);
      products_finished<0>();
      take(seen + 1, i + 1, odd);
      seen += 2;
    } else {
      products_finished<0>();
      take(seen, i, even);
      ++seen;
    }
    Fp8Tile tile = way.tile<kOutputs>();
    if constexpr (!Gated) {
      tile.first_output += group * kFp8Tile;
      scale_sums(work, tile.part, tile.first_row, tile.first_output, total);
      group_sync(1 + group, 128);  // the last tile's results have been read
      lay_out(room, total);
      group_sync(1 + group, 128);
      put_laid_out(work, tile, room);
    } else {
      scale_sums(work, group, tile.first_row, tile.first_output, total);
      group_sync(1, 256);
      lay_out(room, total);
      group_sync(1, 256);
      put_gated_laid_out(work, tile, rooms, rooms + kPutFloats);
    }
  }
}

template <class Sum, bool Gated, bool Cut>
cudaError_t start_many(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(fp8_many_kernel<Sum, Gated, Cut>, kManyShared);
  static_cast<void>(prepared);
  Fp8Maps maps;
  Fp8Tiles tiles;
  if (!map_all(work, kManyTile, Gated ? kFp8Tile : 2 * kFp8Tile, maps, tiles)) return cudaErrorInvalidValue;
  const int64_t all = int64_t{tiles.outputs} * tiles.rows;
  const Launch how(stream, count(std::min<int64_t>(all, multiprocessors())), kManyThreads, kManyShared, 1,
                   kernels_wait());
  return cudaLaunchKernelEx(&how.config, fp8_many_kernel<Sum, Gated, Cut>, work, maps, tiles);
}

template <class Sum>
bool start(cudaStream_t stream, const Products& work, cudaError_t& how) {
  int64_t outputs = 0;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) outputs += work.parts[i].rows;
  const int64_t down = (work.coded.rows + kManyTile - 1) / kManyTile;
  if (outputs / (work.gated ? kFp8Tile : 2 * kFp8Tile) * down < multiprocessors()) return false;
  if (work.gated)
    how = work.segments > 1 ? start_many<Sum, true, true>(stream, work) : start_many<Sum, true, false>(stream, work);
  else
    how = work.segments > 1 ? start_many<Sum, false, true>(stream, work) : start_many<Sum, false, false>(stream, work);
  return true;
}

}  // namespace

bool fp8_many(cudaStream_t stream, const Products& work, cudaError_t& how) { return start<float>(stream, work, how); }
bool int8_many(cudaStream_t stream, const Products& work, cudaError_t& how) { return start<int>(stream, work, how); }

cudaError_t load_fp8_many() { return load_kernels(); }

}  // namespace millrace::cuda

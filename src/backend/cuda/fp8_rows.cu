// Products of FP8 weights with inputs that are rounded to FP8, and of INT8 with INT8 (packed.h says what they mean).
// Outputs are the rows of the matrix instruction and inputs its columns, so that one instruction serves a single row
// and long prompts alike: wgmma, whose bits no other instruction need repeat (sums of whole numbers are exact in any).
// For few rows, four warps have a segment of the inputs each and bring their own weights; for many, two groups of four
// warps share what a thread of its own brings.
#include <algorithm>

#include "backend/cuda/packed.h"
#include "backend/cuda/products.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace millrace::cuda {
namespace {

// ---- the instruction

// clang-format off
#define MILLRACE_NAMES_OF_4 "%0,%1,%2,%3"
#define MILLRACE_NAMES_OF_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define MILLRACE_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MILLRACE_WHOLE_SUMS_4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define MILLRACE_WHOLE_SUMS_8(i) MILLRACE_WHOLE_SUMS_4(i), MILLRACE_WHOLE_SUMS_4(i + 4)
#define MILLRACE_WHOLE_SUMS_16(i) MILLRACE_WHOLE_SUMS_8(i), MILLRACE_WHOLE_SUMS_8(i + 8)
#define MILLRACE_WHOLE_SUMS_32(i) MILLRACE_WHOLE_SUMS_16(i), MILLRACE_WHOLE_SUMS_16(i + 16)
#define MILLRACE_WHOLE_SUMS_64(i) MILLRACE_WHOLE_SUMS_32(i), MILLRACE_WHOLE_SUMS_32(i + 32)
// sums (64 outputs x ROWS), if they are kept, + weights (64 x 32) * inputs (32 x ROWS)
#define MILLRACE_INT8_PRODUCT(ROWS, S, FIRST, SECOND, KEEP)                                                    \
  __device__ inline void multiply_add_codes(int (&d)[S], uint64_t weights, uint64_t inputs, int keep) {        \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #ROWS "k32.s32.s8.s8 {"                                   \
                 MILLRACE_NAMES_OF_##S "}, " FIRST ", " SECOND ", keep;\n}"                                    \
                 : MILLRACE_WHOLE_SUMS_##S(0)                                                                  \
                 : "l"(weights), "l"(inputs), "r"(keep));                                                      \
  }
#define MILLRACE_FP8_PRODUCT(ROWS, S, FIRST, SECOND, KEEP)                                                     \
  __device__ inline void multiply_add_codes(float (&d)[S], uint64_t weights, uint64_t inputs, int keep) {        \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #ROWS "k32.f32.e4m3.e4m3 {"                                \
                 MILLRACE_NAMES_OF_##S "}, " FIRST ", " SECOND ", keep, 1, 1;\n}"                               \
                 : MILLRACE_SUMS_##S(0)                                                                        \
                 : "l"(weights), "l"(inputs), "r"(keep));                                                      \
  }
MILLRACE_FP8_PRODUCT(8, 4, "%4", "%5", "%6")
MILLRACE_INT8_PRODUCT(8, 4, "%4", "%5", "%6")
MILLRACE_FP8_PRODUCT(16, 8, "%8", "%9", "%10")
MILLRACE_INT8_PRODUCT(16, 8, "%8", "%9", "%10")
MILLRACE_FP8_PRODUCT(32, 16, "%16", "%17", "%18")
MILLRACE_INT8_PRODUCT(32, 16, "%16", "%17", "%18")
MILLRACE_FP8_PRODUCT(64, 32, "%32", "%33", "%34")
MILLRACE_INT8_PRODUCT(64, 32, "%32", "%33", "%34")
MILLRACE_FP8_PRODUCT(128, 64, "%64", "%65", "%66")
MILLRACE_INT8_PRODUCT(128, 64, "%64", "%65", "%66")
// clang-format on

// A block of 128 inputs, from zero. Sum: float for FP8, int for INT8.
template <class Sum, int Sums>
__device__ void multiply_block(uint32_t weights, uint32_t inputs, Sum (&sums)[Sums]) {
  const uint64_t a = inputs_at(weights), b = inputs_at(inputs);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    multiply_add_codes(sums, a + static_cast<uint64_t>(2 * k), b + static_cast<uint64_t>(2 * k), k);
}

// sums are of outputs g and g + 8 of a warp's sixteen.
template <class Sum, int Sums>
__device__ void add_block(const float* factors, const Sum (&sums)[Sums], float (&total)[Sums]) {
  const int output = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const float low = factors[output], high = factors[output + 8];
#pragma unroll
  for (int i = 0; i < Sums; ++i) total[i] = __fmaf_rn(static_cast<float>(sums[i]), i % 4 < 2 ? low : high, total[i]);
}

// ---- what both kernels share

constexpr int kFactorBytes = kFp8Tile * 4;  // of a block
constexpr int kTileBytes = kFp8Tile * kFp8Block;

struct Fp8Maps {
  CUtensorMap inputs, last_inputs, weights[3];
};
struct Fp8Tiles {
  int rows = 0, outputs = 0;        // tiles there are
  int blocks = 0, segment = 0;      // of inputs, and of a segment of them
  int box_rows = 0, last_rows = 0;  // of inputs, in a tile and in the last one
};
struct Fp8Tile {
  int first_row, part, first_output;
};

__device__ inline const float* factors_at(const Products& work, int part, int first_output, int blocks, int block) {
  const Products::Product& from = work.parts[part];
  const auto* all = reinterpret_cast<const float*>(from.weights + fp8_rows_of(from.rows) * work.cols);
  return all + (int64_t{first_output / kFp8Tile} * blocks + block) * kFp8Tile;
}

template <int Outputs>
__device__ Fp8Tile place_of(const Products& work, int number, int first_row) {
  Fp8Tile tile = {first_row, 0, number};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int count = (work.parts[i].rows + Outputs - 1) / Outputs;
    if (!work.gated && tile.part == i && i + 1 < work.count && tile.first_output >= count)
      tile.first_output -= count, tile.part = i + 1;
  }
  tile.first_output *= Outputs;
  return tile;
}

__device__ inline float row_factor(const Products& work, int row) {
  return *reinterpret_cast<const float*>(work.coded.data + row * work.coded.stride + work.cols);
}

// A thread's sums become results: times their rows' factors, and with what is added to outputs.
template <int Sums>
__device__ void scale_sums(const Products& work, int part, int first_row, int first_output, float (&total)[Sums]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  float factors[Sums / 2];
#pragma unroll
  for (int i = 0; i < Sums / 2; ++i) {
    const int row = first_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
    factors[i] = row < work.coded.rows ? row_factor(work, row) : 0.0f;
  }
  const Products::Product& to = work.parts[part];
  float bias[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = first_output + warp * 16 + lane / 4 + i * 8;
    if (to.bias != nullptr && output < to.rows) bias[i] = to.bias[output];
  }
#pragma unroll
  for (int i = 0; i < Sums; ++i) {
    total[i] *= factors[i / 4 * 2 + i % 2];
    if (to.bias != nullptr) total[i] += bias[i % 4 / 2];
  }
}

// body(row, output, index of the sum) for every result of a thread that exists.
template <int Sums, class F>
__device__ void each_result(const Products& work, const Fp8Tile& tile, F&& body) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int first = tile.first_output + warp * 16 + lane / 4, outputs = work.parts[tile.part].rows;
#pragma unroll
  for (int i = 0; i < Sums; ++i) {
    const int row = tile.first_row + i / 4 * 8 + lane % 4 * 2 + i % 2, output = first + i % 4 / 2 * 8;
    if (row < work.coded.rows && output < outputs) body(row, output, i);
  }
}
template <int Sums>
__device__ void put(const Products& work, const Fp8Tile& tile, float (&total)[Sums]) {
  const Products::Product& to = work.parts[tile.part];
  if (work.residual != nullptr) {  // all reads before the first write
    float old[Sums];
    each_result<Sums>(work, tile,
                      [&](int row, int output, int i) { old[i] = work.residual[row * work.residual_stride + output]; });
    each_result<Sums>(work, tile, [&](int row, int output, int i) {
      work.residual[row * work.residual_stride + output] = old[i] + work.residual_scale * total[i];
    });
    return;
  }
  each_result<Sums>(work, tile, [&](int row, int output, int i) { to.out[row * to.out_stride + output] = total[i]; });
}
__device__ inline void put_gated(const Products& work, int row, int output, float gate, float up) {
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.coded.rows, work.parts[0].rows,
                    work.out_form};
  write(out, row, output, activated(work.activation, gate) * up);
}

// ---- few rows

template <int Rows, int Sides, int Segments>
struct Few {
  static constexpr int kStageBytes = Sides * kTileBytes + Rows * kFp8Block;
  static constexpr int kStages = std::clamp(196608 / Segments / kStageBytes, 2, Segments == 1 ? 6 : 8);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kFactors = kStages * Sides * kFactorBytes;
  static constexpr int kShared = 1024 + Segments * (kRingBytes + kFactors);
  static_assert(kShared <= 227 << 10);
  static_assert(Sides * Rows / 2 * 128 * 4 <= kRingBytes);  // sums of a segment
};

template <class Sum, int Rows, int Sides, int Segments>
__global__ void __launch_bounds__(Segments * 128)
    fp8_few_kernel(const __grid_constant__ Products work, const __grid_constant__ Fp8Maps maps, Fp8Tiles tiles) {
  using Size = Few<Rows, Sides, Segments>;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[Segments][Size::kStages];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  char* base = raw + (((shared_address(raw) + 1023) & ~1023u) - shared_address(raw));
  char* ring = base + group * Size::kRingBytes;
  const float* factors = reinterpret_cast<const float*>(base + Segments * Size::kRingBytes + group * Size::kFactors);
  const uint32_t ring_at = shared_address(ring), factors_from = shared_address(factors);
  const uint32_t full = shared_address(barriers[group]);
  if (thread == 0) {
    for (uint32_t i = 0; i < Size::kStages; ++i) barrier_begin(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const Fp8Tile tile = place_of<kFp8Tile>(work, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y) * Rows);
  const bool last = static_cast<int>(blockIdx.y) + 1 == tiles.rows;
  const int first = group * tiles.segment, blocks = min(tiles.segment, tiles.blocks - first);
  const uint32_t bytes = static_cast<uint32_t>(Sides * (kTileBytes + kFactorBytes) +
                                               (last ? tiles.last_rows : tiles.box_rows) * kFp8Block);
  auto ask_weights = [&](int i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    const uint32_t to = ring_at + stage * Size::kStageBytes, barrier = full + 8 * stage;
    barrier_expect(barrier, bytes);
#pragma unroll
    for (int side = 0; side < Sides; ++side) {
      const int part = Sides == 2 ? side : tile.part;
      copy_box(to + static_cast<uint32_t>(side * kTileBytes), maps.weights[part], (first + i) * kFp8Block,
               tile.first_output, barrier);
      copy_bytes(factors_from + (stage * Sides + static_cast<uint32_t>(side)) * kFactorBytes,
                 factors_at(work, part, tile.first_output, tiles.blocks, first + i), kFactorBytes, barrier,
                 read_once());
    }
  };
  auto ask_inputs = [&](int i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    copy_box(ring_at + stage * Size::kStageBytes + Sides * kTileBytes, last ? maps.last_inputs : maps.inputs,
             (first + i) * kFp8Block, tile.first_row, full + 8 * stage);
  };
  const int early = min(Size::kStages, blocks);
  if (thread == 0) {
    for (int i = 0; i < early; ++i) ask_weights(i);
  }
  wait_for_previous();
  if (thread == 0) {
    asm volatile("fence.proxy.async;" ::: "memory");
    for (int i = 0; i < early; ++i) ask_inputs(i);
  }
  float total[Sides][Rows / 2] = {};
#pragma unroll 1
  for (int i = 0; i < blocks; ++i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    const uint32_t at = ring_at + stage * Size::kStageBytes;
    barrier_wait(full + 8 * stage, static_cast<uint32_t>(i / Size::kStages) & 1);
    Sum sums[Sides][Rows / 2];  // the first product of a block writes them
    products_begin();
#pragma unroll
    for (int side = 0; side < Sides; ++side)
      multiply_block(at + static_cast<uint32_t>(side * kTileBytes), at + Sides * kTileBytes, sums[side]);
    products_end();
    products_finished<0>();
#pragma unroll
    for (int side = 0; side < Sides; ++side)
      add_block(factors + (stage * Sides + static_cast<uint32_t>(side)) * kFp8Tile, sums[side], total[side]);
    group_sync(1 + group, 128);
    if (thread == 0 && i + Size::kStages < blocks) {
      ask_weights(i + Size::kStages);
      ask_inputs(i + Size::kStages);
    }
  }
  if constexpr (Segments > 1) {  // the first group adds them in order
    float* room = reinterpret_cast<float*>(ring);
    if (group > 0) {
#pragma unroll
      for (int i = 0; i < Sides * Rows / 2; ++i) room[i * 128 + thread] = total[i / (Rows / 2)][i % (Rows / 2)];
    }
    __syncthreads();
    if (group > 0) return;
#pragma unroll
    for (int i = 0; i < Sides * Rows / 2; ++i) {
      float sum = 0.0f + total[i / (Rows / 2)][i % (Rows / 2)];
#pragma unroll
      for (int other = 1; other < Segments; ++other) sum += room[other * Size::kRingBytes / 4 + i * 128 + thread];
      total[i / (Rows / 2)][i % (Rows / 2)] = sum;
    }
  }
  scale_sums(work, Sides == 2 ? 0 : tile.part, tile.first_row, tile.first_output, total[0]);
  if constexpr (Sides == 1) {
    put(work, tile, total[0]);
  } else {
    scale_sums(work, 1, tile.first_row, tile.first_output, total[1]);
    each_result<Rows / 2>(work, tile,
                          [&](int row, int output, int i) { put_gated(work, row, output, total[0][i], total[1][i]); });
  }
}

// ---- many rows

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

// Sums into shared memory, row by row, so that rows are written in one go.
__device__ inline void lay_out(float* room, const float (&total)[64]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
#pragma unroll
  for (int i = 0; i < 64; ++i)
    room[(i / 4 * 8 + lane % 4 * 2 + i % 2) * kPutStride + warp * 16 + lane / 4 + i % 4 / 2 * 8] = total[i];
}
// A group's 128 rows of 64 results, sixteen threads a row.
__device__ inline void put_laid_out(const Products& work, const Fp8Tile& tile, const float* room) {
  const Products::Product& to = work.parts[tile.part];
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
  for (; way.more(); way.next()) {
    float total[64] = {}, segment[Cut ? 64 : 1] = {};
#pragma unroll 1
    for (int i = 0; i < tiles.blocks; ++i, ++seen) {
      const uint32_t stage = seen % kManyStages, at = ring_at + stage * kManyStageBytes;
      barrier_wait(full + 8 * stage, seen / kManyStages & 1);
      Sum sums[64];
      products_begin();
      multiply_block(at + static_cast<uint32_t>(group * kTileBytes), at + 2 * kTileBytes, sums);
      products_end();
      products_finished<0>();
      const float* own = factors + (stage * 2 + static_cast<uint32_t>(group)) * kFp8Tile;
      if constexpr (Cut) {
        add_block(own, sums, segment);
      } else {
        add_block(own, sums, total);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(free + 8 * stage);
      if constexpr (Cut) {
        if ((i + 1) % tiles.segment == 0 || i + 1 == tiles.blocks) {
#pragma unroll
          for (int j = 0; j < 64; ++j) total[j] += segment[j], segment[j] = 0;
        }
      }
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

// ---- host side

bool map_codes(CUtensorMap& map, const void* data, int64_t cols, int64_t rows, int64_t stride, int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[2] = {kFp8Block, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Tiles of so many rows by so many outputs. False: they cannot be described.
bool map_all(const Products& work, int tile_rows, int tile_outputs, Fp8Maps& maps, Fp8Tiles& tiles) {
  if (encoder() == nullptr) return false;
  const CodedRows& in = work.coded;
  tiles.rows = (in.rows + tile_rows - 1) / tile_rows;
  tiles.blocks = work.cols / kFp8Block;
  tiles.segment = fp8_segment_blocks(work.cols, work.segments);
  const int left = in.rows - (tiles.rows - 1) * tile_rows;
  tiles.box_rows = tiles.rows > 1 ? tile_rows : left;
  tiles.last_rows = left;
  bool fine = map_codes(maps.inputs, in.data, in.cols, in.rows, in.stride, tiles.box_rows) &&
              map_codes(maps.last_inputs, in.data, in.cols, in.rows, in.stride, left);
  for (int i = 0; i < work.count; ++i) {
    const Products::Product& part = work.parts[i];
    if (!work.gated || i == 0) tiles.outputs += (part.rows + tile_outputs - 1) / tile_outputs;
    fine = fine && map_codes(maps.weights[i], part.weights, work.cols, fp8_rows_of(part.rows), work.cols, kFp8Tile);
  }
  return fine;
}

template <class Sum, int Rows, int Sides, int Segments>
cudaError_t start_few(cudaStream_t stream, const Products& work) {
  using Size = Few<Rows, Sides, Segments>;
  static const bool prepared = prepare(fp8_few_kernel<Sum, Rows, Sides, Segments>, Size::kShared);
  static_cast<void>(prepared);
  Fp8Maps maps;
  Fp8Tiles tiles;
  if (!map_all(work, Rows, kFp8Tile, maps, tiles)) return cudaErrorInvalidValue;
  const Launch how(stream, dim3(count(tiles.outputs), count(tiles.rows)), Segments * 128, Size::kShared, 1,
                   kernels_wait());
  return cudaLaunchKernelEx(&how.config, fp8_few_kernel<Sum, Rows, Sides, Segments>, work, maps, tiles);
}
template <class Sum, int Rows>
cudaError_t start_few(cudaStream_t stream, const Products& work) {
  switch (work.segments) {
    case 1:
      return work.gated ? start_few<Sum, Rows, 2, 1>(stream, work) : start_few<Sum, Rows, 1, 1>(stream, work);
    case 2:
      return work.gated ? start_few<Sum, Rows, 2, 2>(stream, work) : start_few<Sum, Rows, 1, 2>(stream, work);
    default:
      return work.gated ? start_few<Sum, Rows, 2, 4>(stream, work) : start_few<Sum, Rows, 1, 4>(stream, work);
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
cudaError_t start(cudaStream_t stream, const Products& work) {
  const int rows = work.coded.rows;
  if (rows <= 8) return start_few<Sum, 8>(stream, work);
  if (rows <= 16) return start_few<Sum, 16>(stream, work);
  if (rows <= 32) return start_few<Sum, 32>(stream, work);
  int64_t outputs = 0;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) outputs += work.parts[i].rows;
  const int64_t tiles = outputs / (work.gated ? kFp8Tile : 2 * kFp8Tile) * ((rows + kManyTile - 1) / kManyTile);
  if (rows <= 64 || tiles < multiprocessors()) return start_few<Sum, 64>(stream, work);
  if (work.gated)
    return work.segments > 1 ? start_many<Sum, true, true>(stream, work) : start_many<Sum, true, false>(stream, work);
  return work.segments > 1 ? start_many<Sum, false, true>(stream, work) : start_many<Sum, false, false>(stream, work);
}

}  // namespace

cudaError_t fp8_rows(cudaStream_t stream, const Products& work) { return start<float>(stream, work); }
cudaError_t int8_rows(cudaStream_t stream, const Products& work) { return start<int>(stream, work); }

cudaError_t load_fp8_rows() { return load_kernels(); }

}  // namespace millrace::cuda

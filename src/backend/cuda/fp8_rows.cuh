// What products of FP8 weights with inputs that are rounded to FP8, and of INT8 with INT8 (packed.h says what they
// mean), share for few rows (fp8_rows.cu) and many (fp8_many.cu). Outputs are the rows of the matrix instruction and
// inputs its columns, so that one instruction serves a single row and long prompts alike: wgmma, whose bits no other
// instruction need repeat (sums of whole numbers are exact in any). Device code and the host's side of it.
#pragma once

#include <algorithm>

#include "backend/cuda/packed.h"
#include "backend/cuda/products.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace millrace::cuda {

// Many rows; false: so few tiles that it would not pay.
bool fp8_many(cudaStream_t stream, const Products& work, cudaError_t& how);
bool int8_many(cudaStream_t stream, const Products& work, cudaError_t& how);

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
  const Products::Part& from = work.parts[part];
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
  const Products::Part& to = work.parts[part];
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
  const Products::Part& to = work.parts[tile.part];
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

// ---- host side

[[maybe_unused]] bool map_codes(CUtensorMap& map, const void* data, int64_t cols, int64_t rows, int64_t stride,
                                int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[2] = {kFp8Block, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void*>(data), sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Tiles of so many rows by so many outputs. False: they cannot be described.
[[maybe_unused]] bool map_all(const Products& work, int tile_rows, int tile_outputs, Fp8Maps& maps, Fp8Tiles& tiles) {
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
    const Products::Part& part = work.parts[i];
    if (!work.gated || i == 0) tiles.outputs += (part.rows + tile_outputs - 1) / tile_outputs;
    fine = fine && map_codes(maps.weights[i], part.weights, work.cols, fp8_rows_of(part.rows), work.cols, kFp8Tile);
  }
  return fine;
}

}  // namespace

}  // namespace millrace::cuda

// Products of INT8 weights with inputs rounded to INT8 (packed.h), without Hopper's instructions: a warp has sixteen
// outputs (of gated products both sides) and some tiles of eight rows, or one segment of their inputs, and reads both
// straight into its registers. Sums of whole numbers are exact, so a lane may take its inputs in any order: sixteen
// bytes at a time.
#include <algorithm>

#include "backend/cuda/packed.h"
#include "backend/cuda/portable/portable.h"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda::portable {
namespace {

constexpr int kWarps = 4;
constexpr int kOutputs = 16;  // of a warp

struct Blocks {
  int all = 0, segment = 0;  // of 128 inputs
};

// sums (16 outputs x 8 rows) += weights (16 x 32) * inputs (32 x 8)
__device__ inline void multiply_add(int (&sums)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Which outputs a warp has: those of all parts follow one another, or both sides of a gate go together.
struct Place {
  int part = 0, first_output = 0;
  bool real = false;

  __device__ Place(const Products& work, int unit) {
    for (; part < (work.gated ? 1 : work.count); ++part) {
      const int units = (work.parts[part].rows + kOutputs - 1) / kOutputs;
      real = unit < units;
      if (real) break;
      unit -= units;
    }
    first_output = unit * kOutputs;
  }
};

// The rows of a panel's lane: outputs g and g + 8, and what they are multiplied with. Rows beyond the last are there:
// layouts have whole tiles.
struct Side {
  const uint4 *low, *high;
  const float* factors;  // of output g in the first block

  __device__ Side(const Products& work, int part, int first_output, int blocks) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t output = first_output + lane / 4, tiles = fp8_rows_of(work.parts[part].rows);
    const std::byte* weights = work.parts[part].weights;
    low = reinterpret_cast<const uint4*>(weights + output * work.cols) + lane % 4;
    high = reinterpret_cast<const uint4*>(weights + (output + 8) * work.cols) + lane % 4;
    factors = reinterpret_cast<const float*>(weights + tiles * work.cols) + output / kFp8Tile * blocks * kFp8Tile +
              output % kFp8Tile;
  }
};

__device__ inline uint32_t word(const uint4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// Which rows and blocks of inputs a warp goes through.
struct Way {
  int first_row, first_block, last_block;
};

// total += the chain over the warp's blocks of inputs.
template <int Tiles, int Sides>
__device__ void add_blocks(const Products& work, const Place& place, const Way& way, int blocks,
                           float (&total)[Sides][Tiles][4]) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  const Side sides[2] = {Side(work, place.part, place.first_output, blocks),
                         Side(work, Sides == 2 ? 1 : place.part, place.first_output, blocks)};
  const uint4* inputs[Tiles];
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
    const int row = min(way.first_row + i * 8 + g, work.coded.rows - 1);
    inputs[i] = reinterpret_cast<const uint4*>(work.coded.data + row * work.coded.stride) + t;
  }
  for (int block = way.first_block; block < way.last_block; ++block) {
    int sums[Sides][Tiles][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = block * 8 + half * 4;  // sixteens of bytes; four lanes have four of them
      uint4 low[Sides], high[Sides];
#pragma unroll
      for (int side = 0; side < Sides; ++side) low[side] = sides[side].low[at], high[side] = sides[side].high[at];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const uint4 four = inputs[i][at];
#pragma unroll
        for (int side = 0; side < Sides; ++side) {
#pragma unroll
          for (int k = 0; k < 2; ++k)
            multiply_add(sums[side][i], word(low[side], 2 * k), word(high[side], 2 * k), word(low[side], 2 * k + 1),
                         word(high[side], 2 * k + 1), word(four, 2 * k), word(four, 2 * k + 1));
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Sides * Tiles * 4; ++i) {
      const int side = i / (Tiles * 4), tile = i / 4 % Tiles, j = i % 4;
      const float factor = sides[side].factors[block * kFp8Tile + j / 2 * 8];
      total[side][tile][j] = __fmaf_rn(static_cast<float>(sums[side][tile][j]), factor, total[side][tile][j]);
    }
  }
}

// A result: `one` is its sum, or that of a gate, whose other side's is `other`.
template <bool Gated>
__device__ void put(const Products& work, int part, int row, int output, float one, float other) {
  const float factor = *reinterpret_cast<const float*>(work.coded.data + row * work.coded.stride + work.cols);
  auto scaled = [&](int of, float sum) {
    const float* bias = work.parts[of].bias;
    sum *= factor;
    return bias != nullptr ? sum + bias[output] : sum;
  };
  const Products::Product& to = work.parts[part];
  one = scaled(part, one);
  if constexpr (Gated) {
    const View out = {to.out, to.out_stride * 4, work.coded.rows, to.rows, work.out_form};
    write(out, row, output, activated(work.activation, one) * scaled(1, other));
  } else if (work.residual != nullptr) {
    float& sum = work.residual[row * work.residual_stride + output];
    sum = sum + work.residual_scale * one;
  } else {
    to.out[row * to.out_stride + output] = one;
  }
}

template <int Tiles, bool Gated>
__global__ void __launch_bounds__(kWarps * 32) int8_kernel(const __grid_constant__ Products work, Blocks blocks) {
  constexpr int kSides = Gated ? 2 : 1;
  __shared__ float room[kWarps][kSides * Tiles * 4][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int segment = warp % work.segments, first_row = static_cast<int>(blockIdx.y) * Tiles * 8;
  const Place place(work, (static_cast<int>(blockIdx.x) * kWarps + warp) / work.segments);
  wait_for_previous();
  float total[kSides][Tiles][4] = {};
  if (place.real)
    add_blocks(work, place, {first_row, segment * blocks.segment, min((segment + 1) * blocks.segment, blocks.all)},
               blocks.all, total);
  if (work.segments > 1) {  // the first warp of a unit adds them in order
#pragma unroll
    for (int i = 0; i < kSides * Tiles * 4; ++i) room[warp][i][lane] = total[i / (Tiles * 4)][i / 4 % Tiles][i % 4];
    __syncthreads();
    if (segment > 0) return;
#pragma unroll
    for (int i = 0; i < kSides * Tiles * 4; ++i) {
      float sum = 0.0f + room[warp][i][lane];
      for (int other = 1; other < work.segments; ++other) sum += room[warp + other][i][lane];
      total[i / (Tiles * 4)][i / 4 % Tiles][i % 4] = sum;
    }
  }
  if (!place.real) return;
#pragma unroll
  for (int i = 0; i < Tiles * 4; ++i) {
    const int row = first_row + i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int output = place.first_output + lane / 4 + i % 4 / 2 * 8;
    if (row < work.coded.rows && output < work.parts[place.part].rows)
      put<Gated>(work, place.part, row, output, total[0][i / 4][i % 4], total[kSides - 1][i / 4][i % 4]);
  }
}

template <int Tiles>
cudaError_t start(cudaStream_t stream, const Products& work) {
  int64_t units = 0;
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i) units += (work.parts[i].rows + kOutputs - 1) / kOutputs;
  const dim3 grid(count((units * work.segments + kWarps - 1) / kWarps),
                  count((work.coded.rows + Tiles * 8 - 1) / (Tiles * 8)));
  const Blocks blocks = {work.cols / kFp8Block, fp8_segment_blocks(work.cols, work.segments)};
  launch(stream, work.gated ? int8_kernel<Tiles, true> : int8_kernel<Tiles, false>, grid, kWarps * 32, 0, work, blocks);
  return cudaSuccess;
}

}  // namespace

cudaError_t int8_rows(cudaStream_t stream, const Products& work) {
  if (work.coded.rows <= 8) return start<1>(stream, work);
  return work.coded.rows <= 16 ? start<2>(stream, work) : start<4>(stream, work);
}

cudaError_t load_int8_rows() { return load_kernels(); }

}  // namespace millrace::cuda::portable

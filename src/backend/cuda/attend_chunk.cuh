// What a warp multiplies for its sixteen queries of a tile, with instructions that every GPU has: a chunk's keys, then
// its values, that lie in shared memory as 128 bytes a position, sixteenths turned by the position's number, and the
// next 64 numbers behind all positions. Device code.
#pragma once

#include "backend/cuda/attend_team.cuh"
#include "backend/cuda/attend_tile.cuh"

namespace millrace::cuda {

// queries: of this warp's sixteen.
template <class T, int D>
__device__ void multiply_keys(float (&scores)[kChunk / 2], uint32_t queries, uint32_t keys) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto& tiles = reinterpret_cast<float(&)[kChunk / 8][4]>(scores);
#pragma unroll
  for (float& score : scores) score = 0;
  const uint32_t query = queries + static_cast<uint32_t>(lane % 16 * 128);
  const uint32_t query_piece = static_cast<uint32_t>((lane / 16 ^ lane % 8) * 16);
  const uint32_t key = keys + static_cast<uint32_t>((lane % 8 + lane / 16 * 8) * 128);
  const uint32_t key_piece = static_cast<uint32_t>((lane / 8 % 2 ^ lane % 8) * 16);
#pragma unroll 1  // more would be read ahead than there are registers for
  for (int half = 0; half < D / 64; ++half) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t turn = static_cast<uint32_t>(k * 32);
      const uint4 a = load_matrices(query + static_cast<uint32_t>(half * 64 * 128) + (query_piece ^ turn));
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        const uint4 b =
            load_matrices(key + static_cast<uint32_t>(half * kChunk * 128 + j * 16 * 128) + (key_piece ^ turn));
        product<T>(tiles[2 * j], a, b.x, b.y);
        product<T>(tiles[2 * j + 1], a, b.z, b.w);
      }
    }
  }
}

// Values times weights, 32 numbers of a head at a time, each a chain over the chunk from zero that joins what came
// before.
template <class T, int D>
__device__ void add_values(float (&all)[D / 2], const uint32_t (&weights)[kChunk / 4], const Factors (&factors)[2],
                           uint32_t values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t row = values + static_cast<uint32_t>(lane % 16 * 128);
#pragma unroll
  for (int first = 0; first < D; first += 32) {
    float sums[4][4] = {};
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      const uint4 a = {weights[4 * k], weights[4 * k + 1], weights[4 * k + 2], weights[4 * k + 3]};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int piece = first / 8 + j * 2 + lane / 16;
        const uint4 b = load_matrices_turned(
            row + static_cast<uint32_t>(piece / 8 * kChunk * 128 + k * 16 * 128 + ((piece ^ lane) & 7) * 16));
        product<T>(sums[2 * j], a, b.x, b.y);
        product<T>(sums[2 * j + 1], a, b.z, b.w);
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float& one = all[first / 2 + i];
      one = fmaf(sums[i / 4][i % 4], factors[i % 4 / 2].of_chunk, one * factors[i % 4 / 2].of_all);
    }
  }
}

}  // namespace millrace::cuda

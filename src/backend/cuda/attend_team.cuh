// A chunk of a single row, computed by a team of four warps: first each has its share of the positions, for
// all the heads that share keys, then each its share of a head's numbers. Loops are loops where they can be: what runs
// once costs what reading its instructions costs. The arithmetic is that of attend.cuh. Device code.
#pragma once

#include "backend/cuda/attend.cuh"

namespace millrace::cuda {

inline constexpr int kTeamWarps = 4;
inline constexpr int kTeamThreads = kTeamWarps * 32;

// What the warps of a team tell each other, in shared memory.
struct Exchange {
  static constexpr int kPitch = kChunk * 2 + 16;
  __align__(16) char weights[16 * kPitch];
  __align__(16) float most[16][kTeamWarps];
  float totals[4][16][4];
};

template <class T>
__device__ void product(float (&sums)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, a, b0, b1);
  else
    multiply_add(sums, a, b0, b1);
}

// Where a position's first 64 numbers lie among keys or values that came in boxes of `run` positions.
template <int D>
__device__ uint32_t position_at(int position, int run) {
  return static_cast<uint32_t>((position & ~(run - 1)) * D * 2 + (position & (run - 1)) * 128);
}

template <class T, int D>
struct Team {
  using Number = T;
  static constexpr int kDim = D;
  static constexpr bool kPlain = true;  // keys and values are numbers as they lie in the cache
  static constexpr int kThreads = kTeamThreads;
  static constexpr int kKeys = kQuarter, kKeyTiles = kKeys / 8;  // positions of a warp
  static constexpr int kNumbers = D / kTeamWarps, kTiles = kNumbers / 8;
  static constexpr int kQueryPitch = D * 2 + 16;
  static constexpr int kQueryBytes = 16 * kQueryPitch;

  Exchange& exchange;
  uint32_t queries;     // a row for each head that shares the keys, zeros up to the sixteenth
  int name, run, warp;  // name: of the team's barrier
  float scores[kKeyTiles][4], sums[kTiles][4];
  float most[2];  // of the chunk, rows g and g + 8

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ void sync() const { group_sync(name, kThreads); }

  __device__ void multiply_keys(uint32_t keys) {
    const uint32_t piece = static_cast<uint32_t>((lane() / 8 ^ lane() % 8) * 16);
    uint32_t rows[kKeyTiles];
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
      rows[j] = keys + position_at<D>(warp * kKeys + j * 8 + lane() % 8, run);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] = 0;
    }
    uint32_t query = queries + static_cast<uint32_t>(lane() % 16 * kQueryPitch + lane() / 16 * 16);
#pragma unroll 1
    for (int half = 0; half < D / 64; ++half) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {  // keys in the inner loop: their sums do not wait for each other
        const uint4 q0 = load_matrices(query), q1 = load_matrices(query + 32);
        uint4 b[kKeyTiles];
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) b[j] = load_matrices(rows[j] + (piece ^ static_cast<uint32_t>(k * 64)));
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) product<T>(scores[j], q0, b[j].x, b[j].y);
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) product<T>(scores[j], q1, b[j].z, b[j].w);
        query += 64;
      }
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) rows[j] += static_cast<uint32_t>(run * 128);
    }
  }

  // Scores become weights, of the chunk that begins at `start`. sight: of rows g and g + 8, which see the same.
  // scale(j) gives what the weights of this lane's two positions of tile j are multiplied with for the values.
  template <class Scale = WeightsAsTheyAre>
  __device__ void weigh(int start, const Sight (&sight)[2], const Attention& attention, bool shapes,
                        const Scale& scale = {}) {
    const int g = lane() / 4, t = lane() % 4, first = start + warp * kKeys + 2 * t;
    if (shapes) {
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[j][i] = shaped(scores[j][i], attention, sight[i / 2], first + j * 8 + i % 2);
      }
    }
    if (!sight[0].all(start)) {
      const unsigned width = static_cast<unsigned>(sight[0].end - sight[0].begin);
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (static_cast<unsigned>(first + j * 8 + i - sight[0].begin) >= width)
            scores[j][i] = scores[j][i + 2] = -INFINITY;
        }
      }
    }
    float high[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) high[i / 2] = fmaxf(high[i / 2], scores[j][i]);
    }
#pragma unroll
    for (int d = 1; d < 4; d *= 2) {
      high[0] = fmaxf(high[0], __shfl_xor_sync(~0u, high[0], d));
      high[1] = fmaxf(high[1], __shfl_xor_sync(~0u, high[1], d));
    }
    if (t < 2) exchange.most[g + 8 * t][warp] = t == 0 ? high[0] : high[1];
    sync();
    const float factor = shapes ? kLog2e : attention.scale * kLog2e;
    float less[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(exchange.most[g + 8 * r]);
      const float all = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
      most[r] = all * factor;
      less[r] = all == -INFINITY ? 0.0f : -most[r];
    }
    char* to = exchange.weights + g * Exchange::kPitch + (warp * kKeys + 2 * t) * 2;
    float lanes[4];
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = power_of_two(fmaf(scores[j][i], factor, less[i / 2]));
        lanes[i] = j == 0 ? scores[j][i] : lanes[i] + scores[j][i];
      }
      if constexpr (!std::is_same_v<Scale, WeightsAsTheyAre>) {
        const float2 each = scale(j);
        scores[j][0] *= each.x, scores[j][1] *= each.y, scores[j][2] *= each.x, scores[j][3] *= each.y;
      }
      *reinterpret_cast<uint32_t*>(to + j * 16) = two<T>(scores[j][0], scores[j][1]);
      *reinterpret_cast<uint32_t*>(to + 8 * Exchange::kPitch + j * 16) = two<T>(scores[j][2], scores[j][3]);
    }
    exchange.totals[warp][g][t] = lanes[0] + lanes[1];
    exchange.totals[warp][g + 8][t] = lanes[2] + lanes[3];
    sync();
  }
  // Sum of the chunk's weights, row g + 8 r.
  __device__ float total(int r) const {
    auto quarter = [&](int w) { return exchange.totals[w][lane() / 4 + 8 * r][lane() % 4]; };
    float all = (quarter(0) + quarter(1)) + (quarter(2) + quarter(3));
    all += __shfl_xor_sync(~0u, all, 1);
    all += __shfl_xor_sync(~0u, all, 2);
    return all;
  }

  // Which of the warp's numbers pair n of this lane is, and the pair itself, of row g + 8 r.
  __device__ static int column(int n) { return n * 8 + lane() % 4 * 2; }
  __device__ static float2 pair(const float (&of)[kTiles][4], int n, int r) { return {of[n][2 * r], of[n][2 * r + 1]}; }
  // Four numbers of a query, from number i on, to its row.
  __device__ static void put_query(uint32_t row, int i, const uint2& four) {
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(row + static_cast<uint32_t>(i * 2)), "r"(four.x), "r"(four.y)
                 : "memory");
  }

  // This warp's share of the numbers.
  __device__ void multiply_values(uint32_t values) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
    uint32_t weights =
        shared_address(exchange.weights) + static_cast<uint32_t>(lane() % 16 * Exchange::kPitch + lane() / 16 * 16);
    const uint32_t row = values + position_at<D>(lane() % 16, run);
    uint32_t pieces[kTiles / 2];
#pragma unroll
    for (int n = 0; n < kTiles / 2; ++n) {
      const int piece = warp * kTiles + n * 2 + lane() / 16;
      pieces[n] = row + static_cast<uint32_t>(piece / 8 * run * 128 + ((piece % 8) ^ (lane() % 8)) * 16);
    }
#pragma unroll 4
    for (int k = 0; k < kChunk / 16; ++k) {
      const uint4 p = load_matrices(weights + static_cast<uint32_t>(k * 32));
      const uint32_t here = position_at<D>(k * 16, run);
#pragma unroll
      for (int n = 0; n < kTiles / 2; ++n) {
        const uint4 b = load_matrices_turned(pieces[n] + here);
        product<T>(sums[2 * n], p, b.x, b.y);
        product<T>(sums[2 * n + 1], p, b.z, b.w);
      }
    }
  }
};

}  // namespace millrace::cuda

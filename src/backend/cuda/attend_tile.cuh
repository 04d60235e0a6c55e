// What kernels for pieces of many rows share, on Hopper (attend_long.cu) and elsewhere (portable/attend_long.cu): which
// queries a tile has, and what a warp does with the scores of its sixteen. Lane 4g + t of a warp has in scores[4j + i]
// row g + i / 2 * 8, position 8j + 2t + i % 2 of the chunk. The arithmetic is that of attend.cuh. Device code.
#pragma once

#include "backend/cuda/attend.cuh"

namespace millrace::cuda {

inline constexpr int kTileQueries = 128;

// A tile's place, found by the warp that draws tickets.
struct QueryTile {
  int sequence, first_row, rows, first_query, kv_head;
  int first_chunk, chunks, end;
};

// Which sequence a tile belongs to: tiles of all sequences with more than one row follow one another.
__device__ inline QueryTile find_tile(const DeviceStep& step, const Attention& attention, const LongWork& work,
                                      int tile, int group) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int s = 0; s < step.sequences; s += 32) {
    int rows = 0;
    if (s + lane < step.sequences) rows = step.first_row[s + lane + 1] - step.first_row[s + lane];
    const int tiles = rows > 1 || work.singles ? (rows * group + kTileQueries - 1) / kTileQueries : 0;
    int up_to = tiles;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(~0u, up_to, d);
      if (lane >= d) up_to += other;
    }
    const unsigned found = __ballot_sync(~0u, before + up_to > tile);
    if (found != 0) {
      const int which = __ffs(static_cast<int>(found)) - 1;
      const int start = before + __shfl_sync(~0u, up_to - tiles, which);
      QueryTile result = {};
      result.rows = __shfl_sync(~0u, rows, which);
      result.sequence = s + which;
      result.first_row = step.first_row[s + which];
      result.first_query = (tile - start) * kTileQueries;
      // Positions ascend with rows, so the last query's sight ends last and the first one's begins first.
      const int last = min(result.first_query + kTileQueries, result.rows * group) - 1;
      result.end = step.visible[result.first_row + last / group];
      if (attention.window > 0 || attention.grid > 0)
        result.first_chunk =
            sight_begin(attention, step.positions[result.first_row + result.first_query / group]) / kChunk;
      result.chunks = max(1, (result.end + kChunk - 1) / kChunk - result.first_chunk);
      return result;
    }
    before += __shfl_sync(~0u, up_to, 31);
  }
  QueryTile none = {};
  none.sequence = -1;
  return none;
}

// A group's 64 queries into shared memory. Query i of a tile is row i / group of the piece, head i % group of the kv
// head. Parted: of every sixteen numbers 0, 1, 4, 5 and so on come first (attend_codes.cuh says why).
template <class T, int D, bool Parted = false>
__device__ void put_queries(const View& view, const QueryTile& tile, int group, int first_query, uint32_t to) {
  constexpr int kPieces = D / 8;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const bool aligned = (reinterpret_cast<uintptr_t>(view.data) | view.stride) % 16 == 0;
  const bool whole = aligned && view.form == Form::f32, rounded = aligned && is_form<T>(view.form);
#pragma unroll 4
  for (int i = 0; i < 64 * kPieces / 128; ++i) {
    const int piece = thread + i * 128, at = piece / kPieces, part = piece % kPieces, query = first_query + at;
    uint4 packed = {};
    if (query < tile.rows * group) {
      const int64_t row = tile.first_row + query / group;
      const int col = (tile.kv_head * group + query % group) * D + part * 8;
      const char* from = static_cast<const char*>(view.data) + row * view.stride;
      if (rounded) {
        packed = reinterpret_cast<const uint4*>(from)[col / 8];
      } else {
        float values[8];
        if (whole) {
          *reinterpret_cast<float4*>(values) = reinterpret_cast<const float4*>(from)[col / 4];
          *reinterpret_cast<float4*>(values + 4) = reinterpret_cast<const float4*>(from)[col / 4 + 1];
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) values[j] = read(view, row, col + j);
        }
        packed = {two<T>(values[0], values[1]), two<T>(values[2], values[3]), two<T>(values[4], values[5]),
                  two<T>(values[6], values[7])};
      }
    }
    const uint32_t row = to + static_cast<uint32_t>(part / 8 * 8192 + at * 128),
                   place = row + static_cast<uint32_t>(((part % 8) ^ (at % 8)) * 16);
    if constexpr (Parted) {
      const uint32_t half = static_cast<uint32_t>(part % 2 * 8),
                     first = row + static_cast<uint32_t>(((part % 8 & 6) ^ (at % 8)) * 16) + half,
                     second = row + static_cast<uint32_t>(((part % 8 | 1) ^ (at % 8)) * 16) + half;
      asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(first), "r"(packed.x), "r"(packed.z) : "memory");
      asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(second), "r"(packed.y), "r"(packed.w) : "memory");
      continue;
    }
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(place), "r"(packed.x), "r"(packed.y), "r"(packed.z),
                 "r"(packed.w)
                 : "memory");
  }
}

struct ChunkSums {
  float most[2], total[2];  // rows g and g + 8; totals still spread over four lanes
};

// A chunk joins two rows' sums (attend.cuh).
__device__ __forceinline__ void join_rows(float (&base)[2], float (&total)[2], ChunkSums& chunk,
                                          Factors (&factors)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    chunk.total[r] += __shfl_xor_sync(~0u, chunk.total[r], 1);
    chunk.total[r] += __shfl_xor_sync(~0u, chunk.total[r], 2);
    factors[r] = join(base[r], total[r], chunk.most[r], chunk.total[r]);
  }
}

// Takes out the scores of positions that a row does not see, and shapes them where models do.
template <bool Shaped>
__device__ void shape_scores(float (&scores)[kChunk / 2], int first, bool plain, const Sight (&sight)[2],
                             const Attention& attention) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  if constexpr (Shaped) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i)
      scores[i] = shaped(scores[i], attention, sight[i % 4 / 2], first + i / 4 * 8 + 2 * t + i % 2);
  }
  if (!plain) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int begin = sight[r].begin - first - 2 * t, end = sight[r].end - first - 2 * t;
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = 8 * j + i;
          if (at < begin || at >= end) scores[4 * j + 2 * r + i] = -INFINITY;
        }
      }
    }
  }
}

// Scores into weights. scores[4j + i] is row g + i / 2 * 8, position first + 8j + 2t + i % 2. scale(j) gives what the
// weights of this lane's two positions of tile j are multiplied with for the values.
template <class T, class Scale = WeightsAsTheyAre>
__device__ ChunkSums weigh(float (&scores)[kChunk / 2], uint32_t (&weights)[kChunk / 4], float factor,
                           const Scale& scale = {}) {
  float high[4] = {scores[0], scores[1], scores[2], scores[3]};
#pragma unroll
  for (int i = 4; i < kChunk / 2; ++i) high[i % 4] = fmaxf(high[i % 4], scores[i]);
  ChunkSums sums;
  float less[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = fmaxf(high[2 * r], high[2 * r + 1]);
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    sums.most[r] = most * factor;
    less[r] = most == -INFINITY ? 0.0f : -sums.most[r];
  }
  float quarters[4][2];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    float lanes[4];
#pragma unroll
    for (int j = 0; j < kQuarter / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[q * (kQuarter / 2) + 4 * j + i];
        score = power_of_two(fmaf(score, factor, less[i / 2]));
        lanes[i] = j == 0 ? score : lanes[i] + score;
      }
      float2 each = {1, 1};
      if constexpr (!std::is_same_v<Scale, WeightsAsTheyAre>) each = scale(q * (kQuarter / 8) + j);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = q * (kQuarter / 2) + 4 * j + 2 * i;
        if constexpr (std::is_same_v<Scale, WeightsAsTheyAre>)
          weights[at / 2] = two<T>(scores[at], scores[at + 1]);
        else
          weights[at / 2] = two<T>(scores[at] * each.x, scores[at + 1] * each.y);
      }
    }
    quarters[q][0] = lanes[0] + lanes[1];
    quarters[q][1] = lanes[2] + lanes[3];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) sums.total[r] = (quarters[0][r] + quarters[1][r]) + (quarters[2][r] + quarters[3][r]);
  return sums;
}

template <int D>
__device__ void put_results(const View& out, const Attention& attention, const QueryTile& tile, int group, int query,
                            const float (&base)[2], const float (&total)[2], const float (&all)[D / 2]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int mine = query + 8 * r;
    if (mine >= tile.rows * group) continue;
    const int number = tile.kv_head * group + mine % group;
    const int64_t row = tile.first_row + mine / group;
    const float factor = last_factor(base[r], total[r], attention.sinks, number);
    char* place = static_cast<char*>(out.data) + row * out.stride;
    if (out.form == Form::f32) {
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<float2*>(place + (number * D + n * 8 + 2 * t) * 4) = {all[4 * n + 2 * r] * factor,
                                                                                all[4 * n + 2 * r + 1] * factor};
    } else {
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<uint32_t*>(place + (number * D + n * 8 + 2 * t) * 2) =
            two(out.form, all[4 * n + 2 * r] * factor, all[4 * n + 2 * r + 1] * factor);
    }
  }
}

}  // namespace millrace::cuda

// Attention of a chunk of positions by one warp, and how chunks are merged.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kKeys = 32;  // positions of a tile
inline constexpr float kLog2e = 1.44269504f;

template <class T, int D>
struct Head {
  static constexpr int kPitch = D * 2 + 16;          // bytes of a key or value in shared memory
  static constexpr int kTileBytes = kKeys * kPitch;  // of keys or of values
  float most[2], total[2];                           // rows g and g + 8
  float sums[D / 8][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i) most[i] = -INFINITY, total[i] = 0;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
  }
};

__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <class T>
__device__ void product(float (&sums)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, a, b0, b1);
  else
    multiply_add(sums, a, b0, b1);
}

template <class T>
__device__ uint32_t two(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}

// What one query row (of sixteen) may see, and how its scores are changed.
struct Sight {
  int begin, end, position;
  float slope;

  __device__ bool all(int first) const { return begin <= first && first + kKeys <= end && slope == 0; }
};

// One tile of keys and values in shared memory for sixteen query rows.
template <class T, int D>
__device__ void take_tile(Head<T, D>& head, const uint4 (&q)[D / 16], uint32_t keys, uint32_t values, int first,
                          const Sight (&sight)[2], float scale, float softcap) {
  using H = Head<T, D>;
  const int lane = static_cast<int>(threadIdx.x) % 32, t = lane % 4;
  float scores[kKeys / 8][4] = {};
#pragma unroll
  for (int k = 0; k < D / 32; ++k) {  // keys in the inner loop: their sums do not wait for each other
    uint4 b[kKeys / 8];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
      b[j] = load_matrices(keys + static_cast<uint32_t>((j * 8 + lane % 8) * H::kPitch + k * 64 + lane / 8 * 16));
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) product<T>(scores[j], q[2 * k], b[j].x, b[j].y);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) product<T>(scores[j], q[2 * k + 1], b[j].z, b[j].w);
  }
  float higher[2] = {head.most[0], head.most[1]};
  const bool plain = softcap <= 0 && sight[0].all(first) && sight[1].all(first);
  if (__all_sync(~0u, plain)) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = scores[j][i] * scale * kLog2e;
        higher[i / 2] = fmaxf(higher[i / 2], scores[j][i]);
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Sight& see = sight[i / 2];
        const int position = first + j * 8 + 2 * t + i % 2;
        float score = scores[j][i] * scale;
        if (softcap > 0) score = softcap * tanhf(score / softcap);
        score = (score + see.slope * static_cast<float>(position - see.position)) * kLog2e;
        scores[j][i] = position >= see.begin && position < see.end ? score : -INFINITY;
        higher[i / 2] = fmaxf(higher[i / 2], scores[j][i]);
      }
    }
  }
  float factor[2], base[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    higher[i] = fmaxf(higher[i], __shfl_xor_sync(~0u, higher[i], 1));
    higher[i] = fmaxf(higher[i], __shfl_xor_sync(~0u, higher[i], 2));
    base[i] = higher[i] == -INFINITY ? 0.0f : higher[i];
    factor[i] = power_of_two(head.most[i] - base[i]);  // 0 where nothing was seen before
    head.most[i] = higher[i];
    head.total[i] *= factor[i];
  }
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[j][i] = power_of_two(scores[j][i] - base[i / 2]);
      head.total[i / 2] += scores[j][i];
    }
  }
  uint4 p[kKeys / 16];
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    p[k] = {two<T>(scores[2 * k][0], scores[2 * k][1]), two<T>(scores[2 * k][2], scores[2 * k][3]),
            two<T>(scores[2 * k + 1][0], scores[2 * k + 1][1]), two<T>(scores[2 * k + 1][2], scores[2 * k + 1][3])};
  }
#pragma unroll
  for (int n = 0; n < D / 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      head.sums[2 * n][i] *= factor[i / 2];
      head.sums[2 * n + 1][i] *= factor[i / 2];
    }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const uint4 b = load_matrices_turned(
          values + static_cast<uint32_t>((k * 16 + lane % 16) * H::kPitch + n * 32 + lane / 16 * 16));
      product<T>(head.sums[2 * n], p[k], b.x, b.y);
      product<T>(head.sums[2 * n + 1], p[k], b.z, b.w);
    }
  }
}

// The sum over a chunk's positions is spread over four lanes until the chunk is done.
template <class T, int D>
__device__ void close_chunk(Head<T, D>& head) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    head.total[i] += __shfl_xor_sync(~0u, head.total[i], 1);
    head.total[i] += __shfl_xor_sync(~0u, head.total[i], 2);
  }
}

struct Merge {
  float of_all, of_chunk;
};
// What both sides are multiplied with when a chunk joins what came before.
__device__ inline Merge merge(float& most, float& total, float chunk_most, float chunk_total) {
  const float higher = fmaxf(most, chunk_most), base = higher == -INFINITY ? 0.0f : higher;
  const Merge factors = {power_of_two(most - base), power_of_two(chunk_most - base)};
  most = higher;
  total = total * factors.of_all + chunk_total * factors.of_chunk;
  return factors;
}

// A sink takes part in the sum as a score without a value. Gives what sums are multiplied with in the end.
__device__ inline float last_factor(float most, float total, const float* sinks, int head) {
  float factor = 1;
  if (sinks != nullptr) {
    const float sink = sinks[head] * kLog2e;
    const Merge factors = merge(most, total, sink, 1.0f);
    factor = factors.of_all;
  }
  return total > 0 ? factor / total : 0.0f;
}

// Where keys and values of positions lie, for one kv head.
struct Pages {
  const int32_t* pages;
  const std::byte* keys;  // of the head, in page 0
  int64_t stride;         // of pages
  int64_t to_values;      // from a key to its value
  int32_t tokens, shift;  // shift: log2 of tokens, or -1
  int32_t row_bytes;      // of a key

  __device__ Pages(const DeviceStep& step, const KvView& kv, int sequence, int head)
      : pages(step.pages + int64_t{sequence} * step.page_stride),
        keys(kv.base + kv.k_offset + int64_t{head} * kv.page_tokens * kv.k_dim * 2),
        stride(kv.page_stride),
        to_values(kv.v_offset - kv.k_offset),
        tokens(kv.page_tokens),
        shift(-1),
        row_bytes(kv.k_dim * 2) {
    for (int i = 0; i < 16; ++i) {
      if (1 << i == tokens) shift = i;
    }
  }
  // Where a position's key lies. Pages that have left the window are as good as any: nobody sees them.
  __device__ const std::byte* at(int position) const {
    const int2 place = of(position);
    return keys + int64_t{max(pages[place.x], 0)} * stride + int64_t{place.y} * row_bytes;
  }
  // Page number and place within it.
  __device__ int2 of(int position) const {
    if (shift >= 0) return {position >> shift, position & (tokens - 1)};
    return {position / tokens, position % tokens};
  }
};

// Copies a tile of keys and values; positions from `end` on are zeros, which no row sees. Each lane looks up the page
// of one position, and all have them.
template <int D, int Threads>
__device__ void fetch_tile(const Pages& pages, int first, int end, uint32_t keys, uint32_t values, int thread) {
  constexpr int kPieces = D / 8, kPitch = D * 2 + 16;
  if (pages.tokens % 16 == 0 && first + kKeys <= end) {  // sixteen positions lie one after the other
    constexpr int kRows = Threads / kPieces;             // brought at a time
    const std::byte* low = pages.at(first) + thread * 16;
    const std::byte* high = pages.at(first + 16) + thread * 16 - 16 * D * 2;
    const uint32_t to = static_cast<uint32_t>(thread / kPieces * kPitch + thread % kPieces * 16);
#pragma unroll
    for (int i = 0; i < kKeys * kPieces / Threads; ++i) {
      const std::byte* from = ((kRows <= 16 ? i * kRows : thread / kPieces) < 16 ? low : high) + i * Threads * 16;
      copy_16(keys + to + static_cast<uint32_t>(i * kRows * kPitch), from, 16);
      copy_16(values + to + static_cast<uint32_t>(i * kRows * kPitch), from + pages.to_values, 16);
    }
    return;
  }
  const int looked_up = first + thread % 32, known = looked_up < end ? looked_up : 0;
  const int2 mine = pages.of(known);
  const int64_t place = int64_t{max(pages.pages[mine.x], 0)} * pages.stride + int64_t{mine.y} * (D * 2);
#pragma unroll
  for (int i = 0; i < kKeys * kPieces / Threads; ++i) {
    const int piece = thread + i * Threads, key = piece / kPieces, part = piece % kPieces;
    const int real = first + key < end ? 16 : 0;
    const std::byte* from = pages.keys + __shfl_sync(~0u, place, key) + part * 16;
    copy_16(keys + static_cast<uint32_t>(key * kPitch + part * 16), from, real);
    copy_16(values + static_cast<uint32_t>(key * kPitch + part * 16), from + pages.to_values, real);
  }
}

// Sixteen query rows as operands. Query i of a tile is row i / group of the piece, head i % group of the kv head.
template <class T, int D>
__device__ void read_queries(uint4 (&q)[D / 16], const View& view, int first_query, int queries, int first_row,
                             int group, int kv_head) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  auto pair = [&](int query, int dim) -> uint32_t {
    if (query >= queries) return 0;
    const int64_t row = first_row + query / group;
    const int col = (kv_head * group + query % group) * D + dim;
    return two<T>(read(view, row, col), read(view, row, col + 1));
  };
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const int a = first_query + g, b = first_query + g + 8, dim = k * 16 + 2 * t;
    q[k] = {pair(a, dim), pair(b, dim), pair(a, dim + 8), pair(b, dim + 8)};
  }
}

__device__ inline Sight sight_of(const DeviceStep& step, const Attention& attention, int query, int queries,
                                 int first_row, int group, int kv_head) {
  Sight see = {0, 0, 0, 0};
  if (query >= queries) return see;
  const int row = first_row + query / group;
  see.position = step.positions[row];
  see.end = step.visible[row];
  see.begin = attention.window > 0 && see.position - attention.window + 1 > 0 ? see.position - attention.window + 1 : 0;
  if (attention.slopes != nullptr) see.slope = attention.slopes[kv_head * group + query % group];
  return see;
}

// What a chunk came to: [item][head][2 + D]: maximum, sum, values.
template <class T, int D>
__device__ void write_partial(const Head<T, D>& head, int group, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (g + 8 * i >= group) continue;
    float* row = to + (g + 8 * i) * (D + 2);
    if (t == 0) row[0] = head.most[i], row[1] = head.total[i];
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      row[2 + n * 8 + 2 * t] = head.sums[n][2 * i];
      row[2 + n * 8 + 2 * t + 1] = head.sums[n][2 * i + 1];
    }
  }
}

inline constexpr int kMergedHeads = 4;  // of a kv head, merged at the same time: eight lanes each

// All chunks of a sequence's kv head, in order. The warp that finished last does it.
template <int D>
__device__ void merge_chunks(const Attention& attention, const float* partials, int chunks, int first_head, int group,
                             int64_t row, const View& out) {
  constexpr int kMine = D / 8;  // numbers of a lane
  const int lane = static_cast<int>(threadIdx.x) % 32, part = lane % 8;
  for (int head = lane / 8; head < (group + kMergedHeads - 1) / kMergedHeads * kMergedHeads; head += kMergedHeads) {
    const bool real = head < group;
    const int64_t stride = int64_t{attention.heads} * (D + 2);
    const float* from = partials + int64_t{first_head + (real ? head : 0)} * (D + 2);
    float most = -INFINITY, total = 0, sums[kMine] = {};
#pragma unroll 2
    for (int i = 0; i < chunks; ++i, from += stride) {
      const float2 both = __ldcg(reinterpret_cast<const float2*>(from));
      float2 values[kMine / 2];
#pragma unroll
      for (int j = 0; j < kMine / 2; ++j) values[j] = __ldcg(reinterpret_cast<const float2*>(from + 2) + part + j * 8);
      const Merge factors = merge(most, total, both.x, both.y);
#pragma unroll
      for (int j = 0; j < kMine / 2; ++j) {
        sums[2 * j] = sums[2 * j] * factors.of_all + values[j].x * factors.of_chunk;
        sums[2 * j + 1] = sums[2 * j + 1] * factors.of_all + values[j].y * factors.of_chunk;
      }
    }
    if (!real) continue;
    const int number = first_head + head;
    const float factor = last_factor(most, total, attention.sinks, number);
#pragma unroll
    for (int j = 0; j < kMine; ++j) write(out, row, number * D + (part + j / 2 * 8) * 2 + j % 2, sums[j] * factor);
  }
}

}  // namespace millrace::cuda

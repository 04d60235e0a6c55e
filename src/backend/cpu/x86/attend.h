// Attention in float32 whatever the cache's format. Pages keep the keys of sixteen tokens side by side, [dimensions][16
// tokens], if their shape allows, so that sixteen scores come of one vector; values lie token after token. Other shapes
// are kept token after token and brought into that order in scratch; the bits are the same: every score takes its
// dimensions in ascending order, every sum its positions.
#pragma once

#include <cmath>
#include <type_traits>

#include "backend/cpu/x86/softmax.h"
#include "tensor/half.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kKeys = kLanes;  // side by side
#ifdef __AVX512F__
constexpr int kScoreBlocks = 2, kWeighVectors = 4;
#else
constexpr int kScoreBlocks = 1, kWeighVectors = 1;
#endif

struct KvF32 {
  using Stored = float;
  static constexpr KvType kType = kKvF32;
  static Floats get(const float* at) { return load(at); }
  static float round(float x) { return x; }
};
struct KvF16 {
  using Stored = uint16_t;
  static constexpr KvType kType = kKvF16;
  static Floats get(const uint16_t* at) { return load_f16(reinterpret_cast<const std::byte*>(at)); }
  static uint16_t round(float x) {
    __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
    return static_cast<uint16_t>(_mm_cvtsi128_si32(half));
  }
};
struct KvBf16 {
  using Stored = uint16_t;
  static constexpr KvType kType = kKvBf16;
  static Floats get(const uint16_t* at) { return load_bf16(reinterpret_cast<const std::byte*>(at)); }
  static uint16_t round(float x) { return f32_to_bf16(x); }
};

inline bool side_by_side(const KvView& kv) { return kv.v_dim > 0 && kv.page_tokens % kKeys == 0; }

template <class Kv>
void store_kv(const KvPlace& place, const float* k, const float* v) {
  using Stored = typename Kv::Stored;
  const KvView& kv = *place.kv;
  Stored* keys = reinterpret_cast<Stored*>(place.keys);
  Stored* values = reinterpret_cast<Stored*>(place.values) + place.within * kv.v_dim;
  if (side_by_side(kv)) {
    keys += place.within / kKeys * kKeys * kv.k_dim + place.within % kKeys;
    for (int32_t i = 0; i < kv.k_dim; ++i) keys[i * kKeys] = Kv::round(k[i]);
  } else {
    keys += place.within * kv.k_dim;
    for (int32_t i = 0; i < kv.k_dim; ++i) keys[i] = Kv::round(k[i]);
  }
  for (int32_t i = 0; i < kv.v_dim; ++i) values[i] = Kv::round(v[i]);
}

// scores [Queries][16 * Blocks keys].
template <class Kv, int Queries, int Blocks>
void score_blocks(const typename Kv::Stored* const* keys, const float* const* q, int32_t dim, Ahead& ahead,
                  float* scores) {
  Floats sum[Queries][Blocks];
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i) sum[i / Blocks][i % Blocks] = splat(0);
  for (int32_t d = 0; d < dim; ++d) {
    if (d % 4 == 0) ahead.fetch();
    Floats k[Blocks];
#pragma GCC unroll 2
    for (int b = 0; b < Blocks; ++b) k[b] = Kv::get(keys[b] + d * kKeys);
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) {
      Floats x = splat(q[m][d]);
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) sum[m][b] = fma(k[b], x, sum[m][b]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i)
    store(scores + i / Blocks * kAttendChunk + i % Blocks * kKeys, sum[i / Blocks][i % Blocks]);
}

// The positions of a chunk that are there.
template <class Stored>
struct Values {
  const Stored* at[kAttendChunk];
  int32_t position[kAttendChunk];
  int32_t count = 0;
};

// sums [Queries] of dimensions [dim, dim + 16 * Vectors).
template <class Kv, int Queries, int Vectors>
void weigh(const AttendChunk& chunk, const Values<typename Kv::Stored>& values, const float* weights, int32_t first,
           int32_t dim) {
  Floats sum[Queries][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Queries * Vectors; ++i) sum[i / Vectors][i % Vectors] = splat(0);
  int32_t left = chunk.v_dim - dim;
  for (int32_t i = 0; i < values.count; ++i) {
    if (i % 4 == 0) chunk.ahead->fetch();
    Floats v[Vectors];
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; ++n) {
      if (Vectors > 1 || left >= kLanes) {
        v[n] = Kv::get(values.at[i] + dim + n * kLanes);
      } else {
        typename Kv::Stored some[kLanes] = {};
        for (int32_t j = 0; j < left; ++j) some[j] = values.at[i][dim + j];
        v[n] = Kv::get(some);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) {
      Floats w = splat(weights[m * kAttendChunk + values.position[i]]);
#pragma GCC unroll 4
      for (int n = 0; n < Vectors; ++n) sum[m][n] = fma(v[n], w, sum[m][n]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Queries * Vectors; ++i) {
    int n = i % Vectors;
    store_some(chunk.sums + (first + i / Vectors) * chunk.sums_stride + dim + n * kLanes, sum[i / Vectors][n],
               least(kLanes, left - n * kLanes));
  }
}

// Calls f(first query, number of queries as a constant): four at a time, then two, then one.
template <class F>
void each_block(int32_t queries, F f) {
  int32_t first = 0;
  for (; first + 4 <= queries; first += 4) f(first, std::integral_constant<int, 4>());
  if (first + 2 <= queries) {
    f(first, std::integral_constant<int, 2>());
    first += 2;
  }
  if (first < queries) f(first, std::integral_constant<int, 1>());
}

// Where the keys of each sixteen positions lie; null where nobody sees one of them.
template <class Stored>
void find_keys(const AttendChunk& chunk, int32_t blocks, Stored* room, const Stored** out) {
  for (int32_t b = 0; b < blocks; ++b) {
    int32_t begin = b * kKeys, end = begin + kKeys < chunk.positions ? begin + kKeys : chunk.positions, j = begin;
    while (j < end && chunk.keys[j] == nullptr) ++j;
    out[b] = nullptr;
    if (j >= end) continue;
    if (side_by_side(*chunk.kv)) {
      out[b] = reinterpret_cast<const Stored*>(chunk.keys[j]) - (j - begin) * chunk.k_dim;
      continue;
    }
    Stored* to = room + b * kKeys * chunk.k_dim;
    for (int32_t i = begin; i < begin + kKeys; ++i) {
      const Stored* from = i < end ? reinterpret_cast<const Stored*>(chunk.keys[i]) : nullptr;
      for (int32_t d = 0; d < chunk.k_dim; ++d) to[d * kKeys + i - begin] = from != nullptr ? from[d] : Stored{0};
    }
    out[b] = to;
  }
}

template <class Kv>
void attend(const AttendChunk& chunk) {
  using Stored = typename Kv::Stored;
  float* scores = reinterpret_cast<float*>(chunk.scratch);                           // [queries][kAttendChunk]
  Stored* room = reinterpret_cast<Stored*>(scores + kAttendQueries * kAttendChunk);  // keys brought into order
  int32_t columns = static_cast<int32_t>(up_to(chunk.positions, kKeys)), blocks = columns / kKeys;
  const Stored* keys[kAttendChunk / kKeys];
  find_keys(chunk, blocks, room, keys);
  Values<Stored> values;
  for (int32_t j = 0; j < chunk.positions; ++j) {
    if (chunk.values[j] == nullptr) continue;
    values.at[values.count] = reinterpret_cast<const Stored*>(chunk.values[j]);
    values.position[values.count++] = j;
  }
  each_block(chunk.queries, [&](int32_t first, auto count) {
    constexpr int kCount = decltype(count)::value;
    float* rows = scores + first * kAttendChunk;
    for (int32_t b = 0; b < blocks;) {
      if (keys[b] == nullptr) {
        for (int m = 0; m < kCount; ++m) fill_floats(rows + m * kAttendChunk + b * kKeys, kKeys, 0);
        ++b;
      } else if (kScoreBlocks == 2 && b + 1 < blocks) {
        score_blocks<Kv, kCount, kScoreBlocks>(keys + b, chunk.q + first, chunk.k_dim, *chunk.ahead, rows + b * kKeys);
        b += kScoreBlocks;
      } else {
        score_blocks<Kv, kCount, 1>(keys + b, chunk.q + first, chunk.k_dim, *chunk.ahead, rows + b * kKeys);
        ++b;
      }
    }
    for (int m = 0; m < kCount; ++m) {
      Scores finished = finish_scores(chunk, first + m, columns, rows + m * kAttendChunk);
      chunk.most[first + m] = finished.most;
      if (finished.most == kNothing) {
        chunk.total[first + m] = 0;
        fill_floats(rows + m * kAttendChunk, columns, 0);
      } else {
        chunk.total[first + m] = exponentials(rows + m * kAttendChunk, columns, finished);
      }
    }
    int32_t dim = 0;
    for (; dim + kWeighVectors * kLanes <= chunk.v_dim; dim += kWeighVectors * kLanes)
      weigh<Kv, kCount, kWeighVectors>(chunk, values, rows, first, dim);
    for (; dim < chunk.v_dim; dim += kLanes) weigh<Kv, kCount, 1>(chunk, values, rows, first, dim);
  });
}

static_assert((kAttendChunk * kHeadDim + kAttendQueries * kAttendChunk) * sizeof(float) <= kWorkerBytes / 2);

inline void merge_chunk(float chunk_most, float chunk_total, const float* chunk_sums, float* most, float* total,
                        float* sums, int64_t count) {
  if (chunk_most == kNothing) return;
  float highest = *most > chunk_most ? *most : chunk_most;
  float keep = exp_f32(*most - highest), take = exp_f32(chunk_most - highest);
  map_floats(count, chunk_sums, sums, [=](Floats x, int64_t i, int64_t left) {
    return fma(x, splat(take), load_some(sums + i, left) * splat(keep));
  });
  *total = std::fma(chunk_total, take, *total * keep);
  *most = highest;
}

inline void divide_sums(const float* sums, float total, float* out, int64_t count) {
  float factor = total > 0 ? 1 / total : 0;
  map_floats(count, sums, out, [=](Floats x, int64_t, int64_t) { return x * splat(factor); });
}

inline void add_attend_entries(Kernels& kernels) {
  for (auto& mode : kernels.store) {
    mode[kKvF32] = store_kv<KvF32>;
    mode[kKvF16] = store_kv<KvF16>;
    mode[kKvBf16] = store_kv<KvBf16>;
  }
  for (auto& mode : kernels.attend) {
    mode[kKvF32] = attend<KvF32>;
    mode[kKvF16] = attend<KvF16>;
    mode[kKvBf16] = attend<KvBf16>;
  }
  kernels.merge = merge_chunk;
  kernels.divide = divide_sums;
}

}  // namespace
}  // namespace millrace::cpu

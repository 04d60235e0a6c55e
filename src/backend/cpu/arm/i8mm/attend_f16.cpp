// Attention over a float16 cache with the widening product: queries and softmax weights are rounded to float16,
// products are exact and sums float32. A score has four lanes over the dimensions; a sum of values has one accumulator
// per dimension and takes positions in ascending order.
#include <algorithm>
#include <bit>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kBlock = 8;  // positions, and values of a vector

int32_t up_to(int32_t value, int32_t multiple) { return (value + multiple - 1) / multiple * multiple; }

alignas(64) constexpr std::byte kZeros[kHeadDim * 2] = {};

const float16_t* as_f16(const std::byte* at) { return reinterpret_cast<const float16_t*>(at); }

struct Room {
  explicit Room(std::byte* scratch)
      : queries(reinterpret_cast<float16_t*>(scratch)),
        weights(queries + kAttendQueries * kHeadDim),
        scores(reinterpret_cast<float*>(weights + kAttendQueries * kAttendChunk)) {}
  float16_t* queries;  // [queries][k_dim]
  float16_t* weights;  // [queries][kAttendChunk]
  float* scores;       // [queries][kAttendChunk]
  static constexpr int64_t kBytes = kAttendQueries * kHeadDim * 2 + kAttendQueries * kAttendChunk * 6;
};
static_assert(Room::kBytes <= kWorkerBytes / 2);

// Rounds a query to float16 after bringing its largest value to [2^7, 2^8); returns the power of two that undoes it.
// From there nothing overflows, and what is lost is below 2^-11 of each value unless it is below 2^-21 of the largest.
float round_query(const float* q, int32_t dim, float16_t* out) {
  float32x4_t most = vdupq_n_f32(0);
  for (int32_t i = 0; i < dim; i += 4) most = vmaxq_f32(most, vabsq_f32(vld1q_f32(q + i)));
  uint32_t exponent = std::bit_cast<uint32_t>(vmaxvq_f32(most)) >> 23;
  float factor = 1, undo = 1;
  if (exponent >= 16 && exponent < 240) {
    factor = std::bit_cast<float>((127 + 134 - exponent) << 23);
    undo = std::bit_cast<float>((exponent + 127 - 134) << 23);
  }
  for (int32_t i = 0; i < dim; i += 4) vst1_f16(out + i, vcvt_f16_f32(vmulq_n_f32(vld1q_f32(q + i), factor)));
  return undo;
}

// scores [Queries][4 keys], each times its query's factor.
template <int Queries>
void score_keys(const std::byte* const* keys, const float16_t* q, int32_t dim, const float* undo, float* scores) {
  float32x4_t sum[Queries][4];
#pragma GCC unroll 16
  for (int i = 0; i < Queries * 4; ++i) sum[i / 4][i % 4] = vdupq_n_f32(0);
  for (int32_t i = 0; i < dim; i += kBlock) {
    float16x8_t k[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) k[n] = vld1q_f16(as_f16(keys[n]) + i);
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) {
      float16x8_t x = vld1q_f16(q + m * dim + i);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sum[m][n] = vfmlalq_high_f16(vfmlalq_low_f16(sum[m][n], x, k[n]), x, k[n]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < Queries; ++m) {
    float32x4_t four = vpaddq_f32(vpaddq_f32(sum[m][0], sum[m][1]), vpaddq_f32(sum[m][2], sum[m][3]));
    vst1q_f32(scores + m * kAttendChunk, vmulq_n_f32(four, undo[m]));
  }
}

// 2^x for x <= 0 to 3e-6; exactly 0 from -127 down.
float32x4_t exp2_f32(float32x4_t x) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
  x = vmaxq_f32(x, vdupq_n_f32(-127.0f));
  float32x4_t shifted = vaddq_f32(x, magic);
  float32x4_t r = vsubq_f32(x, vsubq_f32(shifted, magic));
  float32x4_t p = vfmaq_f32(vdupq_n_f32(5.59064134e-2f), r, vdupq_n_f32(9.58283641e-3f));
  p = vfmaq_f32(vdupq_n_f32(2.40240988e-1f), r, p);
  p = vfmaq_f32(vdupq_n_f32(6.93124195e-1f), r, p);
  p = vfmaq_f32(vdupq_n_f32(1.0f), r, p);
  int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23));
  return vreinterpretq_f32_s32(bits);
}

void softmax(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, float16_t* weights) {
  constexpr float kLog2e = 1.44269504f;
  Scores of = finish_scores(chunk, query, columns, scores);
  float factor = of.factor * kLog2e;
  float32x4_t sum = vdupq_n_f32(0), offset = vdupq_n_f32(of.most == kNothing ? 0.0f : -of.most * kLog2e);
  for (int32_t j = 0; j < columns; j += 8) {
    float32x4_t a = exp2_f32(vfmaq_n_f32(offset, vld1q_f32(scores + j), factor));
    float32x4_t b = exp2_f32(vfmaq_n_f32(offset, vld1q_f32(scores + j + 4), factor));
    vst1q_f16(weights + j, vcvt_high_f16_f32(vcvt_f16_f32(a), b));
    sum = vaddq_f32(vaddq_f32(sum, a), b);
  }
  chunk.most[query] = of.most;
  chunk.total[query] = vaddvq_f32(sum);
}

// One vector of eight positions' weights for each query, over 8 * Vectors dimensions.
template <int Queries, int Vectors, int lane = 0>
inline void add_positions(const float16x8_t (&w)[Queries], const std::byte* const* values, int32_t dim,
                          float32x4_t (&sum)[Queries][Vectors * 2]) {
  if constexpr (lane < kBlock) {
#pragma GCC unroll 4
    for (int n = 0; n < Vectors; ++n) {
      float16x8_t v = vld1q_f16(as_f16(values[lane]) + dim + n * kBlock);
#pragma GCC unroll 4
      for (int m = 0; m < Queries; ++m) {
        sum[m][2 * n] = vfmlalq_laneq_low_f16(sum[m][2 * n], v, w[m], lane);
        sum[m][2 * n + 1] = vfmlalq_laneq_high_f16(sum[m][2 * n + 1], v, w[m], lane);
      }
    }
    add_positions<Queries, Vectors, lane + 1>(w, values, dim, sum);
  }
}

// sums [Queries] of dimensions [dim, dim + 8 * Vectors).
template <int Queries, int Vectors>
void weigh(const AttendChunk& chunk, const std::byte* const* values, int32_t columns, const float16_t* weights,
           int32_t first, int32_t dim) {
  float32x4_t sum[Queries][Vectors * 2];
#pragma GCC unroll 16
  for (int i = 0; i < Queries * Vectors * 2; ++i) sum[i / (Vectors * 2)][i % (Vectors * 2)] = vdupq_n_f32(0);
  for (int32_t j = 0; j < columns; j += kBlock) {
    float16x8_t w[Queries];
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) w[m] = vld1q_f16(weights + m * kAttendChunk + j);
    chunk.ahead->fetch();
    add_positions<Queries, Vectors>(w, values + j, dim, sum);
  }
#pragma GCC unroll 4
  for (int m = 0; m < Queries; ++m) {
    float* out = chunk.sums + (first + m) * chunk.sums_stride + dim;
#pragma GCC unroll 4
    for (int n = 0; n < Vectors * 2; ++n) vst1q_f32(out + 4 * n, sum[m][n]);
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

void attend(const AttendChunk& chunk) {
  if (chunk.k_dim % kBlock != 0 || chunk.v_dim % kBlock != 0) return neon_attend_f16(chunk);
  Room room(chunk.scratch);
  const std::byte *keys[kAttendChunk], *values[kAttendChunk];
  int32_t columns = up_to(chunk.positions, kBlock);
  for (int32_t j = 0; j < columns; ++j) {
    bool seen = j < chunk.positions && chunk.keys[j] != nullptr;
    keys[j] = seen ? chunk.keys[j] : kZeros;
    values[j] = seen ? chunk.values[j] : kZeros;
  }
  float undo[kAttendQueries];
  for (int32_t i = 0; i < chunk.queries; ++i)
    undo[i] = round_query(chunk.q[i], chunk.k_dim, room.queries + i * chunk.k_dim);
  each_block(chunk.queries, [&](int32_t first, auto count) {
    constexpr int kCount = decltype(count)::value;
    float* scores = room.scores + first * kAttendChunk;
    for (int32_t j = 0; j < columns; j += 4) {
      for (int i = 0; i < 2; ++i) chunk.ahead->fetch();
      score_keys<kCount>(keys + j, room.queries + first * chunk.k_dim, chunk.k_dim, undo + first, scores + j);
    }
    for (int m = 0; m < kCount; ++m) {
      softmax(chunk, first + m, columns, scores + m * kAttendChunk, room.weights + (first + m) * kAttendChunk);
    }
  });
  each_block(chunk.queries, [&](int32_t first, auto count) {
    constexpr int kCount = decltype(count)::value;
    const float16_t* weights = room.weights + first * kAttendChunk;
    int32_t dim = 0;
    for (; dim + 16 <= chunk.v_dim; dim += 16) weigh<kCount, 2>(chunk, values, columns, weights, first, dim);
    if (dim < chunk.v_dim) weigh<kCount, 1>(chunk, values, columns, weights, first, dim);
  });
}

}  // namespace

void add_i8mm_attend_f16(Kernels& kernels) { kernels.attend[static_cast<size_t>(Activations::fast)][kKvF16] = attend; }

}  // namespace millrace::cpu

// Attention over a float16 cache with the widening product: queries and softmax weights are rounded to float16,
// products are exact and sums float32. A score takes its dimensions in ascending order, a sum of values its positions,
// one accumulator each.
//
// Both are one kind of product: of vectors that lie in memory with one number each of some other vectors. Pages keep
// up to 32 tokens together, if their shape allows, such that both read memory in the order it lies: keys as
// [dimensions][tokens], values as [dimensions / 32][tokens][32]. Other shapes are kept token after token and brought
// into such an order in scratch; the bits are the same.
#include <algorithm>
#include <bit>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kEight = kKvBlock;  // positions, or dimensions, of a vector
constexpr int32_t kEights = kAttendChunk / kEight;
constexpr int32_t kMostTogether = 32;
constexpr int32_t kTileQueries = 4;  // most queries at a time

const float16_t* as_f16(const std::byte* at) { return reinterpret_cast<const float16_t*>(at); }
float16_t* as_f16(std::byte* at) { return reinterpret_cast<float16_t*>(at); }

bool whole_vectors(const KvView& kv, int32_t v_dim) { return kv.k_dim % kEight == 0 && v_dim % kEight == 0; }
bool interleaved(const KvView& kv) {
  return kv.v_dim > 0 && kv.page_tokens % kEight == 0 && whole_vectors(kv, kv.v_dim);
}

// How tokens that are kept together lie. Key: dim * tokens + token. Value: slab * tokens * width + token * width + dim
// within its slab of `width`.
struct Order {
  int32_t tokens, width;
  int64_t value(int32_t token, int32_t dim) const {
    return int64_t{dim / width} * tokens * width + token * width + dim % width;
  }
};

Order order_of(const KvView& kv) {
  int32_t tokens = kMostTogether;
  while (kv.page_tokens % tokens != 0) tokens /= 2;
  return {tokens, kv.v_dim % 32 == 0 ? 32 : kv.v_dim};
}

void store_kv(const KvPlace& place, const float* k, const float* v) {
  const KvView& kv = *place.kv;
  if (!interleaved(kv)) return neon_store_f16(place, k, v);
  Order order = order_of(kv);
  int32_t token = static_cast<int32_t>(place.within % order.tokens);
  float16_t* keys = as_f16(place.keys) + (place.within - token) * kv.k_dim + token;
  for (int32_t i = 0; i < kv.k_dim; i += 4, keys += 4 * order.tokens) {
    float16x4_t four = vcvt_f16_f32(vld1q_f32(k + i));
    vst1_lane_f16(keys, four, 0);
    vst1_lane_f16(keys + order.tokens, four, 1);
    vst1_lane_f16(keys + 2 * order.tokens, four, 2);
    vst1_lane_f16(keys + 3 * order.tokens, four, 3);
  }
  float16_t* values = as_f16(place.values) + (place.within - token) * kv.v_dim;
  for (int32_t i = 0; i < kv.v_dim; i += 4) vst1_f16(values + order.value(token, i), vcvt_f16_f32(vld1q_f32(v + i)));
}

struct Scratch {
  explicit Scratch(std::byte* scratch)
      : queries(as_f16(scratch)),
        weights(queries + kTileQueries * kHeadDim),
        scores(reinterpret_cast<float*>(weights + kAttendQueries * kAttendChunk)),
        keys(as_f16(reinterpret_cast<std::byte*>(scores + kTileQueries * kAttendChunk))),
        values(keys + kAttendChunk * kHeadDim) {}
  float16_t* queries;  // of one tile: [queries][k_dim]
  float16_t* weights;  // [queries][kAttendChunk]
  float* scores;       // of one tile: [queries][kAttendChunk]
  float16_t* keys;     // where the cache does not keep them so
  float16_t* values;
  static constexpr int64_t kBytes = kTileQueries * kHeadDim * 2 + kAttendQueries * kAttendChunk * 2 +
                                    kTileQueries * kAttendChunk * 4 + 2 * kAttendChunk * kHeadDim * 2;
};
static_assert(Scratch::kBytes <= kWorkerBytes / 2);

// Where products find their operands: eights [first, end) of the chunk's positions, of which somebody sees something.
struct Operands {
  const float16_t* keys[kEights];    // dimension 0
  const float16_t* values[kEights];  // of the first of the eight, dimension 0
  Order order;
  int32_t first, end;
};

void arrange(const AttendChunk& chunk, const Scratch& room, Operands& operands) {
  operands.order = {kEight, chunk.v_dim};
  for (int32_t j = operands.first * kEight; j < operands.end * kEight; ++j) {
    bool seen = j < chunk.positions && chunk.keys[j] != nullptr;
    float16_t* key = room.keys + j / kEight * kEight * chunk.k_dim + j % kEight;
    float16_t* value = room.values + j * chunk.v_dim;
    for (int32_t i = 0; i < chunk.k_dim; ++i) key[i * kEight] = seen ? as_f16(chunk.keys[j])[i] : float16_t{0};
    for (int32_t i = 0; i < chunk.v_dim; ++i) value[i] = seen ? as_f16(chunk.values[j])[i] : float16_t{0};
  }
  for (int32_t i = operands.first; i < operands.end; ++i) {
    operands.keys[i] = room.keys + i * kEight * chunk.k_dim;
    operands.values[i] = room.values + i * kEight * chunk.v_dim;
  }
}

// Values that were never written, or are not of this chunk, are made zero: a weight of zero would not save a sum from
// what happens to lie there.
void mask_last_eight(const AttendChunk& chunk, const Scratch& room, Operands& operands) {
  const float16_t*& last = operands.values[operands.end - 1];
  const Order& order = operands.order;
  int32_t left = chunk.positions % kEight * order.width, all = kEight * order.width;
  for (int64_t at = 0; at < int64_t{chunk.v_dim} * order.tokens; at += order.tokens * order.width) {
    std::copy_n(last + at, left, room.values + at);
    std::fill_n(room.values + at + left, all - left, float16_t{0});
  }
  last = room.values;
}

Operands find_operands(const AttendChunk& chunk, const Scratch& room) {
  Operands operands;
  operands.end = (chunk.positions + kEight - 1) / kEight;
  operands.first = std::min(operands.end, *std::min_element(chunk.begin, chunk.begin + chunk.queries) / kEight);
  if (!interleaved(*chunk.kv)) {
    arrange(chunk, room, operands);
    return operands;
  }
  operands.order = order_of(*chunk.kv);
  for (int32_t i = operands.first; i < operands.end; ++i) {  // pointers are to tokens one after another
    int32_t token = i * kEight % operands.order.tokens;
    operands.keys[i] = as_f16(chunk.keys[i * kEight]) - token * chunk.k_dim + token;
    operands.values[i] = as_f16(chunk.values[i * kEight]) - token * chunk.v_dim + token * operands.order.width;
  }
  if (chunk.positions % kEight != 0 && operands.first < operands.end) mask_last_eight(chunk, room, operands);
  return operands;
}

// Rounds a query to float16 after bringing its largest value to [2^7, 2^8); returns the power of two that undoes it.
// From there nothing overflows, and what is lost is below 2^-11 of each value unless it is below 2^-21 of the largest.
float round_query(const float* q, int32_t dim, float16_t* out) {
  float32x4_t most[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int32_t i = 0; i < dim; i += 8) {
    most[0] = vmaxq_f32(most[0], vabsq_f32(vld1q_f32(q + i)));
    most[1] = vmaxq_f32(most[1], vabsq_f32(vld1q_f32(q + i + 4)));
  }
  uint32_t exponent = std::bit_cast<uint32_t>(vmaxvq_f32(vmaxq_f32(most[0], most[1]))) >> 23;
  float factor = 1, undo = 1;
  if (exponent >= 16 && exponent < 240) {
    factor = std::bit_cast<float>((127 + 134 - exponent) << 23);
    undo = std::bit_cast<float>((exponent + 127 - 134) << 23);
  }
  for (int32_t i = 0; i < dim; i += 4) vst1_f16(out + i, vcvt_f16_f32(vmulq_n_f32(vld1q_f32(q + i), factor)));
  return undo;
}

// ---- the product
// ------------------------------------------------------------------------------------------------------------

// A zero made by an instruction that costs nothing; g++ 12 copies one instead, which does.
inline float32x4_t zero() {
  float32x4_t x;
  asm volatile("movi %0.4s, #0" : "=w"(x));
  return x;
}

// sums[m][n] += vectors[m] lane * the n-th eight, for lanes from `lane` on. The next lane's eights lie `step` further.
template <int Queries, int Vectors, int lane = 0>
[[gnu::always_inline]] inline void add_lanes(const float16x8_t (&vectors)[Queries],
                                             const float16_t* const (&eights)[Vectors], int64_t step,
                                             float32x4_t (&sums)[Queries][Vectors * 2]) {
  if constexpr (lane < kEight) {
    asm volatile("" ::: "memory");  // g++ 12 would load for all lanes first, and has no registers for that
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) {
      float16x8_t x = vld1q_f16(eights[n] + lane * step);
#pragma GCC unroll 4
      for (int m = 0; m < Queries; ++m) {
        sums[m][2 * n] = widening_low<lane>(sums[m][2 * n], x, vectors[m]);
        sums[m][2 * n + 1] = widening_high<lane>(sums[m][2 * n + 1], x, vectors[m]);
      }
    }
    add_lanes<Queries, Vectors, lane + 1>(vectors, eights, step, sums);
  }
}

template <int Queries, int Vectors>
[[gnu::always_inline]] inline void clear(float32x4_t (&sums)[Queries][Vectors]) {
#pragma GCC unroll 32
  for (int i = 0; i < Queries * Vectors; ++i) sums[i / Vectors][i % Vectors] = zero();
}

// scores [Queries][8 * Eights].
template <int Queries, int Eights>
void score_eights(const float16_t* const* keys, int32_t tokens, const float16_t* q, int32_t dim, Ahead& ahead,
                  int32_t fetches, float* scores) {
  float32x4_t sums[Queries][Eights * 2];
  clear(sums);
  const float16_t* at[Eights];
#pragma GCC unroll 8
  for (int n = 0; n < Eights; ++n) at[n] = keys[n];
  for (int32_t i = 0; i < dim; i += kEight) {
    for (int32_t n = 0; n < fetches; ++n) ahead.fetch();
    float16x8_t vectors[Queries];
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) vectors[m] = vld1q_f16(q + m * dim + i);
    add_lanes<Queries, Eights>(vectors, at, tokens, sums);
#pragma GCC unroll 8
    for (int n = 0; n < Eights; ++n) at[n] += kEight * tokens;
  }
#pragma GCC unroll 4
  for (int m = 0; m < Queries; ++m) {
#pragma GCC unroll 16
    for (int n = 0; n < Eights * 2; ++n) vst1q_f32(scores + m * kAttendChunk + 4 * n, sums[m][n]);
  }
}

// sums [Queries] of dimensions [dim, dim + 8 * Vectors).
template <int Queries, int Vectors>
void weigh(const AttendChunk& chunk, const Operands& operands, const float16_t* weights, int32_t first, int32_t dim,
           int32_t fetches) {
  float32x4_t sums[Queries][Vectors * 2];
  clear(sums);
  int64_t places[Vectors];
#pragma GCC unroll 8
  for (int n = 0; n < Vectors; ++n) places[n] = operands.order.value(0, dim + n * kEight);
  for (int32_t j = operands.first; j < operands.end; ++j) {
    for (int32_t i = 0; i < fetches; ++i) chunk.ahead->fetch();
    const float16_t* at[Vectors];
#pragma GCC unroll 8
    for (int n = 0; n < Vectors; ++n) at[n] = operands.values[j] + places[n];
    float16x8_t vectors[Queries];
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) vectors[m] = vld1q_f16(weights + m * kAttendChunk + j * kEight);
    add_lanes<Queries, Vectors>(vectors, at, operands.order.width, sums);
  }
#pragma GCC unroll 4
  for (int m = 0; m < Queries; ++m) {
    float* out = chunk.sums + (first + m) * chunk.sums_stride + dim;
#pragma GCC unroll 16
    for (int n = 0; n < Vectors * 2; ++n) vst1q_f32(out + 4 * n, sums[m][n]);
  }
}

// ---- softmax
// ----------------------------------------------------------------------------------------------------------------

// A constant that an instruction adds to and overwrites comes from memory: loads are free here, copies are not.
inline float32x4_t reload(const float32x4_t& constant) {
  float32x4_t x;
  asm volatile("ldr %q0, %1" : "=w"(x) : "m"(constant));
  return x;
}

constexpr int32_t kWide = 32;  // scores at a time: their chains of instructions hide each other's latency

// 2^x for x <= 0 to 3e-6; exactly 0 from -127 down.
struct Exp2 {
  float32x4_t least = vdupq_n_f32(-127.0f);
  float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
  float32x4_t c[5] = {vdupq_n_f32(1.0f), vdupq_n_f32(6.93124195e-1f), vdupq_n_f32(2.40240988e-1f),
                      vdupq_n_f32(5.59064134e-2f), vdupq_n_f32(9.58283641e-3f)};

  template <int Count>
  [[gnu::always_inline]] void operator()(float32x4_t (&x)[Count]) const {
    float32x4_t shifted[Count], p[Count];
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) x[i] = vmaxq_f32(x[i], least);
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) shifted[i] = vaddq_f32(x[i], magic);
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) x[i] = vsubq_f32(x[i], vsubq_f32(shifted[i], magic));
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) p[i] = vfmaq_f32(reload(c[3]), x[i], c[4]);
#pragma GCC unroll 3
    for (int k = 2; k >= 0; --k) {
#pragma GCC unroll 8
      for (int i = 0; i < Count; ++i) p[i] = vfmaq_f32(reload(c[k]), x[i], p[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) {
      int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23);
      x[i] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p[i]), power));
    }
  }
};

// Weights of one query from its scores, both [columns], a multiple of kWide.
void exponentials(const AttendChunk& chunk, int32_t query, int32_t columns, Scores of, const float* scores,
                  float16_t* weights) {
  constexpr float kLog2e = 1.44269504f;
  constexpr int kVectors = kWide / 4;
  const Exp2 exp2;
  const float32x4_t factor = vdupq_n_f32(of.factor * kLog2e);
  const float32x4_t offset = vdupq_n_f32(of.most == kNothing ? 0.0f : -of.most * kLog2e);
  float32x4_t sum = vdupq_n_f32(0);
  for (int32_t j = 0; j < columns; j += kWide) {
    float32x4_t x[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) x[i] = vfmaq_f32(reload(offset), vld1q_f32(scores + j + 4 * i), factor);
    exp2(x);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; i += 2)
      vst1q_f16(weights + j + 4 * i, vcvt_high_f16_f32(vcvt_f16_f32(x[i]), x[i + 1]));
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sum = vaddq_f32(sum, x[i]);
  }
  chunk.most[query] = of.most;
  chunk.total[query] = vaddvq_f32(sum);
}

// ---- one chunk
// --------------------------------------------------------------------------------------------------------------

// Calls f(first query, number of queries as a constant): four at a time; the last six and five as threes and a two, so
// that there are always enough sums under way.
template <class F>
void each_tile(int32_t queries, F f) {
  for (int32_t first = 0; first < queries;) {
    int32_t left = queries - first;
    if (left == 4 || left > 6) {
      f(first, std::integral_constant<int, 4>());
      first += 4;
    } else if (left >= 3) {
      f(first, std::integral_constant<int, 3>());
      first += 3;
    } else if (left == 2) {
      f(first, std::integral_constant<int, 2>());
      first += 2;
    } else {
      f(first, std::integral_constant<int, 1>());
      first += 1;
    }
  }
}

// Sixteen sums or more under way, and no more than there are registers.
constexpr int32_t eights_at_once(int queries) { return queries == 4 ? 2 : 4; }
constexpr int32_t dims_at_once(int queries) { return kEight * (queries == 1 ? 8 : queries == 4 ? 2 : 4); }

template <int Queries>
void score_tile(const AttendChunk& chunk, const Operands& operands, const Scratch& room, int32_t first,
                int32_t fetches) {
  constexpr int kAtOnce = eights_at_once(Queries);
  float units[Queries];
  for (int m = 0; m < Queries; ++m)
    units[m] = round_query(chunk.q[first + m], chunk.k_dim, room.queries + m * chunk.k_dim);
  auto score = [&](int32_t j, auto eights) {
    score_eights<Queries, decltype(eights)::value>(operands.keys + j, operands.order.tokens, room.queries, chunk.k_dim,
                                                   *chunk.ahead, fetches, room.scores + j * kEight);
  };
  int32_t j = operands.first;
  for (; j + kAtOnce <= operands.end; j += kAtOnce) score(j, std::integral_constant<int, kAtOnce>());
  for (; j < operands.end; ++j) score(j, std::integral_constant<int, 1>());
  int32_t columns = (operands.end * kEight + kWide - 1) / kWide * kWide;
  Scores of[Queries];
  for (int m = 0; m < Queries; ++m)
    of[m] = finish_scores(chunk, first + m, columns, room.scores + m * kAttendChunk, units[m]);
  for (int m = 0; m < Queries; ++m) {
    exponentials(chunk, first + m, columns, of[m], room.scores + m * kAttendChunk,
                 room.weights + (first + m) * kAttendChunk);
  }
}

template <int Queries>
void weigh_tile(const AttendChunk& chunk, const Operands& operands, const Scratch& room, int32_t first,
                int32_t fetches) {
  constexpr int kVectors = dims_at_once(Queries) / kEight;
  const float16_t* weights = room.weights + first * kAttendChunk;
  int32_t dim = 0;
  for (; dim + kVectors * kEight <= chunk.v_dim; dim += kVectors * kEight)
    weigh<Queries, kVectors>(chunk, operands, weights, first, dim, fetches);
  for (; dim < chunk.v_dim; dim += kEight) weigh<Queries, 1>(chunk, operands, weights, first, dim, fetches);
}

void attend(const AttendChunk& chunk) {
  if (!whole_vectors(*chunk.kv, chunk.v_dim)) return neon_attend_f16(chunk);
  Scratch room(chunk.scratch);
  Operands operands = find_operands(chunk, room);
  // What comes next is asked for evenly, a little in every turn of the innermost loops.
  int64_t turns = 0;
  each_tile(chunk.queries, [&](int32_t, auto count) {
    turns += (operands.end - operands.first) / eights_at_once(count) * (chunk.k_dim / kEight);
    turns += (operands.end - operands.first) * (chunk.v_dim / dims_at_once(count));
  });
  int32_t fetches = static_cast<int32_t>((chunk.ahead->count + turns - 1) / std::max<int64_t>(1, turns));
  each_tile(chunk.queries, [&](int32_t first, auto count) {
    score_tile<decltype(count)::value>(chunk, operands, room, first, fetches);
  });
  each_tile(chunk.queries, [&](int32_t first, auto count) {
    weigh_tile<decltype(count)::value>(chunk, operands, room, first, fetches);
  });
}

}  // namespace

void add_i8mm_attend_f16(Kernels& kernels) {
  kernels.store[static_cast<size_t>(Activations::fast)][kKvF16] = store_kv;
  kernels.attend[static_cast<size_t>(Activations::fast)][kKvF16] = attend;
  kernels.attend_by_blocks[static_cast<size_t>(Activations::fast)][kKvF16] = true;
}

}  // namespace millrace::cpu

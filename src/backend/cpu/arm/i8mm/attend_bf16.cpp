// Attention over a bfloat16 cache with BFMMLA: queries and softmax weights are rounded to bfloat16, sums stay float32.
// A product takes two queries, two keys and four dimensions; then two queries, four positions and two dimensions of the
// values. Every score takes its dimensions in ascending order and every sum its positions in ascending fours, aligned
// to the chunk, whichever way the operands got there: straight from the cache (few queries: it is read once anyway) or
// packed first (many queries).
#include <algorithm>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kStep = 4;        // dimensions or positions of a product
constexpr int32_t kBlockKeys = 8;   // four pairs
constexpr int32_t kFewQueries = 4;  // up to here the cache is read in place

int32_t up_to(int32_t value, int32_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bfloat16x8_t load_bf16(const std::byte* at) { return vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at)); }
uint64x2_t load_u64(const std::byte* at) {
  return vreinterpretq_u64_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(at)));
}
bfloat16x8_t as_bf16(uint64x2_t x) { return vreinterpretq_bf16_u64(x); }
bfloat16x8_t as_bf16(uint32x4_t x) { return vreinterpretq_bf16_u32(x); }
void store_bf16(std::byte* at, bfloat16x8_t x) { vst1q_bf16(reinterpret_cast<bfloat16_t*>(at), x); }
void store_bf16(std::byte* at, bfloat16x4_t x) { vst1_bf16(reinterpret_cast<bfloat16_t*>(at), x); }

alignas(64) constexpr std::byte kZeros[kHeadDim * 2] = {};

// Room of the kernel in the worker's scratch.
struct Room {
  explicit Room(std::byte* scratch)
      : queries(scratch),
        weights(queries + kAttendQueries * kHeadDim * 2),
        scores(reinterpret_cast<float*>(weights + kAttendQueries * kAttendChunk * 2)),
        packed(reinterpret_cast<std::byte*>(scores + kAttendQueries * kAttendChunk)) {}
  std::byte* queries;  // per block of queries: [steps][pairs][2][4]
  std::byte* weights;  // per block of queries: [positions / 4][pairs][2][4]
  float* scores;       // [queries][kAttendChunk]
  std::byte* packed;   // keys or values
  static constexpr int64_t kBytes =
      kAttendQueries * kHeadDim * 2 + kAttendQueries * kAttendChunk * 6 + kAttendChunk * kHeadDim * 2;
};
static_assert(Room::kBytes <= kWorkerBytes / 2);

// Queries come in blocks of up to eight, four pairs; a block of fewer has one or two pairs.
int32_t pairs_of(int32_t queries) { return queries > 4 ? 4 : queries > 2 ? 2 : 1; }

void pack_queries(const AttendChunk& chunk, int32_t first, int32_t count, int32_t pairs, std::byte* out) {
  int32_t steps = up_to(chunk.k_dim, kStep) / kStep;
  for (int32_t i = 0; i < pairs * 2; ++i) {
    for (int32_t s = 0; s < steps; ++s) {
      bfloat16x4_t four = vreinterpret_bf16_u16(vdup_n_u16(0));
      if (i < count) four = vcvt_bf16_f32(load_some(chunk.q[first + i] + s * kStep, chunk.k_dim - s * kStep));
      store_bf16(out + (s * pairs * 2 + i) * 8, four);
    }
  }
}

// ---- where products find keys: two steps (eight dimensions) of a pair of keys at a time
// -------------------------------------

struct KeysInPlace {
  const std::byte* const* keys;
  void pair(int32_t block, int n, int32_t step, bfloat16x8_t (&out)[2]) const {
    const std::byte *a = keys[block * kBlockKeys + 2 * n], *b = keys[block * kBlockKeys + 2 * n + 1];
    uint64x2_t x = load_u64(a + step * 8), y = load_u64(b + step * 8);
    out[0] = as_bf16(vzip1q_u64(x, y));
    out[1] = as_bf16(vzip2q_u64(x, y));
  }
};

struct PackedKeys {  // per block: [steps][4 pairs][2][4]
  const std::byte* packed;
  int32_t steps;
  void pair(int32_t block, int n, int32_t step, bfloat16x8_t (&out)[2]) const {
    const std::byte* at = packed + ((block * steps + step) * 4 + n) * 16;
    out[0] = load_bf16(at);
    out[1] = load_bf16(at + 64);
  }
};

void pack_keys(const std::byte* const* keys, int32_t blocks, int32_t k_dim, int32_t steps, std::byte* out) {
  for (int32_t j = 0; j < blocks * kBlockKeys; ++j) {
    std::byte* to = out + j / kBlockKeys * steps * 64 + j % kBlockKeys * 8;
    for (int32_t s = 0; s < steps; ++s) {
      uint64_t four = 0;
      std::memcpy(&four, keys[j] + s * 8, static_cast<size_t>(std::clamp(k_dim - s * kStep, 0, kStep)) * 2);
      std::memcpy(to + s * 64, &four, 8);
    }
  }
}

// scores [2 * Pairs queries][8 keys of a block]. `steps` is even.
template <int Pairs, class Keys>
void score_block(const Keys& keys, int32_t block, const std::byte* queries, int32_t steps, float* scores) {
  float32x4_t sum[Pairs][4];
#pragma GCC unroll 16
  for (int i = 0; i < Pairs * 4; ++i) sum[i / 4][i % 4] = vdupq_n_f32(0);
  for (int32_t s = 0; s < steps; s += 2) {
    bfloat16x8_t q[2][Pairs];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * Pairs; ++i) q[i / Pairs][i % Pairs] = load_bf16(queries + (s * Pairs + i) * 16);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      bfloat16x8_t k[2];
      keys.pair(block, n, s, k);
#pragma GCC unroll 4
      for (int m = 0; m < Pairs; ++m) sum[m][n] = vbfmmlaq_f32(vbfmmlaq_f32(sum[m][n], q[0][m], k[0]), q[1][m], k[1]);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) {
#pragma GCC unroll 2
    for (int n = 0; n < 4; n += 2) {
      float64x2_t a = vreinterpretq_f64_f32(sum[m][n]), b = vreinterpretq_f64_f32(sum[m][n + 1]);
      vst1q_f32(scores + 2 * m * kAttendChunk + block * kBlockKeys + 2 * n, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
      vst1q_f32(scores + (2 * m + 1) * kAttendChunk + block * kBlockKeys + 2 * n,
                vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
  }
}

// ---- where products find values: four positions of eight dimensions at a time
// -----------------------------------------------

struct ValuesInPlace {
  const std::byte* const* values;
  void four(int32_t position, int32_t dim, bfloat16x8_t (&out)[4]) const {
    uint16x8_t r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = vld1q_u16(reinterpret_cast<const uint16_t*>(values[position + i] + dim * 2));
    uint32x4_t a = vreinterpretq_u32_u16(vzip1q_u16(r[0], r[1])), b = vreinterpretq_u32_u16(vzip1q_u16(r[2], r[3]));
    uint32x4_t c = vreinterpretq_u32_u16(vzip2q_u16(r[0], r[1])), d = vreinterpretq_u32_u16(vzip2q_u16(r[2], r[3]));
    out[0] = as_bf16(vzip1q_u32(a, b));
    out[1] = as_bf16(vzip2q_u32(a, b));
    out[2] = as_bf16(vzip1q_u32(c, d));
    out[3] = as_bf16(vzip2q_u32(c, d));
  }
};

struct PackedValues {  // per eight dimensions: [positions / 4][4 pairs][2][4]
  const std::byte* packed;
  int32_t fours;
  void four(int32_t position, int32_t dim, bfloat16x8_t (&out)[4]) const {
    const std::byte* at = packed + (dim / 8 * fours + position / 4) * 64;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) out[i] = load_bf16(at + 16 * i);
  }
};

void pack_values(const std::byte* const* values, int32_t positions, int32_t v_dim, std::byte* out) {
  for (int32_t dim = 0; dim < v_dim; dim += 8) {
    for (int32_t p = 0; p < positions; p += 4, out += 64) {
      alignas(16) std::byte rows[4][16] = {};
      const std::byte* at[4];
      for (int i = 0; i < 4; ++i) {
        at[i] = values[p + i] + dim * 2;
        if (dim + 8 > v_dim)
          at[i] = static_cast<std::byte*>(std::memcpy(rows[i], at[i], static_cast<size_t>(v_dim - dim) * 2));
      }
      bfloat16x8_t four[4];
      ValuesInPlace{at}.four(0, 0, four);
      for (int i = 0; i < 4; ++i) store_bf16(out + 16 * i, four[i]);
    }
  }
}

// sums of 2 * Pairs queries for dimensions [dim, dim + 8).
template <int Pairs, class Values>
void weigh_block(const Values& values, const std::byte* weights, int32_t positions, int32_t dim,
                 float32x4_t (&sum)[Pairs][4]) {
#pragma GCC unroll 16
  for (int i = 0; i < Pairs * 4; ++i) sum[i / 4][i % 4] = vdupq_n_f32(0);
  for (int32_t p = 0; p < positions; p += 4, weights += Pairs * 16) {
    bfloat16x8_t v[4];
    values.four(p, dim, v);
#pragma GCC unroll 4
    for (int m = 0; m < Pairs; ++m) {
      bfloat16x8_t w = load_bf16(weights + 16 * m);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) sum[m][n] = vbfmmlaq_f32(sum[m][n], w, v[n]);
    }
  }
}

template <int Pairs, class Values>
void weigh(const AttendChunk& chunk, const Values& values, const std::byte* weights, int32_t positions, int32_t first,
           int32_t count) {
  for (int32_t dim = 0; dim < chunk.v_dim; dim += 8) {
    float32x4_t sum[Pairs][4];
    weigh_block<Pairs>(values, weights, positions, dim, sum);
    float rows[2 * Pairs][8];
#pragma GCC unroll 16
    for (int i = 0; i < Pairs * 4; ++i) {
      vst1_f32(rows[i / 4 * 2] + i % 4 * 2, vget_low_f32(sum[i / 4][i % 4]));
      vst1_f32(rows[i / 4 * 2 + 1] + i % 4 * 2, vget_high_f32(sum[i / 4][i % 4]));
    }
    for (int32_t i = 0; i < count; ++i) {
      std::copy_n(rows[i], std::min(8, chunk.v_dim - dim), chunk.sums + (first + i) * chunk.sums_stride + dim);
    }
  }
}

// ---- softmax
// ----------------------------------------------------------------------------------------------------------------

// 2^x for x <= 0 to 1e-4, far below what bfloat16 keeps; exactly 0 from -127 down.
float32x4_t exp2_rough(float32x4_t x) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
  x = vmaxq_f32(x, vdupq_n_f32(-127.0f));
  float32x4_t shifted = vaddq_f32(x, magic);
  float32x4_t r = vsubq_f32(x, vsubq_f32(shifted, magic));
  float32x4_t p = vfmaq_f32(vdupq_n_f32(0.24221063f), r, vdupq_n_f32(0.05500869f));
  p = vfmaq_f32(vdupq_n_f32(0.69328292f), r, p);
  p = vfmaq_f32(vdupq_n_f32(1.0f), r, p);
  int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23));
  return vreinterpretq_f32_s32(bits);
}

// A query's scores become weights in bfloat16, one half of a pair.
void softmax(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, std::byte* weights,
             int32_t pairs) {
  constexpr float kLog2e = 1.44269504f;
  float most = finish_scores(chunk, query, columns, scores);
  chunk.most[query] = most;
  float offset = chunk.begin[query] < chunk.end[query] ? -most * kLog2e : 0.0f;
  for (int32_t j = 0; j < columns; j += 4, weights += pairs * 16) {
    store_bf16(weights, vcvt_bf16_f32(exp2_rough(vfmaq_n_f32(vdupq_n_f32(offset), vld1q_f32(scores + j), kLog2e))));
  }
}

// Sums of the weights as they were rounded.
template <int Pairs>
void total_weights(const AttendChunk& chunk, const std::byte* weights, int32_t positions, int32_t first,
                   int32_t count) {
  // g++ 12 makes a float16 1.0 of a constant bfloat16 1.0; it must not know that this is one.
  uint16_t one = 0x3f80;
  asm("" : "+r"(one));
  const bfloat16x8_t ones = vreinterpretq_bf16_u16(vdupq_n_u16(one));
  float32x4_t sum[Pairs];
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) sum[m] = vdupq_n_f32(0);
  for (int32_t p = 0; p < positions; p += 4, weights += Pairs * 16) {
#pragma GCC unroll 4
    for (int m = 0; m < Pairs; ++m) sum[m] = vbfmmlaq_f32(sum[m], load_bf16(weights + 16 * m), ones);
  }
  float totals[2 * Pairs];
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) {
    totals[2 * m] = vgetq_lane_f32(sum[m], 0);
    totals[2 * m + 1] = vgetq_lane_f32(sum[m], 2);
  }
  std::copy_n(totals, count, chunk.total + first);
}

// ---- one chunk
// --------------------------------------------------------------------------------------------------------------

template <int Pairs, class Keys>
void score_queries(const AttendChunk& chunk, const Keys& keys, const Room& room, int32_t first, int32_t count,
                   int32_t blocks) {
  int32_t steps = up_to(chunk.k_dim, 2 * kStep) / kStep;
  std::byte* weights = room.weights + first * kAttendChunk * 2;
  float* scores = room.scores + first * kAttendChunk;
  for (int32_t block = 0; block < blocks; ++block) score_block<Pairs>(keys, block, room.queries, steps, scores);
  for (int32_t i = 0; i < 2 * Pairs; ++i) {
    std::byte* half = weights + i * 8;
    if (i < count) {
      softmax(chunk, first + i, blocks * kBlockKeys, scores + i * kAttendChunk, half, Pairs);
    } else {
      for (int32_t j = 0; j < blocks * kBlockKeys; j += 4) std::memset(half + j / 4 * Pairs * 16, 0, 8);
    }
  }
  total_weights<Pairs>(chunk, weights, blocks * kBlockKeys, first, count);
}

// Calls f(first query, count, pairs as a constant) for every block of queries.
template <class F>
void each_block(int32_t queries, F f) {
  for (int32_t first = 0; first < queries; first += 8) {
    int32_t count = std::min(8, queries - first);
    switch (pairs_of(count)) {
      case 1:
        f(first, count, std::integral_constant<int, 1>());
        break;
      case 2:
        f(first, count, std::integral_constant<int, 2>());
        break;
      default:
        f(first, count, std::integral_constant<int, 4>());
        break;
    }
  }
}

void attend(const AttendChunk& chunk) {
  Room room(chunk.scratch);
  const std::byte *keys[kAttendChunk], *values[kAttendChunk];
  int32_t blocks = up_to(chunk.positions, kBlockKeys) / kBlockKeys, columns = blocks * kBlockKeys;
  for (int32_t j = 0; j < columns; ++j) {
    bool seen = j < chunk.positions && chunk.keys[j] != nullptr;
    keys[j] = seen ? chunk.keys[j] : kZeros;
    values[j] = seen ? chunk.values[j] : kZeros;
  }
  bool in_place = chunk.queries <= kFewQueries && chunk.k_dim % 8 == 0 && chunk.v_dim % 8 == 0;
  int32_t steps = up_to(chunk.k_dim, 2 * kStep) / kStep;
  if (!in_place) pack_keys(keys, blocks, chunk.k_dim, steps, room.packed);
  each_block(chunk.queries, [&](int32_t first, int32_t count, auto pairs) {
    constexpr int kPairs = decltype(pairs)::value;
    std::memset(room.queries, 0, static_cast<size_t>(steps * kPairs * 16));
    pack_queries(chunk, first, count, kPairs, room.queries);
    if (in_place) {
      score_queries<kPairs>(chunk, KeysInPlace{keys}, room, first, count, blocks);
    } else {
      score_queries<kPairs>(chunk, PackedKeys{room.packed, steps}, room, first, count, blocks);
    }
  });
  if (!in_place) pack_values(values, columns, chunk.v_dim, room.packed);
  each_block(chunk.queries, [&](int32_t first, int32_t count, auto pairs) {
    constexpr int kPairs = decltype(pairs)::value;
    const std::byte* weights = room.weights + first * kAttendChunk * 2;
    if (in_place) {
      weigh<kPairs>(chunk, ValuesInPlace{values}, weights, columns, first, count);
    } else {
      weigh<kPairs>(chunk, PackedValues{room.packed, columns / 4}, weights, columns, first, count);
    }
  });
}

}  // namespace

void add_i8mm_attend_bf16(Kernels& kernels) {
  kernels.attend[static_cast<size_t>(Activations::fast)][kKvBf16] = attend;
}

}  // namespace millrace::cpu

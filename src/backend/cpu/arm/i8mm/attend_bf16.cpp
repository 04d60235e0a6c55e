// Attention over a bfloat16 cache with BFMMLA: queries and softmax weights are rounded to bfloat16, sums stay float32.
// A product takes two queries, two keys and four dimensions; then two queries, four positions and two dimensions of the
// values. Every score takes its dimensions in ascending order and every sum its positions in ascending fours, aligned
// to the chunk.
//
// Pages keep tokens the way products take them, if their shape allows: keys of eight tokens as [dimensions / 4][8
// tokens][4], values of up to 32 tokens as [dimensions / 16][tokens / 4][8][2 dimensions][4 tokens]. Then a chunk is
// read once, in the order it lies.
// Other shapes are kept token after token and brought into that order in scratch; the bits are the same.
#include <algorithm>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/i8mm/attend_bf16.h"
#include "backend/cpu/arm/i8mm/attend_eight.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kMany = 16;  // queries for which a chunk is brought into order

int32_t up_to(int32_t value, int32_t multiple) { return (value + multiple - 1) / multiple * multiple; }

void store_kv(const KvPlace& place, const float* k, const float* v) {
  const KvView& kv = *place.kv;
  if (!interleaved(kv)) {
    format(DType::bf16).from_float(k, place.keys + place.within * kv.k_dim * 2, kv.k_dim);
    format(DType::bf16).from_float(v, place.values + place.within * kv.v_dim * 2, kv.v_dim);
    return;
  }
  std::byte* keys = place.keys + place.within / kBlockKeys * kBlockKeys * kv.k_dim * 2 + place.within % kBlockKeys * 8;
  for (int32_t i = 0; i < kv.k_dim; i += kStep) store_bf16(keys + i * 16, vcvt_bf16_f32(vld1q_f32(k + i)));
  const Order order = order_of(kv);
  int64_t token = place.within % order.tokens;
  std::byte* values =
      place.values + (place.within - token) * kv.v_dim * 2 + token / kStep * order.four() + token % kStep * 2;
  for (int32_t i = 0; i < kv.v_dim; i += kStep) {
    uint16x4_t four = vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(v + i)));
    uint16_t* to = reinterpret_cast<uint16_t*>(values + order.dimension(i));
    vst1_lane_u16(to, four, 0);
    vst1_lane_u16(to + 4, four, 1);
    vst1_lane_u16(to + 8, four, 2);
    vst1_lane_u16(to + 12, four, 3);
  }
}

// Scratch of the kernel in the worker's scratch.
struct Scratch {
  explicit Scratch(std::byte* scratch)
      : queries(scratch),
        weights(queries + 8 * kHeadDim * 2),
        scores(reinterpret_cast<float*>(weights + 8 * kAttendChunk * 2)),
        keys(reinterpret_cast<std::byte*>(scores + 8 * kAttendChunk)),
        values(keys + kAttendChunk * kHeadDim * 2) {}
  std::byte* queries;  // of one block: [steps][pairs][2][4]
  std::byte* weights;  // of one block: [positions / 4][pairs][2][4]
  float* scores;       // of one block: [queries][kAttendChunk]; a little of what follows is read too (attend_eight.h)
  std::byte* keys;     // where the cache does not keep them so
  std::byte* values;
  static constexpr int64_t kBytes =
      8 * kHeadDim * 2 + 8 * kAttendChunk * 2 + 8 * kAttendChunk * 4 + 2 * kAttendChunk * kHeadDim * 2;
};
static_assert(Scratch::kBytes <= kWorkerBytes / 2);

// Where products find their operands.
struct Operands {
  const std::byte* keys[kAttendChunk / kBlockKeys];  // of eight positions: [steps][4 pairs][2][4]
  const std::byte* values[kAttendChunk / kStep];     // of four positions, dimension 0
  Order order;
  int32_t blocks, fours;
  int32_t steps;  // of a key, even
};

// ---- bringing a plain cache into order
// --------------------------------------------------------------------------------------

void arrange_keys(const AttendChunk& chunk, int32_t steps, std::byte* out, Operands& operands) {
  for (int32_t block = 0; block < operands.blocks; ++block) {
    std::byte* to = out + block * steps * 64;
    operands.keys[block] = to;
    std::memset(to, 0, static_cast<size_t>(steps) * 64);
    for (int32_t i = 0; i < kBlockKeys; ++i) {
      int32_t j = block * kBlockKeys + i;
      if (j >= chunk.positions || chunk.keys[j] == nullptr) continue;
      for (int32_t s = 0; s * kStep < chunk.k_dim; ++s) {
        size_t count = static_cast<size_t>(std::min(kStep, chunk.k_dim - s * kStep));
        std::memcpy(to + s * 64 + i * 8, chunk.keys[j] + s * 8, count * 2);
      }
    }
  }
}

void arrange_values(const AttendChunk& chunk, std::byte* out, Operands& operands) {
  int32_t dims = up_to(chunk.v_dim, 8);
  for (int32_t four = 0; four < operands.fours; ++four, out += dims * 8) {
    operands.values[four] = out;
    std::memset(out, 0, static_cast<size_t>(dims) * 8);
    for (int32_t i = 0; i < kStep; ++i) {
      int32_t j = four * kStep + i;
      if (j >= chunk.positions || chunk.values[j] == nullptr) continue;
      for (int32_t d = 0; d < chunk.v_dim; ++d) std::memcpy(out + d * 8 + i * 2, chunk.values[j] + d * 2, 2);
    }
  }
}

// The last four positions with those that were never written, or are not of this chunk, made zero: a weight of zero
// would not save a sum from what happens to lie there.
void mask_last_four(const AttendChunk& chunk, std::byte* out, Operands& operands) {
  int32_t last = operands.fours - 1;
  uint64_t mask = ~uint64_t{0} >> (16 * (operands.fours * kStep - chunk.positions));
  const std::byte* from = operands.values[last];
  for (int32_t d = 0; d < chunk.v_dim; ++d) {
    uint64_t four;
    std::memcpy(&four, from + operands.order.dimension(d), 8);
    four &= mask;
    std::memcpy(out + operands.order.dimension(d), &four, 8);
  }
  operands.values[last] = out;
}

// A chunk that many queries meet, line after line in the order they meet them. Pages lie apart by what may be a
// multiple of a power of two, and then the first cache has no room for all of them.
void gather(const AttendChunk& chunk, const Scratch& room, Operands& operands) {
  const int64_t key_bytes = int64_t{operands.steps} * 64;
  std::byte* to = room.keys;
  for (int32_t i = 0; i < operands.blocks; ++i, to += key_bytes) {
    std::memcpy(to, operands.keys[i], static_cast<size_t>(key_bytes));
    operands.keys[i] = to;
  }
  const Order order{operands.fours * kStep, 8};
  for (int32_t i = 0; i < operands.fours; ++i) {
    to = room.values + i * order.four();
    for (int32_t d = 0; d < chunk.v_dim; d += 8)
      std::memcpy(to + order.dimension(d), operands.values[i] + operands.order.dimension(d), 64);
    operands.values[i] = to;
  }
  operands.order = order;
}

Operands find_operands(const AttendChunk& chunk, const Scratch& room) {
  Operands operands;
  operands.blocks = up_to(chunk.positions, kBlockKeys) / kBlockKeys;
  operands.fours = up_to(chunk.positions, kStep) / kStep;
  operands.steps = up_to(chunk.k_dim, 8) / kStep;
  if (!interleaved(*chunk.kv)) {
    arrange_keys(chunk, operands.steps, room.keys, operands);
    arrange_values(chunk, room.values, operands);
    return operands;
  }
  // What nobody sees at the front of the chunk is read from where the seen begins: any numbers will do, their weight is
  // zero.
  int32_t seen = 0;
  while (chunk.keys[seen] == nullptr) seen += kBlockKeys;
  for (int32_t i = 0; i < operands.blocks; ++i) operands.keys[i] = chunk.keys[std::max(seen, i * kBlockKeys)];
  operands.order = order_of(*chunk.kv);
  const int32_t mask = operands.order.tokens - 1;  // tokens together are a power of two
  const int64_t four = operands.order.four(), token = int64_t{chunk.v_dim} * 2;
  for (int32_t i = 0; i < operands.fours; i += 2) {  // pointers are to tokens one after another
    int32_t eight = std::max(seen, i * kStep), together = eight & mask;
    operands.values[i] = chunk.values[eight] - together * token + together / kStep * four;
    operands.values[i + 1] = operands.values[i] + (i * kStep >= seen ? four : 0);
  }
  const bool many = chunk.queries >= kMany;
  if (many) gather(chunk, room, operands);
  const int64_t last = many ? (operands.fours - 1) * operands.order.four() : 0;
  if (chunk.positions % kStep != 0) mask_last_four(chunk, room.values + last, operands);
  return operands;
}

// ---- scores
// -----------------------------------------------------------------------------------------------------------------

// Queries come in blocks of up to eight, four pairs; a block of fewer has one or two pairs.
void arrange_queries(const AttendChunk& chunk, int32_t first, int32_t count, int32_t pairs, int32_t steps,
                     std::byte* out) {
  const bfloat16x4_t none = vreinterpret_bf16_u16(vdup_n_u16(0));
  const int64_t apart = int64_t{pairs} * 16;  // from step to step
  const int32_t whole = chunk.k_dim / kStep;
  for (int32_t i = 0; i < pairs * 2; ++i) {
    std::byte* to = out + i * 8;
    int32_t s = 0;
    if (i < count) {
      const float* q = chunk.q[first + i];
      for (; s + 2 <= whole; s += 2, to += 2 * apart) {
        store_bf16(to, vcvt_bf16_f32(vld1q_f32(q + s * kStep)));
        store_bf16(to + apart, vcvt_bf16_f32(vld1q_f32(q + (s + 1) * kStep)));
      }
      for (; s * kStep < chunk.k_dim; ++s, to += apart)
        store_bf16(to, vcvt_bf16_f32(load_some(q + s * kStep, chunk.k_dim - s * kStep)));
    }
    for (; s < steps; ++s, to += apart) store_bf16(to, none);
  }
}

// scores [2 * Pairs queries][8 * Blocks keys].
template <int Pairs, int Blocks>
void score_blocks(const std::byte* const* keys, const std::byte* queries, int32_t steps, Ahead& ahead, float* scores) {
  const std::byte* at[Blocks];
  for (int b = 0; b < Blocks; ++b) at[b] = keys[b];
  float32x4_t sum[Pairs][4 * Blocks];
#pragma GCC unroll 16
  for (int i = 0; i < Pairs * 4 * Blocks; ++i) sum[i / (4 * Blocks)][i % (4 * Blocks)] = vdupq_n_f32(0);
  for (int32_t s = 0; s < steps; ++s, queries += Pairs * 16) {
    if (s % 4 == 0) ahead.fetch();
    bfloat16x8_t q[Pairs];
#pragma GCC unroll 4
    for (int m = 0; m < Pairs; ++m) q[m] = load_bf16(queries + m * 16);
#pragma GCC unroll 8
    for (int n = 0; n < 4 * Blocks; ++n) {
      bfloat16x8_t k = load_bf16(at[n / 4] + s * 64 + n % 4 * 16);
#pragma GCC unroll 4
      for (int m = 0; m < Pairs; ++m) sum[m][n] = vbfmmlaq_f32(sum[m][n], q[m], k);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < 4 * Blocks; n += 2) {
      float64x2_t a = vreinterpretq_f64_f32(sum[m][n]), b = vreinterpretq_f64_f32(sum[m][n + 1]);
      vst1q_f32(scores + 2 * m * kAttendChunk + 2 * n, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
      vst1q_f32(scores + (2 * m + 1) * kAttendChunk + 2 * n, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
  }
}

// The next 4 * Vectors scores.
template <int Pairs, int Vectors>
[[gnu::always_inline]] inline void weights_of(const Exp2Constants& constants, const float* scores, float factor,
                                              const float32x4_t& offset, std::byte* weights) {
  float32x4_t x[Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Vectors; ++i) x[i] = vfmaq_n_f32(again(offset), vld1q_f32(scores + 4 * i), factor);
  exp2_rough(constants, x);
#pragma GCC unroll 8
  for (int i = 0; i < Vectors; ++i) store_bf16(weights + i * Pairs * 16, vcvt_bf16_f32(x[i]));
}

// A query's scores become weights in bfloat16, one half of a pair.
template <int Pairs>
void softmax(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, std::byte* weights) {
  Scores of = finish_scores(chunk, query, columns, scores);
  chunk.most[query] = of.most;
  float factor = of.factor * kLog2e;
  const Exp2Constants constants;
  float32x4_t offset = vdupq_n_f32(of.most == kNothing ? 0.0f : -of.most * kLog2e);
  int32_t j = 0;
  for (; j + 32 <= columns; j += 32)
    weights_of<Pairs, 8>(constants, scores + j, factor, offset, weights + j * Pairs * 4);
  for (; j < columns; j += 8) weights_of<Pairs, 2>(constants, scores + j, factor, offset, weights + j * Pairs * 4);
}

// ---- values
// -----------------------------------------------------------------------------------------------------------------

// Sums of the weights as they were rounded.
template <int Pairs>
void total_weights(const AttendChunk& chunk, const std::byte* weights, int32_t fours, int32_t first, int32_t count) {
  const bfloat16x8_t ones = bf16_ones();
  float32x4_t sum[Pairs];
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) sum[m] = vdupq_n_f32(0);
  for (int32_t i = 0; i < fours; ++i, weights += Pairs * 16) {
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

// sums of 2 * Pairs queries, 8 * Eights dimensions from dim.
template <int Pairs, int Eights>
void weigh_dims(const AttendChunk& chunk, const Operands& operands, const std::byte* weights, int32_t first,
                int32_t count, int32_t dim) {
  constexpr int kVectors = 4 * Eights;
  int64_t place = operands.order.dimension(dim);
  float32x4_t sum[Pairs][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < Pairs * kVectors; ++i) sum[i / kVectors][i % kVectors] = vdupq_n_f32(0);
  for (int32_t i = 0; i < operands.fours; ++i, weights += Pairs * 16) {
    const std::byte* values = operands.values[i] + place;
    if (i % 4 == 0) chunk.ahead->fetch();
    bfloat16x8_t w[Pairs];
#pragma GCC unroll 4
    for (int m = 0; m < Pairs; ++m) w[m] = load_bf16(weights + 16 * m);
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; ++n) {
      bfloat16x8_t v = load_bf16(values + 16 * n);
#pragma GCC unroll 4
      for (int m = 0; m < Pairs; ++m) sum[m][n] = vbfmmlaq_f32(sum[m][n], w[m], v);
    }
  }
  alignas(16) float rows[2 * Pairs][8 * Eights];
#pragma GCC unroll 4
  for (int m = 0; m < Pairs; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < kVectors; n += 2) {
      float64x2_t a = vreinterpretq_f64_f32(sum[m][n]), b = vreinterpretq_f64_f32(sum[m][n + 1]);
      vst1q_f32(rows[2 * m] + 2 * n, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
      vst1q_f32(rows[2 * m + 1] + 2 * n, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
    }
  }
  for (int32_t i = 0; i < count; ++i) {
    float* out = chunk.sums + (first + i) * chunk.sums_stride + dim;
    if (dim + 8 * Eights > chunk.v_dim) {
      std::copy_n(rows[i], chunk.v_dim - dim, out);
      continue;
    }
#pragma GCC unroll 4
    for (int n = 0; n < 8 * Eights; n += 4) vst1q_f32(out + n, vld1q_f32(rows[i] + n));
  }
}

template <int Pairs>
void weigh(const AttendChunk& chunk, const Operands& operands, const std::byte* weights, int32_t first, int32_t count) {
  int32_t dim = 0;
  if constexpr (Pairs <= 2) {  // few queries: more dimensions at once
    for (; operands.order.width % 16 == 0 && dim + 16 <= chunk.v_dim; dim += 16)
      weigh_dims<Pairs, 2>(chunk, operands, weights, first, count, dim);
  }
  for (; dim < chunk.v_dim; dim += 8) weigh_dims<Pairs, 1>(chunk, operands, weights, first, count, dim);
}

// ---- one chunk
// --------------------------------------------------------------------------------------------------------------

template <int Pairs>
void score_queries(const AttendChunk& chunk, const Operands& operands, const Scratch& room, int32_t first,
                   int32_t count) {
  std::byte* weights = room.weights;
  arrange_queries(chunk, first, count, Pairs, operands.steps, room.queries);
  int32_t block = 0;
  if constexpr (Pairs <= 2) {  // few queries: more keys at once
    for (; block + 2 <= operands.blocks; block += 2) {
      score_blocks<Pairs, 2>(operands.keys + block, room.queries, operands.steps, *chunk.ahead,
                             room.scores + block * kBlockKeys);
    }
  }
  for (; block < operands.blocks; ++block) {
    score_blocks<Pairs, 1>(operands.keys + block, room.queries, operands.steps, *chunk.ahead,
                           room.scores + block * kBlockKeys);
  }
  for (int32_t i = 0; i < 2 * Pairs; ++i) {
    std::byte* half = weights + i * 8;
    if (i < count) {
      softmax<Pairs>(chunk, first + i, operands.blocks * kBlockKeys, room.scores + i * kAttendChunk, half);
    } else {
      for (int32_t j = 0; j < operands.fours; ++j) std::memset(half + j * Pairs * 16, 0, 8);
    }
  }
  total_weights<Pairs>(chunk, weights, operands.fours, first, count);
}

// Eight queries, the first of some that follow each other, take in a chunk: how is left in `merged`.
void merge_eight(const AttendChunk& chunk, int32_t first, Merged& merged) {
  for (int32_t four = 0; four < 8; four += 4) {
    float most[4], total[4];
    float* into = chunk.into + (first + four) * chunk.sums_stride;
    for (int32_t i = 0; i < 4; ++i) most[i] = into[i * chunk.sums_stride], total[i] = into[i * chunk.sums_stride + 1];
    Softmax fresh{vld1q_f32(chunk.most + first + four), vld1q_f32(chunk.total + first + four)};
    Softmax running{vld1q_f32(most), vld1q_f32(total)};
    float32x4_t keep, take;
    merge(fresh, running, keep, take);
    vst1q_f32(merged.keep + four, keep);
    vst1q_f32(merged.take + four, take);
    vst1q_f32(most, running.most);
    vst1q_f32(total, running.total);
    for (int32_t i = 0; i < 4; ++i) into[i * chunk.sums_stride] = most[i], into[i * chunk.sums_stride + 1] = total[i];
  }
}

// The largest of each of four queries' scores; columns a multiple of 8.
float32x4_t largest_of_four(const float* scores, int32_t columns) {
  float32x4_t most[4][2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) most[i / 2][i % 2] = vld1q_f32(scores + i / 2 * kAttendChunk + i % 2 * 4);
  for (int32_t j = 8; j < columns; j += 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      most[i / 2][i % 2] = vmaxq_f32(most[i / 2][i % 2], vld1q_f32(scores + i / 2 * kAttendChunk + j + i % 2 * 4));
  }
  float32x4_t of[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) of[i] = vmaxq_f32(most[i][0], most[i][1]);
  return vpmaxq_f32(vpmaxq_f32(of[0], of[1]), vpmaxq_f32(of[2], of[3]));
}

// Scores of eight queries become weights.
void weigh_eight(const AttendChunk& chunk, const Scratch& room, int32_t first, int32_t columns) {
  bool whole = is_plain(*chunk.attention);  // and all eight see all columns
  for (int32_t i = first; i < first + 8; ++i) whole = whole && chunk.begin[i] == 0 && chunk.end[i] >= columns;
  float factor = chunk.attention->scale;
  float* most = chunk.most + first;
  for (int32_t i = 0; i < 8; whole ? i += 4 : ++i) {
    float* scores = room.scores + i * kAttendChunk;
    if (whole) {
      vst1q_f32(most + i, vmulq_n_f32(largest_of_four(scores, columns), factor));
    } else {
      Scores of = finish_scores(chunk, first + i, columns, scores);
      most[i] = of.most, factor = of.factor;
    }
  }
  PairWeights weights;
  weights.factor = vdupq_n_f32(factor * kLog2e);
  for (int32_t i = 0; i < 8; i += 2) {
    for (int32_t n = 0; n < 2; ++n)
      weights.offset[n] = vdupq_n_f32(most[i + n] == kNothing ? 0.0f : -most[i + n] * kLog2e);
    float* scores = room.scores + i * kAttendChunk;
    weigh_pair(weights, scores, scores + kAttendChunk, columns, room.weights + i * 8);
  }
}

// Eight queries as products take them; dimensions a multiple of 8.
void arrange_eight(const AttendChunk& chunk, int32_t first, std::byte* out) {
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    const float *one = chunk.q[first + 2 * m], *other = chunk.q[first + 2 * m + 1];
    std::byte* to = out + m * 16;
    for (int32_t d = 0; d < chunk.k_dim; d += 8, to += 128) {
      bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(one + d)), high = vcvtq_low_bf16_f32(vld1q_f32(one + d + 4));
      low = vcvtq_high_bf16_f32(low, vld1q_f32(other + d)), high = vcvtq_high_bf16_f32(high, vld1q_f32(other + d + 4));
      vst1q_bf16(reinterpret_cast<bfloat16_t*>(to), low);
      vst1q_bf16(reinterpret_cast<bfloat16_t*>(to + 64), high);
    }
  }
}

// Eight queries against a gathered chunk.
template <bool merges>
void attend_eight(const AttendChunk& chunk, const Operands& operands, const Scratch& room, int32_t first) {
  arrange_eight(chunk, first, room.queries);
  for (int32_t i = 0; i < operands.blocks; ++i) {
    if (i < 8 && first + 8 + i < chunk.queries) {  // the queries after these
      for (int32_t d = 0; d < chunk.k_dim; d += 16) __builtin_prefetch(chunk.q[first + 8 + i] + d);
    }
    multiply_eight<false>(room.queries, operands.keys[i], operands.steps, nullptr, room.scores + i * kBlockKeys,
                          kAttendChunk);
    chunk.ahead->fetch();
  }
  weigh_eight(chunk, room, first, operands.blocks * kBlockKeys);
  total_weights<4>(chunk, room.weights, operands.fours, first, 8);
  Merged merged;
  if constexpr (merges) merge_eight(chunk, first, merged);
  float* sums = (merges ? chunk.into + 2 : chunk.sums) + first * chunk.sums_stride;
  for (int32_t dim = 0; dim < chunk.v_dim; dim += 8) {
    multiply_eight<merges>(room.weights, operands.values[0] + operands.order.dimension(dim), operands.fours, &merged,
                           sums + dim, chunk.sums_stride);
    chunk.ahead->fetch();
  }
}

// Calls f(first query, count, pairs as a constant) for every block of queries.
template <class F>
void each_block(int32_t queries, F f) {
  for (int32_t first = 0; first < queries; first += 8) {
    int32_t count = std::min(8, queries - first);
    if (count > 4) {
      f(first, count, std::integral_constant<int, 4>());
    } else if (count > 2) {
      f(first, count, std::integral_constant<int, 2>());
    } else {
      f(first, count, std::integral_constant<int, 1>());
    }
  }
}

void attend(const AttendChunk& chunk) {
  Scratch room(chunk.scratch);
  Operands operands = find_operands(chunk, room);
  const bool gathered = interleaved(*chunk.kv) && chunk.queries >= kMany;
  const bool merges = gathered && chunk.into != nullptr && chunk.queries % 8 == 0;
  *chunk.taken = merges;
  each_block(chunk.queries, [&](int32_t first, int32_t count, auto pairs) {
    if (merges) return attend_eight<true>(chunk, operands, room, first);
    if (gathered && count == 8) return attend_eight<false>(chunk, operands, room, first);
    score_queries<decltype(pairs)::value>(chunk, operands, room, first, count);
    weigh<decltype(pairs)::value>(chunk, operands, room.weights, first, count);
  });
}

}  // namespace

void add_i8mm_attend_bf16(Kernels& kernels) {
  kernels.store[static_cast<size_t>(Activations::fast)][kKvBf16] = store_kv;
  kernels.attend[static_cast<size_t>(Activations::fast)][kKvBf16] = attend;
  kernels.attend_by_blocks[static_cast<size_t>(Activations::fast)][kKvBf16] = true;
  kernels.attend_few[static_cast<size_t>(Activations::fast)][kKvBf16] = i8mm_attend_few_bf16;
  kernels.fastest_kv = DType::bf16;
}

}  // namespace millrace::cpu

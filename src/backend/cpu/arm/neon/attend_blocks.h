// Attention over a cache of 16 bits in float32 arithmetic, as products of blocks (f32_tile.h). Sixteen tokens are kept
// together: keys as [dimensions][16 tokens], values as [dimensions / 16][16 tokens][16]. A score takes its dimensions
// in ascending order, a sum of values its positions, one accumulator each. Up to seven queries read the cache itself;
// more have the chunk widened once for all of them. Pages that do not hold whole blocks are kept token after token and
// brought into that order in scratch; the bits are the same.
#pragma once

#include <algorithm>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/neon/f32_tile.h"
#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kTokens = static_cast<int32_t>(kBlock);  // of a block
constexpr int32_t kChunkBlocks = kAttendChunk / kTokens;
constexpr int32_t kFewQueries = 7;  // as many as are not worth widening for

inline bool has_blocks(const KvView& kv, int32_t v_dim) { return kv.k_dim % kTokens == 0 && v_dim % kTokens == 0; }
inline bool stores_blocks(const KvView& kv) {
  return kv.v_dim > 0 && has_blocks(kv, kv.v_dim) && kv.page_tokens % kTokens == 0;
}

template <Stored stored>
struct BlockAttention {
  // float16: half of each eight numbers come times 2^-112, see f32_linear.h; the other operand is times kUnit and then
  // sums need 2^56 and 2^-56.
  static constexpr bool kScaled = stored == Stored::f16;
  static constexpr float kUnit = kScaled ? 0x1p56f : 1.0f;

  static uint16x4_t narrow(float32x4_t x) {
    if constexpr (stored == Stored::f16) return vreinterpret_u16_f16(vcvt_f16_f32(x));
    // To the nearest, ties to even; NaN stays NaN.
    uint32x4_t bits = vreinterpretq_u32_f32(x);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, odd), vdupq_n_u32(0x7fff));
    uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16);
  }

  static void store(const KvPlace& place, const float* k, const float* v) {
    const KvView& kv = *place.kv;
    if (!stores_blocks(kv)) {
      format(kv.form.k).from_float(k, place.keys + place.within * kv.k_dim * 2, kv.k_dim);
      format(kv.form.k).from_float(v, place.values + place.within * kv.v_dim * 2, kv.v_dim);
      return;
    }
    uint16_t* keys = reinterpret_cast<uint16_t*>(place.keys);
    uint16_t* values = reinterpret_cast<uint16_t*>(place.values);
    const int64_t token = place.within % kTokens;
    keys += (place.within - token) * kv.k_dim + token;
    for (int32_t i = 0; i < kv.k_dim; i += 4, keys += 4 * kTokens) {
      uint16x4_t four = narrow(vld1q_f32(k + i));
      vst1_lane_u16(keys, four, 0);
      vst1_lane_u16(keys + kTokens, four, 1);
      vst1_lane_u16(keys + 2 * kTokens, four, 2);
      vst1_lane_u16(keys + 3 * kTokens, four, 3);
    }
    values += (place.within - token) * kv.v_dim + token * kTokens;
    for (int32_t i = 0; i < kv.v_dim; i += 4)
      vst1_u16(values + i / kTokens * kTokens * kTokens + i % kTokens, narrow(vld1q_f32(v + i)));
  }

  struct Scratch {
    explicit Scratch(std::byte* scratch)
        : wide(reinterpret_cast<float*>(scratch)),
          scores(wide + kAttendChunk * kHeadDim),
          queries(scores + (kAttendQueries + kTileRows) * kAttendChunk),
          sums(queries + kTileRows * kHeadDim),
          arranged(reinterpret_cast<uint16_t*>(sums + kTileRows * kHeadDim)) {}
    float* wide;         // keys or values of the chunk
    float* scores;       // [queries][kAttendChunk], then weights
    float* queries;      // of one tile
    float* sums;         // of one tile
    uint16_t* arranged;  // keys or values of the chunk where the cache does not keep blocks
    static constexpr int64_t kBytes =
        (kAttendChunk * kHeadDim + (kAttendQueries + kTileRows) * kAttendChunk + 2 * kTileRows * kHeadDim) * 4 +
        kAttendChunk * kHeadDim * 2;
  };
  static_assert(Scratch::kBytes <= kWorkerBytes / 2);

  // Blocks [first, end) of the chunk, of which somebody sees something.
  struct Blocks {
    const std::byte* at[kChunkBlocks + 1];  // and what is read after them
    int32_t first, end;
  };

  // Where a block lies; its first tokens may have no pointers, because nobody sees them.
  static const std::byte* find_block(const std::byte* const* tokens, int32_t block, int32_t dim) {
    for (int32_t i = 0;; i += kKvBlock) {
      const std::byte* token = tokens[block * kTokens + i];
      if (token != nullptr || i + kKvBlock >= kTokens) return token - i * dim * 2;
    }
  }

  // Eight numbers of each of eight tokens, none of which are zeros, to [8 dimensions][kTokens].
  static void turn_eight(const uint16_t* const* tokens, int32_t at, uint16_t* to) {
    uint16x8_t row[8], two[8];
    uint32x4_t four[8];
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t) row[t] = tokens[t] != nullptr ? vld1q_u16(tokens[t] + at) : vdupq_n_u16(0);
#pragma GCC unroll 4
    for (int t = 0; t < 8; t += 2) two[t] = vtrn1q_u16(row[t], row[t + 1]), two[t + 1] = vtrn2q_u16(row[t], row[t + 1]);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {  // tokens 0 to 3, then 4 to 7; dimensions even, then odd
      const int t = n / 2 * 4 + n % 2;
      const uint32x4_t a = vreinterpretq_u32_u16(two[t]), b = vreinterpretq_u32_u16(two[t + 2]);
      four[t] = vtrn1q_u32(a, b), four[t + 2] = vtrn2q_u32(a, b);
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {  // dimensions n and n + 4
      const uint64x2_t a = vreinterpretq_u64_u32(four[n]), b = vreinterpretq_u64_u32(four[n + 4]);
      vst1q_u16(to + n * kTokens, vreinterpretq_u16_u64(vtrn1q_u64(a, b)));
      vst1q_u16(to + (n + 4) * kTokens, vreinterpretq_u16_u64(vtrn2q_u64(a, b)));
    }
  }

  static void find_keys(const AttendChunk& chunk, const Scratch& room, Blocks& blocks) {
    if (stores_blocks(*chunk.kv)) {
      for (int32_t b = blocks.first; b < blocks.end; ++b) blocks.at[b] = find_block(chunk.keys, b, chunk.k_dim);
      blocks.at[blocks.end] = find_block(chunk.values, blocks.first, chunk.v_dim);
      return;
    }
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      uint16_t* to = room.arranged + b * kTokens * chunk.k_dim;
      blocks.at[b] = reinterpret_cast<const std::byte*>(to);
      const uint16_t* tokens[kTokens];
      for (int32_t t = 0; t < kTokens; ++t) {
        int32_t j = b * kTokens + t;
        tokens[t] = reinterpret_cast<const uint16_t*>(j < chunk.positions ? chunk.keys[j] : nullptr);
      }
      for (int32_t i = 0; i < chunk.k_dim; i += 8, to += 8 * kTokens) {
        turn_eight(tokens, i, to);
        turn_eight(tokens + 8, i, to + 8);
      }
    }
    blocks.at[blocks.end] = blocks.at[blocks.first];
  }

  // Values that were never written, or are not of this chunk, are made zero: a weight of zero would not save a sum from
  // what happens to lie there.
  static void find_values(const AttendChunk& chunk, const Scratch& room, Blocks& blocks) {
    const int32_t dim = chunk.v_dim;
    const bool stored_so = stores_blocks(*chunk.kv);
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      const int32_t there = std::min(kTokens, chunk.positions - b * kTokens);
      if (stored_so) blocks.at[b] = find_block(chunk.values, b, dim);
      if (stored_so && there == kTokens) continue;
      uint16_t* to = room.arranged + b * kTokens * dim;
      const uint16_t* block = reinterpret_cast<const uint16_t*>(blocks.at[b]);
      for (int32_t t = 0; t < kTokens; ++t) {
        const std::byte* token = t < there ? chunk.values[b * kTokens + t] : nullptr;
        for (int32_t i = 0; i < dim; i += kTokens) {
          uint16_t* place = to + (i + t) * kTokens;
          if (t >= there || (!stored_so && token == nullptr)) {
            std::fill_n(place, kTokens, uint16_t{0});
          } else {
            std::memcpy(place, stored_so ? block + (i + t) * kTokens : reinterpret_cast<const uint16_t*>(token) + i,
                        kTokens * 2);
          }
        }
      }
      blocks.at[b] = reinterpret_cast<const std::byte*>(to);
    }
    blocks.at[blocks.end] = blocks.at[blocks.first];
  }

  // Eight numbers; the first four times 2^-112 times `unit`.
  [[gnu::always_inline]] static void widen_eight(const uint16_t* from, float unit, float* to) {
    uint16x8_t x = vld1q_u16(from);
    if constexpr (stored == Stored::bf16) {
      vst1q_f32(to, vreinterpretq_f32_u16(vzip1q_u16(vdupq_n_u16(0), x)));
      vst1q_f32(to + 4, vreinterpretq_f32_u16(vzip2q_u16(vdupq_n_u16(0), x)));
    } else {
      int32x4_t bits = vshll_n_s16(vget_low_s16(vreinterpretq_s16_u16(x)), 13);
      bits = vandq_s32(bits, vdupq_n_s32(static_cast<int32_t>(0x8fffffffu)));
      vst1q_f32(to, vmulq_n_f32(vreinterpretq_f32_s32(bits), unit));
      vst1q_f32(to + 4, vcvt_high_f32_f16(vreinterpretq_f16_u16(x)));
    }
  }

  // Keys as they are to [blocks][2][dimensions][8 tokens].
  static void widen_keys(const Blocks& blocks, int32_t dim, float* wide) {
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(blocks.at[b]);
      float* to = wide + b * kTokens * dim;
      for (int32_t i = 0; i < dim; ++i, from += kTokens, to += 8) {
        widen_eight(from, 0x1p112f, to);
        widen_eight(from + 8, 0x1p112f, to + dim * 8);
      }
    }
  }

  // Values to [dimensions / 8][kAttendChunk][8].
  static void widen_values(const Blocks& blocks, int32_t dim, float* wide) {
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(blocks.at[b]);
      for (int32_t i = 0; i < dim; i += kTokens) {
        float* to = wide + (i * kAttendChunk) + b * kTokens * 8;
        for (int32_t t = 0; t < kTokens; ++t, from += kTokens, to += 8) {
          widen_eight(from, 1, to);
          widen_eight(from + 8, 1, to + kAttendChunk * 8);
        }
      }
    }
  }

  // Numbers [0, count), a multiple of 8, without the units of their halves.
  static void apply_units(float* numbers, int32_t count, float* out) {
    for (int32_t i = 0; i < count; i += 8) {
      float32x4_t low = vld1q_f32(numbers + i), high = vld1q_f32(numbers + i + 4);
      vst1q_f32(out + i, kScaled ? vmulq_n_f32(low, 0x1p56f) : low);
      vst1q_f32(out + i + 4, kScaled ? vmulq_n_f32(high, 0x1p-56f) : high);
    }
  }

  // A constant that an instruction adds to and overwrites comes from memory: loads are free here, copies are not.
  static float32x4_t reload(const float32x4_t& constant) {
    float32x4_t x;
    asm volatile("ldr %q0, %1" : "=w"(x) : "m"(constant));
    return x;
  }

  // 2^x for x <= 0 to 2e-7; exactly 0 from -127 down. Four vectors at a time, or each step would wait for the last.
  struct Exp2 {
    float32x4_t least = vdupq_n_f32(-127.0f);
    float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
    float32x4_t c[6] = {vdupq_n_f32(1.0f),
                        vdupq_n_f32(6.931469776e-1f),
                        vdupq_n_f32(2.402224208e-1f),
                        vdupq_n_f32(5.550733744e-2f),
                        vdupq_n_f32(9.671512659e-3f),
                        vdupq_n_f32(1.326472694e-3f)};

    [[gnu::always_inline]] void operator()(float32x4_t (&x)[4]) const {
      float32x4_t n[4], p[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = vmaxq_f32(x[i], least);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) n[i] = vaddq_f32(x[i], magic);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = vsubq_f32(x[i], vsubq_f32(n[i], magic));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) p[i] = vfmaq_f32(reload(c[4]), x[i], c[5]);
#pragma GCC unroll 4
      for (int k = 3; k >= 0; --k) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) p[i] = vfmaq_f32(reload(c[k]), x[i], p[i]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(n[i]), 23);
        x[i] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p[i]), power));
      }
    }
  };

  // Scores of one query, [columns], a multiple of 16, become weights times kUnit, every four of them `step` floats
  // further.
  static void softmax(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, float* weights,
                      int32_t step) {
    constexpr float kLog2e = 1.44269504f;
    const Exp2 exp2;
    Scores of = finish_scores(chunk, query, columns, scores);
    const float32x4_t factor = vdupq_n_f32(of.factor * kLog2e);
    const float32x4_t offset = vdupq_n_f32(of.most == kNothing ? 0.0f : -of.most * kLog2e);
    float32x4_t sum = vdupq_n_f32(0);
    for (int32_t j = 0; j < columns; j += 16) {
      float32x4_t x[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) x[i] = vfmaq_f32(reload(offset), vld1q_f32(scores + j + 4 * i), factor);
      exp2(x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, weights += step) {
        sum = vaddq_f32(sum, x[i]);
        vst1q_f32(weights, kScaled ? vmulq_n_f32(x[i], kUnit) : x[i]);
      }
    }
    chunk.most[query] = of.most;
    chunk.total[query] = of.most == kNothing ? 0.0f : vaddvq_f32(sum);
  }

  // What of the blocks queries [first, first + count) see.
  static Blocks seen_by(const AttendChunk& chunk, const Blocks& blocks, int32_t first, int32_t count) {
    Blocks seen = blocks;
    int32_t begin = kAttendChunk, end = 0;
    for (int32_t i = first; i < first + count; ++i) {
      if (chunk.begin[i] >= chunk.end[i]) continue;
      begin = std::min(begin, chunk.begin[i]), end = std::max(end, chunk.end[i]);
    }
    seen.first = std::max(blocks.first, begin / kTokens);
    seen.end = std::min(blocks.end, (end + kTokens - 1) / kTokens);
    if (seen.end < blocks.end) seen.at[seen.end] = blocks.at[blocks.end];
    return seen;
  }

  // ---- up to four queries, from the cache itself

  // Weights: [columns / 4][Queries][4].
  template <int Queries>
  static void score_few(const AttendChunk& chunk, const Blocks& blocks, const Scratch& room, int32_t first,
                        float* weights) {
    for (int32_t i = 0; i < chunk.k_dim; i += 4) {
#pragma GCC unroll 4
      for (int q = 0; q < Queries; ++q)
        vst1q_f32(room.queries + i * Queries + 4 * q, vmulq_n_f32(vld1q_f32(chunk.q[first + q] + i), kUnit));
    }
    float* scores = room.sums;  // [Queries][kAttendChunk]
    static_assert(4 * kAttendChunk <= kTileRows * kHeadDim);
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      float sums[Queries * kBlock];
      multiply_few<stored, Queries, true>(room.queries, blocks.at + b, 0, 1, chunk.k_dim, sums);
      for (int q = 0; q < Queries; ++q)
        apply_units(sums + q * kBlock, kTokens, scores + q * kAttendChunk + b * kTokens);
    }
    for (int q = 0; q < Queries; ++q)
      softmax(chunk, first + q, blocks.end * kTokens, scores + q * kAttendChunk, weights + 4 * q, 4 * Queries);
  }

  template <int Queries>
  static void weigh_few(const AttendChunk& chunk, const Blocks& blocks, int32_t first, const float* weights) {
    for (int32_t i = 0; i < chunk.v_dim; i += kTokens) {
      float sums[Queries * kBlock];
      if (blocks.first < blocks.end) {
        multiply_few<stored, Queries, true>(weights + blocks.first * kTokens * Queries, blocks.at + blocks.first,
                                            i * kTokens * 2, blocks.end - blocks.first, kTokens, sums);
      } else {
        std::fill_n(sums, Queries * kBlock, 0.0f);
      }
      for (int q = 0; q < Queries; ++q)
        apply_units(sums + q * kBlock, kTokens, chunk.sums + (first + q) * chunk.sums_stride + i);
    }
  }

  // ---- eight queries, from the widened chunk

  static void score_eight(const AttendChunk& chunk, const Blocks& blocks, const Scratch& room, int32_t first,
                          int32_t count, float* weights) {
    for (int32_t q = 0; q < kTileRows; ++q) {
      float* to = room.queries + q * kHeadDim;
      for (int32_t i = 0; i < chunk.k_dim; i += 4)
        vst1q_f32(to + i, q < count ? vld1q_f32(chunk.q[first + q] + i) : vdupq_n_f32(0));
    }
    for (int32_t b = blocks.first; b < blocks.end; ++b) {
      chunk.ahead->fetch();
      const float* keys = room.wide + b * kTokens * chunk.k_dim;
      float* scores = weights + b * kTokens;
      multiply_eight_apart<kHeadDim>(room.queries, keys, 8, chunk.k_dim, scores, kAttendChunk);
      multiply_eight_apart<kHeadDim>(room.queries, keys + 8 * chunk.k_dim, 8, chunk.k_dim, scores + 8, kAttendChunk);
    }
    for (int32_t q = 0; q < count; ++q) {
      float* scores = weights + q * kAttendChunk;
      softmax(chunk, first + q, blocks.end * kTokens, scores, scores, 4);
    }
  }

  static void weigh_eight(const AttendChunk& chunk, const Blocks& blocks, const Scratch& room, int32_t first,
                          int32_t count, const float* weights) {
    const int32_t tokens = (blocks.end - blocks.first) * kTokens, from = blocks.first * kTokens;
    if (tokens > 0) {
      for (int32_t i = 0; i < chunk.v_dim; i += 8) {
        multiply_eight_apart<kAttendChunk>(weights + from, room.wide + i * kAttendChunk + from * 8, 8, tokens,
                                           room.sums + i, chunk.v_dim);
      }
    } else {
      std::fill_n(room.sums, kTileRows * chunk.v_dim, 0.0f);
    }
    for (int32_t q = 0; q < count; ++q)
      apply_units(room.sums + q * chunk.v_dim, chunk.v_dim, chunk.sums + (first + q) * chunk.sums_stride);
  }

  // ---- one chunk

  template <class F>
  static void with_count(int32_t count, F f) {
    switch (count) {
      case 1:
        return f(std::integral_constant<int, 1>());
      case 2:
        return f(std::integral_constant<int, 2>());
      case 3:
        return f(std::integral_constant<int, 3>());
      default:
        return f(std::integral_constant<int, 4>());
    }
  }

  static void attend(const AttendChunk& chunk) {
    Scratch room(chunk.scratch);
    Blocks keys = {};
    keys.end = (chunk.positions + kTokens - 1) / kTokens;
    keys.first = std::min(keys.end, *std::min_element(chunk.begin, chunk.begin + chunk.queries) / kTokens);
    Blocks values = keys;
    if (keys.first < keys.end) find_keys(chunk, room, keys);
    // Tiles of eight, and what is left, if it is few (once widened, fewer), by up to four.
    int32_t wide = 0;
    while (chunk.queries - wide > (wide > 0 ? 5 : kFewQueries))
      wide = std::min(wide + static_cast<int32_t>(kTileRows), chunk.queries);
    if (wide > 0) widen_keys(keys, chunk.k_dim, room.wide);
    for (int32_t q = 0; q < wide; q += kTileRows) {
      const int32_t count = std::min(static_cast<int32_t>(kTileRows), wide - q);
      score_eight(chunk, seen_by(chunk, keys, q, count), room, q, count, room.scores + q * kAttendChunk);
    }
    for (int32_t q = wide; q < chunk.queries; q += 4) {
      const int32_t count = std::min(4, chunk.queries - q);
      with_count(count, [&](auto n) {
        score_few<decltype(n)::value>(chunk, seen_by(chunk, keys, q, count), room, q, room.scores + q * kAttendChunk);
      });
    }
    if (values.first < values.end) find_values(chunk, room, values);
    if (wide > 0) widen_values(values, chunk.v_dim, room.wide);
    for (int32_t q = 0; q < wide; q += kTileRows) {
      const int32_t count = std::min(static_cast<int32_t>(kTileRows), wide - q);
      weigh_eight(chunk, seen_by(chunk, values, q, count), room, q, count, room.scores + q * kAttendChunk);
    }
    for (int32_t q = wide; q < chunk.queries; q += 4) {
      const int32_t count = std::min(4, chunk.queries - q);
      with_count(count, [&](auto n) {
        weigh_few<decltype(n)::value>(chunk, seen_by(chunk, values, q, count), q, room.scores + q * kAttendChunk);
      });
    }
  }
};

}  // namespace
}  // namespace millrace::cpu

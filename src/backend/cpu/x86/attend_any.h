// Attention over a cache of any form, with fast activations. Keys and values of eight and four bits meet queries and
// weights of sixteen: sums of whole numbers are exact, so neither their order nor how many rows there are can show, and
// what sixteen bits round is below a 16 thousandth of the largest. A query is rounded with one factor, the weights of a
// query over a chunk with one (of four bits: with one for each group of values). Everything else is as in attend.h.
//
// Where a page's shape allows, sixteen tokens lie together, so that a vector holds two numbers of each: keys of eight
// bits [dimensions / 2][16 tokens][2], values [8 pairs of tokens][dimensions][2]; of four bits, group by group, sixteen
// float16 factors and then keys [16][16 tokens], values [8 pairs][16][2]. Other numbers lie as in attend.h. Factors of
// a token's head lie behind the codes of all tokens, as backend/kv_form.h says.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/x86/attend.h"
#include "backend/cpu/x86/narrow.h"
#include "tensor/formats/layout.h"

namespace millrace::cpu {
namespace {

constexpr float kQueryEnd = 16384;   // 127 * 576 products of these stay within 32 bits
constexpr float kWeightEnd = 32767;  // and 128 of these
constexpr int32_t kGroup = 32;       // numbers of four bits that have a factor
constexpr int64_t kGroupBytes = kKeys * static_cast<int64_t>(sizeof(layout::Q4_0));  // of sixteen tokens

// E4M3 as float16 is 256 times smaller, which the token's factor makes good.
struct KvE4m3 {
  using Stored = uint8_t;
  static constexpr float kFactor = 256;
  static Floats get(const uint8_t* at) { return load_e4m3(reinterpret_cast<const std::byte*>(at)); }
};

// Rounds to whole numbers of at most `end`; returns the factor, NaN if one of them is no number. `count` is a multiple
// of 16.
inline float split(const float* in, int32_t count, float end, int16_t* out) {
  Floats most = splat(0), odd = splat(0);
  for (int32_t i = 0; i < count; i += kLanes) {
    const Floats x = load(in + i);
    most = larger(most, magnitude(x));
    odd = odd + (x - x);
  }
  const float largest = largest_lane(most);
  const bool finite = sum_lanes(odd) == 0, usable = finite && largest > 1e-30f;
  const Floats over = splat(usable ? end / largest : 0.0f);
  for (int32_t i = 0; i < count; i += kLanes) store_int16(out + i, nearest(usable ? load(in + i) * over : splat(0)));
  return usable ? largest / end : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// ---- how tokens lie

struct Side {  // keys or values
  DType type;
  int32_t dim;
  bool key;

  static Side keys(const KvView& kv) { return {kv.form.k, kv.k_dim, true}; }
  static Side values(const KvView& kv) {
    return kv.v_dim > 0 ? Side{kv.form.v, kv.v_dim, false} : Side{kv.form.k, kv.k_dim, false};
  }
  bool whole() const { return type == DType::i8 || type == DType::q4_0; }  // whole numbers
  bool has_factor() const { return type == DType::i8 || type == DType::f8_e4m3; }
  int64_t code_bytes() const { return kv_code_bytes(type, dim); }
  // Whether a page keeps sixteen tokens together.
  bool together(const KvView& kv) const {
    if (!side_by_side(kv)) return false;
    return key ? type != DType::i8 || dim % 2 == 0 : whole();
  }
  // Bytes of sixteen tokens brought together, of which `read` numbers are wanted.
  int64_t sixteen_bytes(int32_t read) const {
    if (type == DType::i8) return kKeys * up_to(read, 2);
    return kKeys * kv_code_bytes(type, type == DType::q4_0 ? up_to(read, kGroup) : read);
  }
};

template <class Stored>
void put_apart(const std::byte* codes, int32_t dim, int32_t slot, std::byte* sixteen) {
  const auto* from = reinterpret_cast<const Stored*>(codes);
  auto* to = reinterpret_cast<Stored*>(sixteen) + slot;
  for (int32_t i = 0; i < dim; ++i) to[i * kKeys] = from[i];
}

inline void put_groups(const Side& side, const std::byte* codes, int32_t dim, int32_t slot, std::byte* sixteen) {
  const auto* from = reinterpret_cast<const layout::Q4_0*>(codes);
  for (int32_t g = 0; g * kGroup < dim; ++g, sixteen += kGroupBytes) {
    std::memcpy(sixteen + slot * 2, &from[g].d, 2);
    auto* to = reinterpret_cast<uint8_t*>(sixteen + 2 * kKeys);
    to += side.key ? slot : slot / 2 * kKeys * 2 + slot % 2;
    for (int i = 0; i < 16; ++i) to[i * (side.key ? kKeys : 2)] = from[g].codes[i];
  }
}

// Puts one token's codes among its sixteen.
inline void put_together(const Side& side, const std::byte* codes, int32_t dim, int32_t slot, std::byte* sixteen) {
  if (side.type == DType::q4_0) return put_groups(side, codes, dim, slot, sixteen);
  if (side.type == DType::i8) {
    if (side.key) {
      for (int32_t i = 0; i < dim; ++i) sixteen[(i / 2 * kKeys + slot) * 2 + i % 2] = codes[i];
    } else {
      std::byte* to = sixteen + int64_t{slot / 2} * dim * 2 + slot % 2;
      for (int32_t i = 0; i < dim; ++i) to[i * 2] = codes[i];
    }
    return;
  }
  const int64_t bytes = kv_code_bytes(side.type, 1);
  bytes == 4   ? put_apart<uint32_t>(codes, dim, slot, sixteen)
  : bytes == 2 ? put_apart<uint16_t>(codes, dim, slot, sixteen)
               : put_apart<uint8_t>(codes, dim, slot, sixteen);
}

inline void store_side(const KvPlace& place, const Side& side, const float* in, std::byte* part) {
  const KvView& kv = *place.kv;
  std::byte* factor = part + kv_factor_at(side.type, side.dim, kv.page_tokens, place.within);
  if (!side.together(kv)) {
    kv_write(side.type, in, side.dim, part + kv_codes_at(side.type, side.dim, place.within), factor);
    return;
  }
  std::byte codes[kHeadDim * sizeof(float)];
  kv_write(side.type, in, side.dim, codes, factor);
  const auto slot = static_cast<int32_t>(place.within % kKeys);
  put_together(side, codes, side.dim, slot, part + (place.within - slot) * side.code_bytes());
}

inline void store_any(const KvPlace& place, const float* k, const float* v) {
  const KvView& kv = *place.kv;
  float turned[kHeadDim];
  if (kv.form.turns_keys()) {
    std::copy_n(k, kv.k_dim, turned);
    kv_turn(turned, kv.k_dim);
  }
  store_side(place, Side::keys(kv), kv.form.turns_keys() ? turned : k, place.keys);
  if (kv.v_dim > 0) store_side(place, Side::values(kv), v, place.values);
}

// ---- a chunk

// The keys or values of a chunk: where each sixteen lie, brought together in `room` if they are not, and the factors of
// all. What nobody sees may be anything; what no token is there for is zero.
struct Gathered {
  const std::byte* sixteen[kAttendChunk / kKeys];  // null where nobody sees one of them
  alignas(64) float factors[kAttendChunk];

  Gathered(const AttendChunk& chunk, const Side& side, const std::byte* const* from, int32_t read, std::byte* room) {
    for (int32_t begin = 0; begin < chunk.positions; begin += kKeys) {
      const int32_t end = std::min(begin + kKeys, chunk.positions);
      int32_t j = begin;
      while (j < end && from[j] == nullptr) ++j;
      const int32_t b = begin / kKeys;
      sixteen[b] = nullptr;
      if (side.has_factor()) find_factors(chunk, side, from, begin, j, end);
      if (j >= end) continue;
      if (side.together(*chunk.kv)) {
        sixteen[b] = from[j] - (j - begin) * side.code_bytes();
        continue;
      }
      if (!side.key && !side.whole()) continue;  // values of other types are read where they are
      const int64_t bytes = side.sixteen_bytes(read);
      std::byte* to = room + b * bytes;
      std::memset(to, 0, static_cast<size_t>(bytes));
      for (; j < end; ++j)
        if (from[j] != nullptr) put_together(side, from[j], read, j - begin, to);
      sixteen[b] = to;
    }
  }

 private:
  void find_factors(const AttendChunk& chunk, const Side& side, const std::byte* const* from, int32_t begin, int32_t j,
                    int32_t end) {
    const int64_t tokens = chunk.kv->page_tokens;
    auto at = [&](int32_t position, const std::byte* codes) {
      const int64_t within = (chunk.first + position) % tokens;
      return codes - kv_codes_at(side.type, side.dim, within) + kv_factor_at(side.type, side.dim, tokens, within);
    };
    if (tokens % kKeys == 0 && j < end) {
      std::memcpy(factors + begin, at(j, from[j]) - (j - begin) * sizeof(float), kKeys * sizeof(float));
      return;
    }
    std::fill_n(factors + begin, kKeys, 0.0f);
    for (; j < end; ++j)
      if (from[j] != nullptr) std::memcpy(factors + j, at(j, from[j]), sizeof(float));
  }
};

// Queries as whole numbers, two after another as the keys have them; of four bits also what a code's offset of 8 comes
// to in each group.
struct WholeQueries {
  int16_t numbers[kAttendQueries][kHeadDim + kLanes];
  int32_t offsets[kAttendQueries][kHeadDim / kGroup];
  float factor[kAttendQueries];

  void take(const AttendChunk& chunk, int32_t i, DType type) {
    alignas(64) float query[kHeadDim + kLanes];
    int16_t* out = numbers[i];
    std::copy_n(chunk.q[i], chunk.k_dim, query);
    fill_floats(query + chunk.k_dim, up_to(chunk.k_dim, kLanes) - chunk.k_dim, 0);
    if (chunk.kv->form.turns_keys()) kv_turn(query, chunk.k_dim);
    const auto count = static_cast<int32_t>(up_to(chunk.k_dim, kLanes));
    if (type == DType::i8) {
      factor[i] = split(query, count, kQueryEnd, out);
      return;
    }
    int16_t in_order[kHeadDim + kLanes];
    factor[i] = split(query, count, kQueryEnd, in_order);
    for (int32_t g = 0; g * kGroup < chunk.k_dim; ++g) {
      int32_t sum = 0;
      for (int32_t n = 0; n < kGroup / 2; ++n) {
        const int16_t a = in_order[g * kGroup + n], b = in_order[g * kGroup + kGroup / 2 + n];
        out[g * kGroup + 2 * n] = a, out[g * kGroup + 2 * n + 1] = b;
        sum += a + b;
      }
      offsets[i][g] = -8 * sum;
    }
  }
};

// Scores of queries [first, first + Queries) with 16 * Blocks keys of eight bits.
template <int Queries, int Blocks>
void score_bytes(const std::byte* const* keys, const WholeQueries& queries, int32_t first, int32_t dim,
                 const float* factors, Ahead& ahead, float* scores) {
  Ints sum[Queries][Blocks];
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i) sum[i / Blocks][i % Blocks] = splat_int(0);
  for (int32_t d = 0; d < dim; d += 2) {
    if (d % 8 == 0) ahead.fetch();
    Ints k[Blocks];
#pragma GCC unroll 2
    for (int b = 0; b < Blocks; ++b) k[b] = pairs_of_bytes(keys[b] + d * kKeys, true);
#pragma GCC unroll 4
    for (int m = 0; m < Queries; ++m) {
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) sum[m][b] = dot_pairs(sum[m][b], k[b], queries.numbers[first + m] + d);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i) {
    const int m = i / Blocks, b = i % Blocks;
    const Floats factor = load(factors + b * kKeys) * splat(queries.factor[first + m]);
    store(scores + m * kAttendChunk + b * kKeys, to_floats(sum[m][b]) * factor);
  }
}

// The same with keys of four bits.
template <int Queries, int Blocks>
void score_fours(const std::byte* const* keys, const WholeQueries& queries, int32_t first, int32_t dim, Ahead& ahead,
                 float* scores) {
  Floats total[Queries][Blocks];
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i) total[i / Blocks][i % Blocks] = splat(0);
  for (int32_t g = 0; g * kGroup < dim; ++g) {
    Ints sum[Queries][Blocks];
#pragma GCC unroll 8
    for (int i = 0; i < Queries * Blocks; ++i)
      sum[i / Blocks][i % Blocks] = splat_int(queries.offsets[first + i / Blocks][g]);
    for (int32_t n = 0; n < kGroup / 2; ++n) {
      if (n % 8 == 0) ahead.fetch();
      Ints k[Blocks];
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) {
        const Ints both = load_u8(keys[b] + g * kGroupBytes + (2 + n) * kKeys);
        k[b] = (both + shift_left(both, 12)) & splat_int(0x000F000F);
      }
#pragma GCC unroll 4
      for (int m = 0; m < Queries; ++m) {
        const int16_t* two = queries.numbers[first + m] + g * kGroup + 2 * n;
#pragma GCC unroll 2
        for (int b = 0; b < Blocks; ++b) sum[m][b] = dot_pairs(sum[m][b], k[b], two);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < Queries * Blocks; ++i) {
      const int m = i / Blocks, b = i % Blocks;
      total[m][b] = fma(to_floats(sum[m][b]), load_f16(keys[b] + g * kGroupBytes), total[m][b]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Blocks; ++i)
    store(scores + i / Blocks * kAttendChunk + i % Blocks * kKeys,
          total[i / Blocks][i % Blocks] * splat(queries.factor[first + i / Blocks]));
}

// Weights as whole numbers, and what they and the numbers weighed are multiplied by.
struct WholeWeights {
  alignas(64) int16_t numbers[4][kAttendChunk];
  float factor[4];
  int32_t offset[4];  // what 8 for every number comes to

  // `of` as they are times the factors of the tokens, of those that query i sees.
  void take(const AttendChunk& chunk, int32_t i, int32_t m, int32_t columns, const float* of, const float* factors) {
    alignas(64) float shares[kAttendChunk];
    const int32_t begin = std::clamp(chunk.begin[i], 0, columns), end = std::clamp(chunk.end[i], begin, columns);
    for (int32_t j = 0; j < columns; j += kLanes) store(shares + j, load(of + j) * load(factors + j));
    fill_floats(shares, begin, 0);
    fill_floats(shares + end, columns - end, 0);
    factor[m] = split(shares, columns, kWeightEnd, numbers[m]);
  }
  void sum_up(int32_t m, int32_t columns) {
    offset[m] = 0;
    for (int32_t j = 0; j < columns; ++j) offset[m] -= 8 * numbers[m][j];
  }
};

// Calls f(where the sixteen lie, the first of them) for those that anybody sees.
template <class F>
void each_values(const AttendChunk& chunk, const Gathered& values, F f) {
  for (int32_t j = 0; j < chunk.positions; j += kKeys)
    if (const std::byte* sixteen = values.sixteen[j / kKeys]; sixteen != nullptr) f(sixteen, j);
}

// Sixteen pairs of bytes of which `left` exist.
inline Ints some_pairs(const std::byte* at, int32_t left) {
  if (left >= kLanes) return pairs_of_bytes(at, true);
  std::byte some[2 * kLanes] = {};
  std::memcpy(some, at, static_cast<size_t>(left) * 2);
  return pairs_of_bytes(some, true);
}

// sums [Queries] of dimensions [dim, dim + 16 * Vectors) of values of eight bits.
template <int Queries, int Vectors>
void weigh_bytes(const AttendChunk& chunk, const Gathered& values, int32_t stored, const WholeWeights& weights,
                 int32_t first, int32_t dim) {
  Ints sum[Queries][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Vectors; ++i) sum[i / Vectors][i % Vectors] = splat_int(0);
  const int32_t left = chunk.v_dim - dim;
  each_values(chunk, values, [&](const std::byte* sixteen, int32_t j) {
    const std::byte* at = sixteen + dim * 2;
    for (int p = 0; p < kKeys / 2; ++p, at += stored * 2) {
      if (p % 4 == 0) chunk.ahead->fetch();
      Ints v[Vectors];
#pragma GCC unroll 2
      for (int n = 0; n < Vectors; ++n) v[n] = some_pairs(at + n * kLanes * 2, Vectors > 1 ? kLanes : left);
#pragma GCC unroll 4
      for (int m = 0; m < Queries; ++m) {
#pragma GCC unroll 2
        for (int n = 0; n < Vectors; ++n) sum[m][n] = dot_pairs(sum[m][n], v[n], weights.numbers[m] + j + 2 * p);
      }
    }
  });
#pragma GCC unroll 8
  for (int i = 0; i < Queries * Vectors; ++i) {
    const int m = i / Vectors, n = i % Vectors;
    store_some(chunk.sums + (first + m) * chunk.sums_stride + dim + n * kLanes,
               to_floats(sum[m][n]) * splat(weights.factor[m]), least(kLanes, left - n * kLanes));
  }
}

// The same for a group of values of four bits.
template <int Queries>
void weigh_fours(const AttendChunk& chunk, const Gathered& values, const WholeWeights& weights, int32_t first,
                 int32_t group) {
  Ints sum[Queries][2];
#pragma GCC unroll 8
  for (int i = 0; i < 2 * Queries; ++i) sum[i / 2][i % 2] = splat_int(weights.offset[i / 2]);
  const Ints fours = splat_int(0x000F000F);
  each_values(chunk, values, [&](const std::byte* sixteen, int32_t j) {
    const std::byte* at = sixteen + group * kGroupBytes + 2 * kKeys;
    for (int p = 0; p < kKeys / 2; ++p, at += 2 * kKeys) {
      if (p % 4 == 0) chunk.ahead->fetch();
      const Ints both = pairs_of_bytes(at, false), low = both & fours, high = shift_right(both, 4) & fours;
#pragma GCC unroll 4
      for (int m = 0; m < Queries; ++m) {
        sum[m][0] = dot_pairs(sum[m][0], low, weights.numbers[m] + j + 2 * p);
        sum[m][1] = dot_pairs(sum[m][1], high, weights.numbers[m] + j + 2 * p);
      }
    }
  });
#pragma GCC unroll 8
  for (int i = 0; i < 2 * Queries; ++i) {
    const int32_t at = group * kGroup + i % 2 * kLanes;
    if (at >= chunk.v_dim) continue;
    store_some(chunk.sums + (first + i / 2) * chunk.sums_stride + at,
               to_floats(sum[i / 2][i % 2]) * splat(weights.factor[i / 2]), least(kLanes, chunk.v_dim - at));
  }
}

// ---- all of it

struct AnyRoom {
  float scores[kAttendQueries][kAttendChunk];
  WholeQueries queries;
  WholeWeights weights;
  alignas(64) std::byte together[kAttendChunk * (kHeadDim + 2) * sizeof(float)];
};
static_assert(sizeof(AnyRoom) <= kWorkerBytes / 2);

// Calls f(first block, number of blocks as a constant) for the blocks that are there; scores of the others are zero.
template <int Queries, class F>
void each_sixteen(const Gathered& keys, int32_t blocks, float* rows, F f) {
  for (int32_t b = 0; b < blocks;) {
    if (keys.sixteen[b] == nullptr) {
      for (int m = 0; m < Queries; ++m) fill_floats(rows + m * kAttendChunk + b * kKeys, kKeys, 0);
      ++b;
    } else if (kScoreBlocks == 2 && b + 1 < blocks && keys.sixteen[b + 1] != nullptr) {
      f(b, std::integral_constant<int, kScoreBlocks>());
      b += kScoreBlocks;
    } else {
      f(b, std::integral_constant<int, 1>());
      ++b;
    }
  }
}

template <class Kv, int Queries>
void score_as_floats(const AttendChunk& chunk, const Gathered& keys, int32_t first, int32_t blocks, float* rows) {
  using Stored = typename Kv::Stored;
  each_sixteen<Queries>(keys, blocks, rows, [&](int32_t b, auto count) {
    const Stored* at[2] = {reinterpret_cast<const Stored*>(keys.sixteen[b]),
                           reinterpret_cast<const Stored*>(keys.sixteen[b + count - 1])};
    score_blocks<Kv, Queries, decltype(count)::value>(at, chunk.q + first, chunk.k_dim, *chunk.ahead, rows + b * kKeys);
  });
  if constexpr (std::is_same_v<Kv, KvE4m3>) {
    for (int m = 0; m < Queries; ++m)
      for (int32_t j = 0; j < blocks * kKeys; j += kLanes)
        store(rows + m * kAttendChunk + j,
              load(rows + m * kAttendChunk + j) * (load(keys.factors + j) * splat(KvE4m3::kFactor)));
  }
}

template <int Queries>
void score_any(const AttendChunk& chunk, const Side& side, const Gathered& keys, AnyRoom& room, int32_t first,
               int32_t blocks) {
  float* rows = room.scores[first];
  switch (side.type) {
    case DType::i8:
      return each_sixteen<Queries>(keys, blocks, rows, [&](int32_t b, auto count) {
        score_bytes<Queries, decltype(count)::value>(keys.sixteen + b, room.queries, first, chunk.k_dim,
                                                     keys.factors + b * kKeys, *chunk.ahead, rows + b * kKeys);
      });
    case DType::q4_0:
      return each_sixteen<Queries>(keys, blocks, rows, [&](int32_t b, auto count) {
        score_fours<Queries, decltype(count)::value>(keys.sixteen + b, room.queries, first, chunk.k_dim, *chunk.ahead,
                                                     rows + b * kKeys);
      });
    case DType::f8_e4m3:
      return score_as_floats<KvE4m3, Queries>(chunk, keys, first, blocks, rows);
    case DType::f16:
      return score_as_floats<KvF16, Queries>(chunk, keys, first, blocks, rows);
    case DType::bf16:
      return score_as_floats<KvBf16, Queries>(chunk, keys, first, blocks, rows);
    default:
      return score_as_floats<KvF32, Queries>(chunk, keys, first, blocks, rows);
  }
}

template <class Kv, int Queries>
void weigh_as_floats(const AttendChunk& chunk, const Gathered& all, int32_t first, int32_t columns, float* rows) {
  if constexpr (std::is_same_v<Kv, KvE4m3>) {
    for (int m = 0; m < Queries; ++m) {
      float* row = rows + m * kAttendChunk;
      const int32_t begin = std::clamp(chunk.begin[first + m], 0, columns),
                    end = std::clamp(chunk.end[first + m], begin, columns);
      for (int32_t j = 0; j < columns; j += kLanes)
        store(row + j, load(row + j) * (load(all.factors + j) * splat(KvE4m3::kFactor)));
      fill_floats(row, begin, 0);
      fill_floats(row + end, columns - end, 0);
    }
  }
  Values<typename Kv::Stored> values;
  for (int32_t j = 0; j < chunk.positions; ++j) {
    if (chunk.values[j] == nullptr) continue;
    values.at[values.count] = reinterpret_cast<const typename Kv::Stored*>(chunk.values[j]);
    values.position[values.count++] = j;
  }
  int32_t dim = 0;
  for (; dim + kWeighVectors * kLanes <= chunk.v_dim; dim += kWeighVectors * kLanes)
    weigh<Kv, Queries, kWeighVectors>(chunk, values, rows, first, dim);
  for (; dim < chunk.v_dim; dim += kLanes) weigh<Kv, Queries, 1>(chunk, values, rows, first, dim);
}

template <int Queries>
void weigh_as_fours(const AttendChunk& chunk, const Gathered& values, AnyRoom& room, int32_t first, int32_t columns) {
  alignas(64) float factors[kAttendChunk];
  for (int32_t g = 0; g * kGroup < chunk.v_dim; ++g) {
    for (int32_t j = 0; j < columns; j += kLanes) {
      const std::byte* sixteen = values.sixteen[j / kKeys];
      store(factors + j, sixteen != nullptr ? load_f16(sixteen + g * kGroupBytes) : splat(0));
    }
    for (int m = 0; m < Queries; ++m) {
      room.weights.take(chunk, first + m, m, columns, room.scores[first + m], factors);
      room.weights.sum_up(m, columns);
    }
    weigh_fours<Queries>(chunk, values, room.weights, first, g);
  }
}

template <int Queries>
void weigh_any(const AttendChunk& chunk, const Side& side, const Gathered& values, AnyRoom& room, int32_t first,
               int32_t columns) {
  float* rows = room.scores[first];
  switch (side.type) {
    case DType::i8: {
      for (int m = 0; m < Queries; ++m)
        room.weights.take(chunk, first + m, m, columns, room.scores[first + m], values.factors);
      const int32_t stored = side.together(*chunk.kv) ? side.dim : chunk.v_dim;
      int32_t dim = 0;
      for (; kScoreBlocks == 2 && dim + 2 * kLanes <= chunk.v_dim; dim += 2 * kLanes)
        weigh_bytes<Queries, kScoreBlocks>(chunk, values, stored, room.weights, first, dim);
      for (; dim < chunk.v_dim; dim += kLanes) weigh_bytes<Queries, 1>(chunk, values, stored, room.weights, first, dim);
      return;
    }
    case DType::q4_0:
      return weigh_as_fours<Queries>(chunk, values, room, first, columns);
    case DType::f8_e4m3:
      return weigh_as_floats<KvE4m3, Queries>(chunk, values, first, columns, rows);
    case DType::f16:
      return weigh_as_floats<KvF16, Queries>(chunk, values, first, columns, rows);
    case DType::bf16:
      return weigh_as_floats<KvBf16, Queries>(chunk, values, first, columns, rows);
    default:
      return weigh_as_floats<KvF32, Queries>(chunk, values, first, columns, rows);
  }
}

inline void attend_any(const AttendChunk& chunk) {
  AnyRoom& room = *reinterpret_cast<AnyRoom*>(chunk.scratch);
  const Side k_side = Side::keys(*chunk.kv), v_side = Side::values(*chunk.kv);
  const auto columns = static_cast<int32_t>(up_to(chunk.positions, kKeys));
  {
    const Gathered keys(chunk, k_side, chunk.keys, chunk.k_dim, room.together);
    for (int32_t i = 0; k_side.whole() && i < chunk.queries; ++i) room.queries.take(chunk, i, k_side.type);
    each_block(chunk.queries, [&](int32_t first, auto count) {
      score_any<decltype(count)::value>(chunk, k_side, keys, room, first, columns / kKeys);
    });
  }
  for (int32_t i = 0; i < chunk.queries; ++i) {
    const Scores finished = finish_scores(chunk, i, columns, room.scores[i]);
    chunk.most[i] = finished.most;
    chunk.total[i] = finished.most == kNothing ? 0.0f : exponentials(room.scores[i], columns, finished);
    if (finished.most == kNothing) fill_floats(room.scores[i], columns, 0);
  }
  const Gathered values(chunk, v_side, chunk.values, chunk.v_dim, room.together);
  each_block(chunk.queries, [&](int32_t first, auto count) {
    weigh_any<decltype(count)::value>(chunk, v_side, values, room, first, columns);
  });
}

inline void add_attend_any(Kernels& kernels) {
  constexpr size_t kFast = static_cast<size_t>(Activations::fast);
  kernels.store[kFast][kKvAny] = store_any;
  kernels.attend[kFast][kKvAny] = attend_any;
}

}  // namespace
}  // namespace millrace::cpu

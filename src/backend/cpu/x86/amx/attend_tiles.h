// Attention over a float16 or bfloat16 cache by tiles: queries, keys, softmax weights and values are multiplied as
// bfloat16, sums stay float32. Every score takes its dimensions in ascending steps of 32 and every sum its positions in
// ascending steps of 32, aligned to the chunk. The cache lies as the avx512 row keeps it; a chunk is brought into the
// order of tiles in scratch, once for all queries. Queries go in blocks of sixteen, a row of a tile each; while the
// softmax of one block is computed, the tiles work on the values of the block before and the scores of the block after.
//
// T is what tiles are: the machine's (attend.cpp), or the same in plain C++, for tests on machines without.
#pragma once

#include <bit>

#include "backend/cpu/x86/amx/shapes.h"
#include "backend/cpu/x86/attend.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kBlock = 16, kStep = 32;  // queries at a time; dimensions, or positions, of a product
constexpr int32_t kTilesAttendQueries = 256;

struct Scratch {
  explicit Scratch(std::byte* scratch)
      : scores{reinterpret_cast<float*>(scratch), reinterpret_cast<float*>(scratch) + kBlock * kAttendChunk},
        sums(scores[1] + kBlock * kAttendChunk),
        weights{reinterpret_cast<std::byte*>(sums + kBlock * kHeadDim),
                reinterpret_cast<std::byte*>(sums + kBlock * kHeadDim) + kBlock * kAttendChunk * 2},
        queries(weights[1] + kBlock * kAttendChunk * 2),
        keys(queries + kAttendQueries * kHeadDim * 2),
        values(keys + kAttendChunk * kHeadDim * 2),
        plain_keys(values + kAttendChunk * kHeadDim * 2) {}
  float* scores[2];       // of blocks of queries in turn: [16][kAttendChunk]
  float* sums;            // of one block: [dimensions / 16][16][16]
  std::byte* weights[2];  // of blocks in turn: [steps][16][32]
  std::byte* queries;     // [blocks][steps][16][32]
  std::byte* keys;        // [16 keys at a time][steps][16 pairs of dimensions][16 keys][2]
  std::byte* values;      // [steps][16 dimensions at a time][16 pairs of positions][16 dimensions][2]
  std::byte* plain_keys;  // where the cache does not keep them side by side
  static constexpr int64_t kBytes = kBlock * kAttendChunk * 12 + kBlock * kHeadDim * 4 + kAttendQueries * kHeadDim * 2 +
                                    3 * kAttendChunk * kHeadDim * 2;
};
static_assert(Scratch::kBytes <= kWorkerBytes / 2);

// [16][2] of two vectors of sixteen, as bfloat16.
template <class T>
struct Pairing {
  Pairing() {
    alignas(64) uint16_t order[32];
    for (uint16_t i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    index = _mm512_load_si512(order);
  }
  void store_pair(const KvF16*, const uint16_t* a, const uint16_t* b, std::byte* out) const {
    put(T::round(KvF16::get(a), b != nullptr ? KvF16::get(b) : splat(0)), out);
  }
  void store_pair(const KvBf16*, const uint16_t* a, const uint16_t* b, std::byte* out) const {
    __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)), second = _mm256_setzero_si256();
    if (b != nullptr) second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    put(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1), out);
  }
  void put(__m512i both, std::byte* out) const { _mm512_store_si512(out, _mm512_permutexvar_epi16(index, both)); }
  __m512i index;
};

template <class T, class Kv>
void arrange_keys(const AttendChunk& chunk, int32_t blocks, const Scratch& room) {
  const Pairing<T> pairing;
  const uint16_t* keys[kAttendChunk / kKeys];
  find_keys(chunk, blocks, reinterpret_cast<uint16_t*>(room.plain_keys), keys);
  int64_t pairs = up_to(chunk.k_dim, kStep) / 2;
  for (int32_t b = 0; b < blocks; ++b) {
    std::byte* to = room.keys + b * pairs * 64;
    if (keys[b] == nullptr) {
      std::memset(to, 0, static_cast<size_t>(pairs) * 64);
      continue;
    }
    for (int32_t i = 0; i < pairs; ++i, to += 64) {
      const uint16_t* first = keys[b] + int64_t{2} * i * kKeys;
      if (i % 2 == 0) chunk.ahead->fetch();
      if (2 * i < chunk.k_dim) {
        pairing.store_pair(static_cast<const Kv*>(nullptr), first, 2 * i + 1 < chunk.k_dim ? first + kKeys : nullptr,
                           to);
      } else {
        std::memset(to, 0, 64);
      }
    }
  }
}

alignas(64) constexpr uint16_t kZeros[kHeadDim] = {};

// Positions that are not there have a weight of zero, and must have values that it makes zero.
template <class T, class Kv>
void arrange_values(const AttendChunk& chunk, int32_t columns, const Scratch& room) {
  const Pairing<T> pairing;
  auto at = [&](int32_t j) {
    bool there = j < chunk.positions && chunk.values[j] != nullptr;
    return there ? reinterpret_cast<const uint16_t*>(chunk.values[j]) : kZeros;
  };
  for (int32_t j = 0; j < columns; j += 2) {
    const uint16_t *a = at(j), *b = at(j + 1);
    std::byte* to = room.values + j / kStep * (chunk.v_dim / kLanes) * kTileBytes + j % kStep / 2 * 64;
    for (int32_t d = 0; d < chunk.v_dim; d += kLanes, to += kTileBytes) {
      if (d % kStep == 0) chunk.ahead->fetch();
      pairing.store_pair(static_cast<const Kv*>(nullptr), a + d, b + d, to);
    }
  }
}

template <class T>
void arrange_queries(const AttendChunk& chunk, int32_t steps, const Scratch& room) {
  for (int32_t i = 0; i < chunk.queries; ++i) {
    std::byte* to = room.queries + (i / kBlock * steps * kBlock + i % kBlock) * 64;
    for (int32_t d = 0; d < steps * kStep; d += kStep, to += kTileBytes) {
      int64_t left = chunk.k_dim - d;
      if (left >= kStep) {
        _mm512_store_si512(to, T::round(load(chunk.q[i] + d), load(chunk.q[i] + d + kLanes)));
        continue;
      }
      Floats low = load_some(chunk.q[i] + d, least(kLanes, left));
      Floats high = left > kLanes ? load_some(chunk.q[i] + d + kLanes, least(kLanes, left - kLanes)) : splat(0);
      _mm512_store_si512(to, T::round(low, high));
    }
  }
}

// out[i] = sum over steps of a[step] x b[step * b_step + i tiles], for `count` of 1 to 4 tiles.
struct TileProduct {
  const std::byte *a, *b;
  int64_t b_step, b_next;
  int32_t steps, count;
  float* out;
  int64_t out_next, out_stride;
};

// Products to be done in order, a step at a time, so that other work can stand between them.
template <class T>
class TileWork {
 public:
  void add(const TileProduct& product) { list_[count_++] = product, steps_ += product.steps; }
  int32_t steps() const { return steps_; }
  void step() {
    if (at_ == count_) return;
    const TileProduct& p = list_[at_];
    if (done_ == 0) T::template zero<0>(), T::template zero<1>(), T::template zero<2>(), T::template zero<3>();
    const std::byte* b = p.b + done_ * p.b_step;
    T::template load<4>(p.a + done_ * kTileBytes, 64);
    one<0>(b);
    if (p.count > 1) one<1>(b + p.b_next);
    if (p.count > 2) one<2>(b + 2 * p.b_next);
    if (p.count > 3) one<3>(b + 3 * p.b_next);
    if (++done_ < p.steps) return;
    T::template store<0>(p.out, p.out_stride);
    if (p.count > 1) T::template store<1>(p.out + p.out_next, p.out_stride);
    if (p.count > 2) T::template store<2>(p.out + 2 * p.out_next, p.out_stride);
    if (p.count > 3) T::template store<3>(p.out + 3 * p.out_next, p.out_stride);
    ++at_, done_ = 0;
  }
  void finish() {
    while (at_ < count_) step();
    at_ = count_ = steps_ = 0;
  }

 private:
  template <int tile>
  static void one(const std::byte* b) {
    T::template load<5 + tile % 3>(b, 64);
    T::template dot<tile, 4, 5 + tile % 3>();
  }
  static constexpr int kMost = (kHeadDim / kLanes + 3) / 4 + kAttendChunk / (4 * kKeys);
  TileProduct list_[kMost];
  int32_t count_ = 0, at_ = 0, done_ = 0, steps_ = 0;
};

// 2^x for x <= 0 to 1e-4, far below what bfloat16 keeps; exactly 0 from -127 down.
inline Floats exp2_rough(Floats x) {
  const Floats magic = splat(12582912.0f);  // adding it leaves round(x) in the low bits
  x = larger(x, splat(-127.0f));
  Floats shifted = x + magic, r = x - (shifted - magic);
  Floats p = fma(r, splat(0.05500869f), splat(0.24221063f));
  p = fma(r, p, splat(0.69328292f));
  p = fma(r, p, splat(1.0f));
  return as_floats(bits_of(p) + shift_left(bits_of(shifted), 23));
}

// Rows [16][16]: of every row its lanes taken together by halving, as sum_lanes does; lane i of the result is row i's.
template <class F>
Floats across(const float* rows, F take) {
  constexpr int kPlace[16] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};  // row of slot: where it ends up
  __m512 eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {
    __m512 a = load(rows + kPlace[i] * kLanes).v, b = load(rows + kPlace[i + 8] * kLanes).v;
    eight[i] = take(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  for (int i = 0; i < 4; ++i) {
    __m512 a = eight[i], b = eight[i + 4];
    four[i] = take(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    __m512 a = four[i], b = four[i + 2];
    two[i] = take(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  return {take(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd))};
}

struct Block {
  int32_t first, count, columns;  // queries, and what of the chunk they see the last of, in whole steps
};

inline Block block_of(const AttendChunk& chunk, int32_t first) {
  Block block{first, static_cast<int32_t>(least(kBlock, chunk.queries - first)), kStep};
  for (int32_t i = first; i < first + block.count; ++i)
    while (block.columns < chunk.end[i] && block.columns < chunk.positions) block.columns += kStep;
  return block;
}

// The scores of a query that are seen, shaped, and the others as small as can be; the largest of every sixteenth.
inline Floats seen_scores(const AttendChunk& chunk, int32_t query, int32_t columns, bool plain, float* scores) {
  if (!plain) shape_scores(chunk, query, columns, scores);
  int32_t begin = chunk.begin[query], end = chunk.end[query];
  if (begin > 0 || end < columns) {
    for (int32_t j = 0; j < columns; j += kLanes) {
      __mmask16 seen = static_cast<__mmask16>(first_lanes(least(kLanes, end > j ? end - j : 0)) &
                                              ~first_lanes(least(kLanes, begin > j ? begin - j : 0)));
      store(scores + j, {_mm512_mask_blend_ps(seen, splat(kNothing).v, load(scores + j).v)});
    }
  }
  Floats most[2] = {load(scores), load(scores + kLanes)};
  for (int32_t j = kStep; j < columns; j += kStep) {
    most[0] = larger(most[0], load(scores + j));
    most[1] = larger(most[1], load(scores + j + kLanes));
  }
  return larger(most[0], most[1]);
}

// The scores of a block become weights in bfloat16, rows of the tiles, while the tiles do what else there is to do.
template <class T>
void softmax(const AttendChunk& chunk, const Block& block, float* scores, std::byte* weights, TileWork<T>& beside) {
  constexpr float kLog2e = 1.44269504f;
  alignas(64) float lanes[kBlock * kLanes], offsets[kBlock], most_of[kBlock];
  const bool plain = is_plain(*chunk.attention);
  const float scale = plain ? chunk.attention->scale : 1.0f;
  for (int32_t i = 0; i < kBlock; ++i) {
    float* row = scores + i * kAttendChunk;
    store(lanes + i * kLanes,
          i < block.count ? seen_scores(chunk, block.first + i, block.columns, plain, row) : splat(kNothing));
    if (i % 4 == 3) beside.step();
  }
  Floats most = across(lanes, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); }) * splat(scale);
  store(most_of, most);
  const __mmask16 nothing = _mm512_cmp_ps_mask(most.v, splat(kNothing).v, _CMP_EQ_OQ);
  Floats negative = {_mm512_xor_ps(most.v, splat(-0.0f).v)};
  store(offsets, {_mm512_maskz_mov_ps(static_cast<__mmask16>(~nothing), (negative * splat(kLog2e)).v)});
  const Floats factor = splat(scale * kLog2e);
  const int32_t each = (beside.steps() + kBlock - 1) / kBlock;
  for (int32_t i = 0; i < block.count; ++i) {
    const float* row = scores + i * kAttendChunk;
    std::byte* to = weights + i * 64;
    const Floats offset = splat(offsets[i]);
    Floats sum = splat(0);
    for (int32_t j = 0; j < block.columns; j += kStep, to += kTileBytes) {
      Floats a = exp2_rough(fma(load(row + j), factor, offset));
      Floats b = exp2_rough(fma(load(row + j + kLanes), factor, offset));
      _mm512_store_si512(to, T::round(a, b));
      sum = (sum + a) + b;
    }
    store(lanes + i * kLanes, sum);
    for (int32_t s = 0; s < each; ++s) beside.step();
  }
  Floats total = across(lanes, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
  store_some(chunk.most + block.first, most, block.count);
  store_some(chunk.total + block.first, total, block.count);
}

// A block's sums to where they are wanted: as they are, or taken into the softmax so far, as merge_chunk does it.
inline void deliver(const AttendChunk& chunk, const Block& block, const float* sums) {
  const int64_t stride = chunk.sums_stride;
  if (chunk.into == nullptr) {
    for (int32_t i = 0; i < block.count; ++i) {
      float* to = chunk.sums + (block.first + i) * stride;
      for (int32_t d = 0; d < chunk.v_dim; d += kLanes) store(to + d, load(sums + d * kBlock + i * kLanes));
    }
    return;
  }
  alignas(64) float mosts[kBlock] = {}, totals[kBlock] = {}, keeps[kBlock], takes[kBlock];
  float* into = chunk.into + block.first * stride;
  for (int32_t i = 0; i < block.count; ++i) mosts[i] = into[i * stride], totals[i] = into[i * stride + 1];
  Floats chunk_most = load_some(chunk.most + block.first, block.count), most = load(mosts);
  Floats highest = larger(most, chunk_most), keep = exp_f32(most - highest), take = exp_f32(chunk_most - highest);
  Floats total = fma(load_some(chunk.total + block.first, block.count), take, load(totals) * keep);
  store(keeps, keep), store(takes, take), store(mosts, highest), store(totals, total);
  for (int32_t i = 0; i < block.count; ++i, into += stride) {
    if (chunk.most[block.first + i] == kNothing) continue;
    into[0] = mosts[i], into[1] = totals[i];
    const Floats kept = splat(keeps[i]), taken = splat(takes[i]);
    for (int32_t d = 0; d < chunk.v_dim; d += kLanes)
      store(into + 2 + d, fma(load(sums + d * kBlock + i * kLanes), taken, load(into + 2 + d) * kept));
  }
}

template <class T>
void add_scores(const AttendChunk& chunk, const Scratch& room, const Block& block, float* scores, TileWork<T>& work) {
  const int32_t steps = static_cast<int32_t>(up_to(chunk.k_dim, kStep)) / kStep;
  const int64_t key_bytes = steps * kTileBytes;
  const std::byte* queries = room.queries + block.first * steps * 64;
  for (int32_t b = 0; b < block.columns / kKeys; b += 4) {
    work.add({queries, room.keys + b * key_bytes, kTileBytes, key_bytes, steps,
              static_cast<int32_t>(least(4, block.columns / kKeys - b)), scores + b * kKeys, kKeys, kAttendChunk * 4});
  }
}

template <class T>
void add_values(const AttendChunk& chunk, const Scratch& room, const Block& block, const std::byte* weights,
                TileWork<T>& work) {
  const int32_t tiles = chunk.v_dim / kLanes;
  for (int32_t t = 0; t < tiles; t += 4) {
    work.add({weights, room.values + t * kTileBytes, tiles * kTileBytes, kTileBytes, block.columns / kStep,
              static_cast<int32_t>(least(4, tiles - t)), room.sums + t * kBlock * kLanes, kBlock * kLanes, 64});
  }
}

// All blocks of a chunk: the softmax of one beside the values of the one before and the scores of the one after.
template <class T>
void attend_blocks(const AttendChunk& chunk, const Scratch& room) {
  TileWork<T> work;
  Block before{}, block = block_of(chunk, 0);
  add_scores(chunk, room, block, room.scores[0], work);
  work.finish();
  int32_t turn = 0;
  for (;; turn ^= 1) {
    const bool last = block.first + kBlock >= chunk.queries;
    const Block after = last ? Block{} : block_of(chunk, block.first + kBlock);
    if (before.count > 0) add_values(chunk, room, before, room.weights[turn ^ 1], work);
    if (!last) add_scores(chunk, room, after, room.scores[turn ^ 1], work);
    softmax(chunk, block, room.scores[turn], room.weights[turn], work);
    work.finish();
    if (before.count > 0) deliver(chunk, before, room.sums);
    before = block, block = after;
    if (last) break;
  }
  add_values(chunk, room, before, room.weights[turn], work);
  work.finish();
  deliver(chunk, before, room.sums);
}

// Shapes that tiles do not suit, no more queries at a time than that kernel has room for.
template <class Kv>
void attend_slices(const AttendChunk& chunk) {
  for (int32_t first = 0; first < chunk.queries; first += kAttendQueries) {
    AttendChunk slice = chunk;
    slice.queries = static_cast<int32_t>(least(kAttendQueries, chunk.queries - first));
    slice.q += first, slice.head += first, slice.position += first, slice.begin += first, slice.end += first;
    slice.most += first, slice.total += first, slice.sums += first * chunk.sums_stride;
    attend<Kv>(slice);
  }
}

template <class T, class Kv>
void attend_tiles(const AttendChunk& chunk) {
  if (chunk.v_dim % kLanes != 0) return attend_slices<Kv>(chunk);
  Scratch room(chunk.scratch);
  int32_t columns = static_cast<int32_t>(up_to(chunk.positions, kStep));
  if (!chunk.again) arrange_queries<T>(chunk, static_cast<int32_t>(up_to(chunk.k_dim, kStep)) / kStep, room);
  arrange_keys<T, Kv>(chunk, columns / kKeys, room);
  arrange_values<T, Kv>(chunk, columns, room);
  int32_t rows =
      chunk.queries >= kBlock ? kBlock : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(chunk.queries)));
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, 4}) shapes.set(tile, rows, 64);
  for (int tile : {5, 6, 7}) shapes.set(tile, 16, 64);
  const typename T::Configured configured(shapes);
  attend_blocks<T>(chunk, room);
  if (chunk.into != nullptr) *chunk.taken = true;
}

template <class T>
void add_tiles_attend(Kernels& kernels) {
  auto fast = static_cast<size_t>(Activations::fast);
  kernels.attend[fast][kKvF16] = attend_tiles<T, KvF16>;
  kernels.attend[fast][kKvBf16] = attend_tiles<T, KvBf16>;
  kernels.attend_queries[fast][kKvF16] = kernels.attend_queries[fast][kKvBf16] = kTilesAttendQueries;
}

}  // namespace
}  // namespace millrace::cpu

// Attention over a float16 or bfloat16 cache by tiles: queries, keys, softmax weights and values are multiplied as
// bfloat16, sums stay float32. Every score takes its dimensions in ascending steps of 32 and every sum its positions in
// ascending steps of 32, aligned to the chunk. The cache lies as the avx512 row keeps it; a chunk is brought into the
// order of tiles in scratch, once for all queries. Queries go in blocks of sixteen, a row of a tile each.
#include "backend/cpu/x86/attend.h"

#include <bit>

#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

constexpr int32_t kTileRows = 16, kStep = 32;  // dimensions, or positions, of a product

struct Scratch {
  explicit Scratch(std::byte* scratch)
      : scores(reinterpret_cast<float*>(scratch)),
        sums(scores + kTileRows * kAttendChunk),
        weights(reinterpret_cast<std::byte*>(sums + 4 * 256)),
        queries(weights + kTileRows * kAttendChunk * 2),
        keys(queries + kAttendQueries * kHeadDim * 2),
        values(keys + kAttendChunk * kHeadDim * 2),
        plain_keys(values + kAttendChunk * kHeadDim * 2) {}
  float* scores;          // of one block of queries: [16][kAttendChunk]
  float* sums;            // four tiles
  std::byte* weights;     // of one block: [steps][16][32]
  std::byte* queries;     // [blocks][steps][16][32]
  std::byte* keys;        // [16 keys at a time][steps][16 pairs of dimensions][16 keys][2]
  std::byte* values;      // [pairs of positions][dimensions][2]
  std::byte* plain_keys;  // where the cache does not keep them side by side
  static constexpr int64_t kBytes =
      kTileRows * kAttendChunk * 6 + 4096 + kAttendQueries * kHeadDim * 2 + 3 * kAttendChunk * kHeadDim * 2;
};
static_assert(Scratch::kBytes <= kWorkerBytes / 2);

// [16][2] of two vectors of sixteen, as bfloat16.
struct Pairing {
  Pairing() {
    alignas(64) uint16_t order[32];
    for (uint16_t i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    index = _mm512_load_si512(order);
  }
  void store_pair(const KvF16*, const uint16_t* a, const uint16_t* b, std::byte* out) const {
    Floats second = b != nullptr ? KvF16::get(b) : splat(0);
    put((__m512i)_mm512_cvtne2ps_pbh(second.v, KvF16::get(a).v), out);
  }
  void store_pair(const KvBf16*, const uint16_t* a, const uint16_t* b, std::byte* out) const {
    __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a)), second = _mm256_setzero_si256();
    if (b != nullptr) second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    put(_mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1), out);
  }
  void put(__m512i both, std::byte* out) const { _mm512_store_si512(out, _mm512_permutexvar_epi16(index, both)); }
  __m512i index;
};

template <class Kv>
void arrange_keys(const AttendChunk& chunk, int32_t blocks, const Scratch& room) {
  const Pairing pairing;
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
template <class Kv>
void arrange_values(const AttendChunk& chunk, int32_t columns, const Scratch& room) {
  const Pairing pairing;
  auto at = [&](int32_t j) {
    bool there = j < chunk.positions && chunk.values[j] != nullptr;
    return there ? reinterpret_cast<const uint16_t*>(chunk.values[j]) : kZeros;
  };
  std::byte* to = room.values;
  for (int32_t j = 0; j < columns; j += 2) {
    const uint16_t *a = at(j), *b = at(j + 1);
    for (int32_t d = 0; d < chunk.v_dim; d += kLanes, to += 64) {
      if (d % kStep == 0) chunk.ahead->fetch();
      pairing.store_pair(static_cast<const Kv*>(nullptr), a + d, b + d, to);
    }
  }
}

void store_bf16(std::byte* out, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), (__m256i)_mm512_cvtneps_pbh(x.v));
}

void arrange_queries(const AttendChunk& chunk, int32_t steps, const Scratch& room) {
  for (int32_t i = 0; i < chunk.queries; ++i) {
    std::byte* to = room.queries + (i / kTileRows * steps * kTileRows + i % kTileRows) * 64;
    for (int32_t d = 0; d < steps * kStep; d += kLanes) {
      Floats x = d < chunk.k_dim ? load_some(chunk.q[i] + d, least(kLanes, chunk.k_dim - d)) : splat(0);
      store_bf16(to + d / kStep * kTileBytes + d % kStep * 2, x);
    }
  }
}

// One product into each of four tiles: rows of a (tile 4) by what lies at b, at a distance of one another.
template <int tile>
void one_product(const std::byte* b, int64_t stride) {
  tile_load<5 + tile % 3>(b, stride);
  tile_dot_bf16<tile, 4, 5 + tile % 3>();
}

// out[i] = sum over steps of a[step] x b[step * b_step + i * b_next], for `count` of 1 to 4 tiles.
void products(const std::byte* a, const std::byte* b, int64_t b_step, int64_t b_next, int64_t b_stride, int32_t steps,
              int32_t count, float* out, int64_t out_next, int64_t out_stride) {
  tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  for (int32_t s = 0; s < steps; ++s, a += kTileBytes, b += b_step) {
    tile_load<4>(a, 64);
    one_product<0>(b, b_stride);
    if (count > 1) one_product<1>(b + b_next, b_stride);
    if (count > 2) one_product<2>(b + 2 * b_next, b_stride);
    if (count > 3) one_product<3>(b + 3 * b_next, b_stride);
  }
  tile_store<0>(out, out_stride);
  if (count > 1) tile_store<1>(out + out_next, out_stride);
  if (count > 2) tile_store<2>(out + 2 * out_next, out_stride);
  if (count > 3) tile_store<3>(out + 3 * out_next, out_stride);
}

// 2^x for x <= 0 to 1e-4, far below what bfloat16 keeps; exactly 0 from -127 down.
Floats exp2_rough(Floats x) {
  const Floats magic = splat(12582912.0f);  // adding it leaves round(x) in the low bits
  x = larger(x, splat(-127.0f));
  Floats shifted = x + magic, r = x - (shifted - magic);
  Floats p = fma(r, splat(0.05500869f), splat(0.24221063f));
  p = fma(r, p, splat(0.69328292f));
  p = fma(r, p, splat(1.0f));
  return as_floats(bits_of(p) + shift_left(bits_of(shifted), 23));
}

// A query's scores become weights in bfloat16, one row of the tiles.
void softmax(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, std::byte* weights) {
  constexpr float kLog2e = 1.44269504f;
  Scores of = finish_scores(chunk, query, columns, scores);
  Floats factor = splat(of.factor * kLog2e), offset = splat(of.most == kNothing ? 0.0f : -of.most * kLog2e);
  Floats sum = splat(0);
  for (int32_t j = 0; j < columns; j += kStep, weights += kTileBytes) {
    Floats a = exp2_rough(fma(load(scores + j), factor, offset));
    Floats b = exp2_rough(fma(load(scores + j + kLanes), factor, offset));
    _mm512_store_si512(weights, (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v));
    sum = (sum + a) + b;
  }
  chunk.most[query] = of.most;
  chunk.total[query] = sum_lanes(sum);
}

// `rows` of a tile of queries from `first` on.
void attend_block(const AttendChunk& chunk, const Scratch& room, int32_t first, int32_t rows, int32_t columns) {
  int32_t k_steps = static_cast<int32_t>(up_to(chunk.k_dim, kStep)) / kStep, count = chunk.queries - first;
  if (count > kTileRows) count = kTileRows;
  int64_t key_bytes = k_steps * kTileBytes;
  const std::byte* queries = room.queries + first * k_steps * 64;
  for (int32_t b = 0; b < columns / kKeys; b += 4) {
    int32_t blocks = static_cast<int32_t>(least(4, columns / kKeys - b));
    products(queries, room.keys + b * key_bytes, kTileBytes, key_bytes, 64, k_steps, blocks, room.scores + b * kKeys,
             kKeys, kAttendChunk * 4);
  }
  for (int32_t i = 0; i < count; ++i)
    softmax(chunk, first + i, columns, room.scores + i * kAttendChunk, room.weights + i * 64);
  bool direct = count == rows;
  for (int32_t d = 0; d < chunk.v_dim; d += 4 * kLanes) {
    int32_t tiles = static_cast<int32_t>(least(4, (chunk.v_dim - d) / kLanes));
    float* to = direct ? chunk.sums + first * chunk.sums_stride + d : room.sums;
    products(room.weights, room.values + d * 4, int64_t{16} * chunk.v_dim * 4, 64, chunk.v_dim * 4, columns / kStep,
             tiles, to, direct ? kLanes : 256, direct ? chunk.sums_stride * 4 : 64);
    if (direct) continue;
    for (int32_t i = 0; i < count * tiles; ++i) {
      float* row = chunk.sums + (first + i / tiles) * chunk.sums_stride + d + i % tiles * kLanes;
      store(row, load(room.sums + i % tiles * 256 + i / tiles * kLanes));
    }
  }
}

template <class Kv>
void attend_tiles(const AttendChunk& chunk) {
  if (chunk.v_dim % kLanes != 0) return attend<Kv>(chunk);
  Scratch room(chunk.scratch);
  int32_t columns = static_cast<int32_t>(up_to(chunk.positions, kStep));
  arrange_queries(chunk, static_cast<int32_t>(up_to(chunk.k_dim, kStep)) / kStep, room);
  arrange_keys<Kv>(chunk, columns / kKeys, room);
  arrange_values<Kv>(chunk, columns, room);
  int32_t rows = chunk.queries >= kTileRows ? kTileRows
                                            : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(chunk.queries)));
  TileShapes shapes;
  for (int tile : {0, 1, 2, 3, 4}) shapes.set(tile, rows, 64);
  for (int tile : {5, 6, 7}) shapes.set(tile, 16, 64);
  Tiles tiles(shapes);
  for (int32_t first = 0; first < chunk.queries; first += kTileRows) attend_block(chunk, room, first, rows, columns);
}

}  // namespace

void add_amx_attend(Kernels& kernels) {
  auto& fast = kernels.attend[static_cast<size_t>(Activations::fast)];
  fast[kKvF16] = attend_tiles<KvF16>;
  fast[kKvBf16] = attend_tiles<KvBf16>;
}

}  // namespace millrace::cpu

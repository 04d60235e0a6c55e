// Attention for heads of 64 and 128 numbers in a 16-bit cache. Positions are cut into chunks of kChunk at fixed places;
// a chunk is gone through in order, 32 positions at a time, with running maxima; chunks are then merged in order. Rows
// of a long piece go through all their chunks in one thread group; a single row has each chunk computed by a warp of
// its own, and the last of them merges. Both do the same arithmetic for a row, so who computed it cannot be seen.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kKeys = 32;  // positions of a tile
constexpr float kLog2e = 1.44269504f;

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

// Which sequence a tile of a long piece belongs to: tiles of all sequences with more than one row follow one another.
struct LongTile {
  int sequence, first_row, rows, first_query;
};
__device__ inline LongTile find_tile(const DeviceStep& step, int tile, int group, int queries_of_tile, bool singles) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int s = 0; s < step.sequences; s += 32) {
    int rows = 0;
    if (s + lane < step.sequences) rows = step.first_row[s + lane + 1] - step.first_row[s + lane];
    int tiles = rows > 1 || singles ? (rows * group + queries_of_tile - 1) / queries_of_tile : 0, up_to = tiles;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(~0u, up_to, d);
      if (lane >= d) up_to += other;
    }
    const unsigned found = __ballot_sync(~0u, before + up_to > tile);
    if (found != 0) {
      const int which = __ffs(static_cast<int>(found)) - 1;
      const int start = before + __shfl_sync(~0u, up_to - tiles, which), count = __shfl_sync(~0u, rows, which);
      return {s + which, step.first_row[s + which], count, (tile - start) * queries_of_tile};
    }
    before += __shfl_sync(~0u, up_to, 31);
  }
  return {-1, 0, 0, 0};
}

constexpr int kLongWarps = 8;
constexpr int kLongQueries = kLongWarps * 16;
constexpr int kLongStages = 3;

template <class T, int D>
__global__ void __launch_bounds__(kLongWarps * 32, 1)
    long_kernel(DeviceStep step, Attention attention, View q_view, KvView kv, View out, bool singles) {
  using H = Head<T, D>;
  extern __shared__ __align__(128) char shared[];
  wait_for_previous();
  const int group = attention.heads / kv.kv_heads, kv_head = static_cast<int>(blockIdx.y);
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // the longest come last in a piece: start with them
  const LongTile piece = find_tile(step, tile, group, kLongQueries, singles);
  if (piece.sequence < 0) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int queries = piece.rows * group, mine = piece.first_query + warp * 16;
  uint4 q[D / 16];
  read_queries<T, D>(q, q_view, mine, queries, piece.first_row, group, kv_head);
  Sight sight[2] = {sight_of(step, attention, mine + g, queries, piece.first_row, group, kv_head),
                    sight_of(step, attention, mine + g + 8, queries, piece.first_row, group, kv_head)};
  // Positions ascend with rows, so the last query's sight ends last and the first one's begins first.
  const int last_query = min(piece.first_query + kLongQueries, queries) - 1;
  const int end = step.visible[piece.first_row + last_query / group];
  int begin = 0;
  if (attention.window > 0)
    begin = max(0, step.positions[piece.first_row + piece.first_query / group] - attention.window + 1);
  begin = begin / kChunk * kChunk;
  const int tiles = (end - begin + kKeys - 1) / kKeys;
  const Pages pages(step, kv, piece.sequence, kv_head);
  const uint32_t ring = shared_address(shared);
  auto fetch = [&](int number) {
    if (number < tiles) {
      const uint32_t to = ring + static_cast<uint32_t>(number % kLongStages * 2 * H::kTileBytes);
      fetch_tile<D, kLongWarps * 32>(pages, begin + number * kKeys, end, to, to + H::kTileBytes, thread);
    }
    copies_end();
  };
  H head, all;
  head.clear();
  all.clear();
  for (int i = 0; i < kLongStages - 1; ++i) fetch(i);
  for (int number = 0; number < tiles; ++number) {
    copies_wait<kLongStages - 2>();
    __syncthreads();
    fetch(number + kLongStages - 1);
    const uint32_t keys = ring + static_cast<uint32_t>(number % kLongStages * 2 * H::kTileBytes);
    take_tile<T, D>(head, q, keys, keys + H::kTileBytes, begin + number * kKeys, sight, attention.scale,
                    attention.softcap);
    if ((number + 1) % (kChunk / kKeys) == 0 || number + 1 == tiles) {
      close_chunk(head);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Merge factors = merge(all.most[i], all.total[i], head.most[i], head.total[i]);
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
#pragma unroll
          for (int j = 2 * i; j < 2 * i + 2; ++j)
            all.sums[n][j] = all.sums[n][j] * factors.of_all + head.sums[n][j] * factors.of_chunk;
        }
      }
      head.clear();
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = mine + g + 8 * i;
    if (query >= queries) continue;
    const int number = kv_head * group + query % group;
    const int64_t row = piece.first_row + query / group;
    const float factor = last_factor(all.most[i], all.total[i], attention.sinks, number);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) write(out, row, number * D + n * 8 + 2 * t + j, all.sums[n][2 * i + j] * factor);
    }
  }
}

constexpr int kShortStages = 2;
constexpr int kTilesOfChunk = kChunk / kKeys;

// What a chunk came to: [item][head][2 + D]: maximum, sum, values.
template <class T, int D>
__device__ void write_partial(const Head<T, D>& head, int group, float* to) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
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

constexpr int kMergedHeads = 4;  // of a kv head, merged at the same time: eight lanes each

// All chunks of a sequence's kv head, in order. The warp that finished last does it.
template <int D>
__device__ void merge_chunks(const Attention& attention, const float* partials, int chunks, int first_head, int group,
                             int64_t row, const View& out) {
  constexpr int kMine = D / 8;  // numbers of a lane
  const int lane = static_cast<int>(threadIdx.x), part = lane % 8;
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

// One warp for a sequence's kv head and every gridDim.x-th of its chunks. Keys and values of earlier steps are asked
// for before the kernel in front has ended, and so is what the step's arrays say: only queries and the newest position
// depend on it.
template <class T, int D>
__global__ void __launch_bounds__(32)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q_view, const __grid_constant__ KvView kv, const int32_t* first_item,
                 float* partials, unsigned* finished, const __grid_constant__ View out) {
  using H = Head<T, D>;
  extern __shared__ __align__(128) char shared[];
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, stride = static_cast<int>(gridDim.x);
  const int sequence = static_cast<int>(blockIdx.y), kv_head = static_cast<int>(blockIdx.z);
  const int group = attention.heads / kv.kv_heads, item = first_item[sequence];
  const int chunks = first_item[sequence + 1] - item, row = step.first_row[sequence];
  const int mine = (chunks - static_cast<int>(blockIdx.x) + stride - 1) / stride, tiles = mine * kTilesOfChunk;
  if (mine <= 0) return wait_for_previous();
  const int end = step.visible[row], known = min(end, step.positions[row]);
  const Pages pages(step, kv, sequence, kv_head);
  const uint32_t ring = shared_address(shared);
  auto first_of = [&](int tile) {
    return (static_cast<int>(blockIdx.x) + tile / kTilesOfChunk * stride) * kChunk + tile % kTilesOfChunk * kKeys;
  };
  auto fetch = [&](int tile) {
    if (tile >= tiles) return;
    const uint32_t to = ring + static_cast<uint32_t>(tile % kShortStages * 2 * H::kTileBytes);
    fetch_tile<D, 32>(pages, first_of(tile), end, to, to + H::kTileBytes, lane);
  };
  bool early[kShortStages];
#pragma unroll
  for (int i = 0; i < kShortStages; ++i) {
    early[i] = first_of(i) + kKeys <= known;
    if (early[i]) fetch(i);
    copies_end();
  }
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kShortStages; ++i) {
    if (!early[i]) fetch(i);
  }
  copies_end();
  const Sight sight[2] = {sight_of(step, attention, g, group, row, group, kv_head),
                          sight_of(step, attention, g + 8, group, row, group, kv_head)};
  uint4 q[D / 16];
  read_queries<T, D>(q, q_view, 0, group, row, group, kv_head);
  H head;
  head.clear();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile == 0 && early[0])
      copies_wait<2>();
    else if (tile == 0)
      copies_wait<0>();
    else
      copies_wait<1>();
    __syncwarp();
    const uint32_t keys = ring + static_cast<uint32_t>(tile % kShortStages * 2 * H::kTileBytes);
    take_tile<T, D>(head, q, keys, keys + H::kTileBytes, first_of(tile), sight, attention.scale, attention.softcap);
    __syncwarp();
    fetch(tile + kShortStages);
    copies_end();
    if ((tile + 1) % kTilesOfChunk != 0) continue;
    close_chunk(head);
    const int64_t number = item + static_cast<int>(blockIdx.x) + tile / kTilesOfChunk * stride;
    write_partial<T, D>(head, group, partials + (number * attention.heads + kv_head * group) * (D + 2));
    head.clear();
  }
  __threadfence();
  __syncwarp();
  unsigned* counter = finished + sequence * kv.kv_heads + kv_head;
  unsigned before = lane == 0 ? atomicAdd(counter, static_cast<unsigned>(mine)) : 0;
  before = __shfl_sync(~0u, before, 0);
  if (before + static_cast<unsigned>(mine) != static_cast<unsigned>(chunks)) return;
  if (lane == 0) *counter = 0;
  __threadfence();
  merge_chunks<D>(attention, partials + int64_t{item} * attention.heads * (D + 2), chunks, kv_head * group, group, row,
                  out);
}

template <class T, int D>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const AttendPlan& plan) {
  using H = Head<T, D>;
  constexpr int kLongBytes = kLongStages * 2 * H::kTileBytes, kShortBytes = kShortStages * 2 * H::kTileBytes;
  static const bool prepared = prepare(long_kernel<T, D>, kLongBytes) && prepare(short_kernel<T, D>, kShortBytes);
  static_cast<void>(prepared);
  if (plan.shorts) {
    // As many warps as fit at once, or one for each chunk.
    const int64_t pairs = int64_t{step.sequences} * kv.kv_heads, fit = (multiprocessors() * 6 + pairs - 1) / pairs;
    const int64_t across = std::max<int64_t>(1, std::min(fit, plan.longest));
    const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(step.sequences),
                    static_cast<unsigned>(kv.kv_heads));
    launch(stream, short_kernel<T, D>, grid, 32, kShortBytes, step, attention, q, kv, plan.first_item, plan.partials,
           plan.finished, out);
  }
  if (plan.long_queries > 0) {
    const int group = attention.heads / kv.kv_heads;
    // Each sequence may have one tile that is not full.
    const int64_t tiles = plan.long_rows * group / kLongQueries + plan.long_queries;
    launch(stream, long_kernel<T, D>, dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(kv.kv_heads)),
           kLongWarps * 32, kLongBytes, step, attention, q, kv, out, !plan.shorts);
  }
}

}  // namespace

bool attend_fits(const Attention& attention, const KvView& kv) {
  return kv.k_dim == kv.v_dim && (kv.k_dim == 64 || kv.k_dim == 128) && kv.kv_heads > 0 &&
         attention.heads % kv.kv_heads == 0 && attention.heads / kv.kv_heads <= 16;
}

int32_t attend_chunks(int32_t visible) { return (visible + kChunk - 1) / kChunk; }
int64_t attend_partial_floats(int64_t chunks, int32_t heads, int32_t dim) { return chunks * heads * (dim + 2); }

void attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv, View out,
            const AttendPlan& plan) {
  if (kv.type == DType::f16) {
    return kv.k_dim == 64 ? start<__half, 64>(stream, step, attention, q, kv, out, plan)
                          : start<__half, 128>(stream, step, attention, q, kv, out, plan);
  }
  return kv.k_dim == 64 ? start<__nv_bfloat16, 64>(stream, step, attention, q, kv, out, plan)
                        : start<__nv_bfloat16, 128>(stream, step, attention, q, kv, out, plan);
}

}  // namespace millrace::cuda

// Attention of pieces of many rows: a thread block takes 128 query rows of a kv head (rows of the piece times heads of
// the group), four warps for every 64 of them, and goes through all the chunks they see. Four more warps ask for
// queries, keys and values ahead of them, across tiles. The two groups of warps take turns at the matrix units: one
// computes powers while the other multiplies. A group's next scores are under way while its values are summed; behind a
// tile's last chunk they are those of the next tile.
#include <algorithm>

#include "backend/cuda/attend_tile.cuh"
#include "backend/cuda/products.cuh"
#include "backend/cuda/tensor_map.cuh"

namespace millrace::cuda {
namespace {

constexpr int kGroups = 2;  // of four warps that multiply
static_assert(kTileQueries == 64 * kGroups);
constexpr int kThreads = 128 * kGroups + 128;

// Names of barriers among warps; 0 is everybody's.
constexpr int kTurnName = 1, kGroupName = 3;

template <int D>
struct Sizes {
  static constexpr int kHalves = D / 64;
  static constexpr int kKeyStages = D == 128 ? 3 : 6, kValueStages = D == 128 ? 2 : 4;
  static constexpr int kHalfBytes = kChunk * 128;           // 64 numbers of a chunk's keys or values
  static constexpr int kStageBytes = kHalfBytes * kHalves;  // of keys or of values
  static constexpr int kQueryHalfBytes = 64 * 128;          // 64 numbers of a group's queries
  static constexpr int kQueryBytes = kQueryHalfBytes * kHalves;
  static constexpr int kTileBytes = kGroups * kQueryBytes;  // queries of a tile
  static constexpr int kKeysAt = 2 * kTileBytes, kValuesAt = kKeysAt + kKeyStages * kStageBytes;
  static constexpr int kShared = kValuesAt + kValueStages * kStageBytes + 1024;
};

// Where everything is copied from.
struct LongMaps {
  KvMaps kv;
  CUtensorMap queries;
};

template <int D>
struct Barriers {
  uint64_t keys_full[Sizes<D>::kKeyStages], keys_free[Sizes<D>::kKeyStages];
  uint64_t values_full[Sizes<D>::kValueStages], values_free[Sizes<D>::kValueStages];
  uint64_t tile_full[2], tile_free[2], queries_full[2];
};

// sums (64 x N) = weights (64 x 16, in registers) * values (16 x N, a position a row), + sums if they are kept.
// clang-format off
#define MILLRACE_WEIGHTED(OUTPUTS, FORMAT, S, A0, A1, A2, A3, B, KEEP)                                        \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                       \
               "wgmma.mma_async.sync.aligned.m64n" #OUTPUTS "k16.f32." FORMAT "." FORMAT " {"                  \
               MILLRACE_NAMES_OF_##S "}, {" A0 "," A1 "," A2 "," A3 "}, " B ", keep, 1, 1, 1;\n}"              \
               : MILLRACE_SUMS_##S(0)                                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(values), "r"(keep))
#define MILLRACE_WEIGHTED_OF(OUTPUTS, S, A0, A1, A2, A3, B, KEEP)                                             \
  template <class T>                                                                                          \
  __device__ inline void add_weighted(float (&d)[S], const uint32_t* a, uint64_t values, int keep) {          \
    if constexpr (std::is_same_v<T, __half>)                                                                  \
      MILLRACE_WEIGHTED(OUTPUTS, "f16", S, A0, A1, A2, A3, B, KEEP);                                          \
    else                                                                                                      \
      MILLRACE_WEIGHTED(OUTPUTS, "bf16", S, A0, A1, A2, A3, B, KEEP);                                         \
  }
MILLRACE_WEIGHTED_OF(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
MILLRACE_WEIGHTED_OF(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
// clang-format on

// Says where values lie: 16 positions of 128 bytes a row, eight rows a unit, the next 64 numbers half_bytes further.
__device__ inline uint64_t values_at(uint32_t shared, uint32_t half_bytes) {
  return (uint64_t{shared} >> 4 & 0x3FFF) | uint64_t{half_bytes >> 4} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}

// ---- the warps that ask

// Asks for this warp's share of a chunk's boxes, each lane for one. Positions from `end` on are not asked for.
template <int D>
__device__ void ask(const CUtensorMap& map, int run, const KvView& kv, const int32_t* pages, int kv_head, int first,
                    int end, uint32_t to, uint32_t barrier) {
  using Size = Sizes<D>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int number = lane * 4 + warp, half = number % Size::kHalves, position = number / Size::kHalves * run;
  const bool real = position < kChunk && first + position < end;
  const unsigned all = __ballot_sync(~0u, real);
  if (lane == 0) barrier_expect(barrier, static_cast<uint32_t>(__popc(all) * run * 128));
  __syncwarp();
  if (real) {
    const int shift = 31 - __clz(kv.page_tokens), at = first + position;
    const int page = max(pages[at >> shift], 0), row = kv_head * kv.page_tokens + (at & (kv.page_tokens - 1));
    copy_box(to + static_cast<uint32_t>(half * Size::kHalfBytes + position * 128), map, 0, row, half, page, barrier);
  }
  __syncwarp();
}

// Asks for a tile's queries: boxes of the heads of a group, of so many rows that they are 64.
template <int D>
__device__ void ask_queries(const CUtensorMap& map, const QueryTile& tile, int group, uint32_t to, uint32_t barrier) {
  using Size = Sizes<D>;
  barrier_expect(barrier, Size::kTileBytes);
  for (int i = 0; i < kGroups; ++i) {
    const int row = tile.first_row + (tile.first_query + i * 64) / group;
    for (int half = 0; half < Size::kHalves; ++half) {
      const int place = i * Size::kQueryBytes + half * Size::kQueryHalfBytes;
      copy_box(to + static_cast<uint32_t>(place), map, 0, half, tile.kv_head * group, row, barrier);
    }
  }
}

template <int D>
__device__ void bring(const DeviceStep& step, const Attention& attention, const KvView& kv, const LongMaps& maps,
                      const LongWork& work, uint32_t shared, Barriers<D>& barriers, QueryTile* tiles) {
  using Size = Sizes<D>;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int group = attention.heads / kv.kv_heads, all = work.tiles * kv.kv_heads;
  RingPlace<Size::kKeyStages> keys;
  RingPlace<Size::kValueStages> values;
  wait_for_previous();
  fence_copies();
  for (RingPlace<2> turn;; turn.next()) {
    const uint32_t full = shared_address(&barriers.tile_full[turn.stage]);
    if (warp == 0) {
      barrier_wait(shared_address(&barriers.tile_free[turn.stage]), turn.round ^ 1);
      QueryTile found = {};
      found.sequence = -1;
      for (;;) {
        int ticket = 0;
        if (lane == 0) ticket = static_cast<int>(atomicAdd(work.ticket, 1u));
        ticket = __shfl_sync(~0u, ticket, 0);
        if (ticket >= all) {  // each thread block sees this once, and the last of them leaves the counter at zero
          if (lane == 0 && ticket == all + static_cast<int>(gridDim.x) - 1) *work.ticket = 0;
          break;
        }
        // The longest come last in a piece: start with them. One kv head after the other, for the second cache.
        found = find_tile(step, attention, work, work.tiles - 1 - ticket % work.tiles, group);
        found.kv_head = ticket / work.tiles;
        if (found.sequence >= 0) break;
      }
      if (lane == 0) {
        tiles[turn.stage] = found;
        barrier_arrive(full);
        if (work.boxes && found.sequence >= 0)
          ask_queries<D>(maps.queries, found, group, shared + static_cast<uint32_t>(turn.stage * Size::kTileBytes),
                         shared_address(&barriers.queries_full[turn.stage]));
      }
    }
    barrier_wait(full, turn.round);
    const int sequence = tiles[turn.stage].sequence, kv_head = tiles[turn.stage].kv_head, end = tiles[turn.stage].end;
    const int first = tiles[turn.stage].first_chunk * kChunk, chunks = tiles[turn.stage].chunks;
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&barriers.tile_free[turn.stage]));
    if (sequence < 0) return;
    const int32_t* pages = step.pages + int64_t{sequence} * step.page_stride;
    for (int i = 0; i <= chunks; ++i) {  // values are needed one chunk later than keys
      if (i < chunks) {
        barrier_wait(shared_address(&barriers.keys_free[keys.stage]), keys.round ^ 1);
        ask<D>(maps.kv.keys, maps.kv.run, kv, pages, kv_head, first + i * kChunk, end,
               shared + static_cast<uint32_t>(Size::kKeysAt + keys.stage * Size::kStageBytes),
               shared_address(&barriers.keys_full[keys.stage]));
        keys.next();
      }
      if (i > 0) {
        barrier_wait(shared_address(&barriers.values_free[values.stage]), values.round ^ 1);
        ask<D>(maps.kv.values, maps.kv.run, kv, pages, kv_head, first + (i - 1) * kChunk, end,
               shared + static_cast<uint32_t>(Size::kValuesAt + values.stage * Size::kStageBytes),
               shared_address(&barriers.values_full[values.stage]));
        values.next();
      }
    }
  }
}

// ---- the warps that multiply

// Positions that nobody sees may hold anything: zeros instead. Every group does it, to be sure that it has been done.
template <int D>
__device__ void clear_values(uint32_t values, int from) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  constexpr int kPieces = D / 8;
  for (int i = from * kPieces + thread; i < kChunk * kPieces; i += 128) {
    const uint32_t place =
        values + static_cast<uint32_t>(i % kPieces / 8 * Sizes<D>::kHalfBytes + i / kPieces * 128 + i % 8 * 16);
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(place), "r"(0) : "memory");
  }
  fence_copies();
}

template <class T, int D>
__device__ void multiply_keys(float (&scores)[kChunk / 2], uint32_t queries, uint32_t keys) {
  const uint64_t from = inputs_at(queries), with = inputs_at(keys);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const uint64_t step = static_cast<uint64_t>(k % 4 * 2);
    multiply_add<T>(scores, from + static_cast<uint64_t>(k / 4 * 512) + step,
                    with + static_cast<uint64_t>(k / 4 * (Sizes<D>::kHalfBytes / 16)) + step, k);
  }
}

// A chunk's sums join what came before.
template <int D>
__device__ void join_chunk(float (&all)[D / 2], const float (&sums)[D / 2], const Factors (&factors)[2]) {
  if (__any_sync(~0u, factors[0].of_all != 1 || factors[1].of_all != 1)) {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) all[i] *= factors[i % 4 / 2].of_all;
  }
#pragma unroll
  for (int i = 0; i < D / 2; ++i) all[i] = fmaf(sums[i], factors[i % 4 / 2].of_chunk, all[i]);
}

template <class T, int D, bool Shaped>
__device__ void attend_tiles(const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
                             const View& out, const LongWork& work, uint32_t shared, Barriers<D>& barriers,
                             const QueryTile* tiles) {
  using Size = Sizes<D>;
  const int thread = static_cast<int>(threadIdx.x) % 128, mine = static_cast<int>(threadIdx.x) / 128;
  const int group = attention.heads / kv.kv_heads;
  const float factor = Shaped ? kLog2e : attention.scale * kLog2e;
  RingPlace<2> turn;
  RingPlace<Size::kKeyStages> key;  // one ahead of values
  RingPlace<Size::kValueStages> value;
  float scores[kChunk / 2], sums[D / 2], all[D / 2];
  uint32_t weights[kChunk / 4];
  auto queries_at = [&](int stage) {
    return shared + static_cast<uint32_t>(stage * Size::kTileBytes + mine * Size::kQueryBytes);
  };
  // Waits for a tile; false: there are no more.
  auto arrives = [&](const RingPlace<2>& at) {
    barrier_wait(shared_address(&barriers.tile_full[at.stage]), at.round);
    return tiles[at.stage].sequence >= 0;
  };
  auto bring_queries = [&](const RingPlace<2>& at) {
    if (work.boxes) return barrier_wait(shared_address(&barriers.queries_full[at.stage]), at.round);
    const QueryTile& tile = tiles[at.stage];
    put_queries<T, D>(q, tile, group, tile.first_query + mine * 64, queries_at(at.stage));
    fence_copies();
    group_sync(kGroupName + mine, 128);
  };
  auto start_scores = [&](int stage) {
    barrier_wait(shared_address(&barriers.keys_full[key.stage]), key.round);
    products_begin();
    multiply_keys<T, D>(scores, queries_at(stage),
                        shared + static_cast<uint32_t>(Size::kKeysAt + key.stage * Size::kStageBytes));
  };
  auto free_keys = [&] {
    if (thread == 0) barrier_arrive(shared_address(&barriers.keys_free[key.stage]));
    key.next();
  };
  // The tile at hand, the chunk of it that comes next, and what its rows have summed up.
  int first, last, seen_by_all, seen_from;
  float base[2], total[2];
  auto sight = [&](int i) {
    const QueryTile& tile = tiles[turn.stage];
    const int query = tile.first_query + mine * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * i;
    return sight_of(step, attention, query, tile.rows * group, tile.first_row, group, tile.kv_head);
  };
  auto begin_tile = [&] {
    const QueryTile& tile = tiles[turn.stage];
    seen_by_all = __reduce_min_sync(~0u, min(sight(0).end, sight(1).end)) - kChunk;
    seen_from = __reduce_max_sync(~0u, max(sight(0).begin, sight(1).begin));
    first = tile.first_chunk * kChunk;
    last = first + (tile.chunks - 1) * kChunk;
    base[0] = base[1] = -INFINITY;
    total[0] = total[1] = 0;
#pragma unroll
    for (float& value_sum : all) value_sum = 0;
  };
  wait_for_previous();
  if (mine == 1) group_arrive(kTurnName, 256);  // the first group begins
  if (!arrives(turn)) return;
  bring_queries(turn);
  start_scores(turn.stage);
  products_end();
  begin_tile();
  products_finished<0>();
  for (;;) {
    free_keys();
    const bool plain = first >= seen_from && first <= seen_by_all, ends = first == last;
    if (Shaped || !plain) {
      const Sight both[2] = {sight(0), sight(1)};
      shape_scores<Shaped>(scores, first, plain, both, attention);
    }
    ChunkSums chunk = weigh<T>(scores, weights, factor);
    const uint32_t values = shared + static_cast<uint32_t>(Size::kValuesAt + value.stage * Size::kStageBytes);
    barrier_wait(shared_address(&barriers.values_full[value.stage]), value.round);
    if (ends && first + kChunk > tiles[turn.stage].end) {
      clear_values<D>(values, tiles[turn.stage].end - first);
      group_sync(kGroupName + mine, 128);
    }
    RingPlace<2> next = turn;
    bool more = true;
    if (ends) {
      next.next();
      more = arrives(next);
      if (more) bring_queries(next);
    }
    group_sync(kTurnName + mine, 256);
    products_begin();
    const uint64_t from = values_at(values, Size::kHalfBytes);
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k)
      add_weighted<T>(sums, weights + 4 * k, from + static_cast<uint64_t>(k * 128), k);
    products_end();
    if (more) start_scores(next.stage);
    products_end();
    group_arrive(kTurnName + (mine ^ 1), 256);
    Factors factors[2];
    join_rows(base, total, chunk, factors);
    products_finished<1>();
    if (thread == 0) barrier_arrive(shared_address(&barriers.values_free[value.stage]));
    value.next();
    join_chunk<D>(all, sums, factors);
    products_finished<0>();
    first += kChunk;
    if (!ends) continue;
    const QueryTile& tile = tiles[turn.stage];
    put_results<D>(out, attention, tile, group, tile.first_query + mine * 64 + thread / 32 * 16 + thread % 32 / 4, base,
                   total, all);
    group_sync(kGroupName + mine, 128);
    if (thread == 0) barrier_arrive(shared_address(&barriers.tile_free[turn.stage]));
    if (!more) return;
    turn = next;
    begin_tile();
  }
}

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    long_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                const __grid_constant__ LongMaps maps, const __grid_constant__ LongWork work) {
  using Size = Sizes<D>;
  extern __shared__ char raw[];
  __shared__ Barriers<D> barriers;
  __shared__ QueryTile tiles[2];
  const uint32_t shared = (shared_address(raw) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Size::kKeyStages; ++i) {
      barrier_begin(shared_address(&barriers.keys_full[i]), 4);
      barrier_begin(shared_address(&barriers.keys_free[i]), kGroups);
    }
    for (int i = 0; i < Size::kValueStages; ++i) {
      barrier_begin(shared_address(&barriers.values_full[i]), 4);
      barrier_begin(shared_address(&barriers.values_free[i]), kGroups);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_begin(shared_address(&barriers.queries_full[i]), 1);
      barrier_begin(shared_address(&barriers.tile_full[i]), 1);
      barrier_begin(shared_address(&barriers.tile_free[i]), kGroups + 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < kGroups * 128) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    attend_tiles<T, D, Shaped>(step, attention, q, kv, out, work, shared, barriers, tiles);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    bring<D>(step, attention, kv, maps, work, shared, barriers, tiles);
  }
}

// Rows of queries: boxes of 64 numbers of the heads that share keys, 64 queries in all. False: they cannot be had so.
template <class T>
bool map_queries(CUtensorMap& map, const View& q, int heads, int group, int dim) {
  if (!is_form<T>(q.form) || 64 % group != 0) return false;
  const cuuint64_t sizes[4] = {64, static_cast<cuuint64_t>(dim / 64), static_cast<cuuint64_t>(heads),
                               static_cast<cuuint64_t>(q.rows)};
  const cuuint64_t strides[3] = {128, static_cast<cuuint64_t>(dim) * 2, static_cast<cuuint64_t>(q.stride)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(group), static_cast<cuuint32_t>(64 / group)};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, q.data, sizes, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const KvMaps& maps, const AttendPlan& plan) {
  static const bool prepared = prepare(long_kernel<T, D, Shaped>, Sizes<D>::kShared);
  static_cast<void>(prepared);
  const int64_t group = attention.heads / kv.kv_heads;
  // Each sequence may have one tile that is not full.
  const int64_t tiles = plan.long_rows * group / kTileQueries + plan.long_queries;
  LongMaps all = {maps, {}};
  LongWork work = {plan.finished, static_cast<int32_t>(tiles), !plan.shorts, false};
  work.boxes = map_queries<T>(all.queries, q, attention.heads, static_cast<int>(group), D);
  const unsigned grid = count(std::min<int64_t>(multiprocessors(), tiles * kv.kv_heads));
  launch(stream, long_kernel<T, D, Shaped>, grid, kThreads, Sizes<D>::kShared, step, attention, q, kv, out, all, work);
}

}  // namespace

void attend_long(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                 const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan) {
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    start<T, D, Shaped>(stream, step, attention, q, kv, out, maps, plan);
  });
}

cudaError_t load_attend_long() { return load_kernels(); }

}  // namespace millrace::cuda

// Attention of pieces of many rows without Hopper's instructions: a thread group takes a tile of 128 query rows of a kv
// head, sixteen a warp, through all the chunks they see. The next chunk's keys come while values are multiplied, its
// values while keys are.
#include "backend/cuda/attend_chunk.cuh"
#include "backend/cuda/portable/chunks.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

constexpr int kThreads = kTileQueries / 16 * 32;

template <int D>
struct Sizes {
  static constexpr int kQueryBytes = 64 * D * 2;  // of 64 queries, as put_queries() lays them
  static constexpr int kSideBytes = kChunk * D * 2;
  static constexpr int kKeysAt = kTileQueries / 64 * kQueryBytes, kValuesAt = kKeysAt + kSideBytes;
  static constexpr int kShared = kValuesAt + kSideBytes;
  static_assert(kShared <= 99 << 10);
};

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    long_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                const __grid_constant__ LongWork work) {
  using Size = Sizes<D>;
  extern __shared__ __align__(128) char raw[];
  const uint32_t shared = shared_address(raw), keys = shared + Size::kKeysAt, values = shared + Size::kValuesAt;
  const int thread = static_cast<int>(threadIdx.x), group = attention.heads / kv.kv_heads;
  wait_for_previous();
  // The longest come last in a piece: start with them.
  QueryTile tile = find_tile(step, attention, work, work.tiles - 1 - static_cast<int>(blockIdx.x), group);
  tile.kv_head = static_cast<int>(blockIdx.y);
  if (tile.sequence < 0) return;
  const int32_t* pages = step.pages + int64_t{tile.sequence} * step.page_stride;
  int first = tile.first_chunk * kChunk;
  const int last = first + (tile.chunks - 1) * kChunk;
  auto bring = [&](int64_t offset, int start, uint32_t to) {
    if (start <= last) bring_chunk<D, kThreads>(kv, pages, offset, tile.kv_head, start, tile.end, to, thread);
    copies_end();
  };
  bring(kv.k_offset, first, keys);
  bring(kv.v_offset, first, values);
  const int half = thread / 128, mine = tile.first_query + thread / 32 * 16 + thread % 32 / 4;
  const uint32_t queries = shared + static_cast<uint32_t>(half * Size::kQueryBytes);
  put_queries<T, D>(q, tile, group, tile.first_query + half * 64, queries);
  auto sight = [&](int i) {
    return sight_of(step, attention, mine + 8 * i, tile.rows * group, tile.first_row, group, tile.kv_head);
  };
  const int seen_by_all = __reduce_min_sync(~0u, min(sight(0).end, sight(1).end)) - kChunk;
  const int seen_from = __reduce_max_sync(~0u, max(sight(0).begin, sight(1).begin));
  const float factor = Shaped ? kLog2e : attention.scale * kLog2e;
  float all[D / 2] = {}, base[2] = {-INFINITY, -INFINITY}, total[2] = {};
  for (; first <= last; first += kChunk) {
    copies_wait<1>();
    __syncthreads();
    float scores[kChunk / 2];
    multiply_keys<T, D>(scores, queries + static_cast<uint32_t>(thread / 32 % 4 * 16 * 128), keys);
    __syncthreads();
    bring(kv.k_offset, first + kChunk, keys);
    const bool plain = first >= seen_from && first <= seen_by_all;
    if (Shaped || !plain) {
      const Sight both[2] = {sight(0), sight(1)};
      shape_scores<Shaped>(scores, first, plain, both, attention);
    }
    uint32_t weights[kChunk / 4];
    ChunkSums chunk = weigh<T>(scores, weights, factor);
    Factors factors[2];
    join_rows(base, total, chunk, factors);
    copies_wait<1>();
    __syncthreads();
    add_values<T, D>(all, weights, factors, values);
    __syncthreads();
    bring(kv.v_offset, first + kChunk, values);
  }
  put_results<D>(out, attention, tile, group, mine, base, total, all);
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const AttendPlan& plan) {
  static const bool prepared = prepare(long_kernel<T, D, Shaped>, Sizes<D>::kShared);
  static_cast<void>(prepared);
  // Each sequence may have one tile that is not full.
  const int64_t tiles = plan.long_rows * (attention.heads / kv.kv_heads) / kTileQueries + plan.long_queries;
  const LongWork work = {nullptr, static_cast<int32_t>(tiles), !plan.shorts};
  launch(stream, long_kernel<T, D, Shaped>, dim3(count(tiles), count(kv.kv_heads)), kThreads,
         static_cast<size_t>(Sizes<D>::kShared), step, attention, q, kv, out, work);
}

}  // namespace

cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan& plan) {
  if (plan.shorts) attend_short(stream, step, attention, q, kv, out, plan);
  if (plan.long_queries > 0)
    by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
      start<T, D, Shaped>(stream, step, attention, q, kv, out, plan);
    });
  return cudaSuccess;
}

cudaError_t load_attend_long() { return load_kernels(); }

}  // namespace millrace::cuda::portable

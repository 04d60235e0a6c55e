// Pieces of many rows whose thread blocks copy keys and values for themselves (attend_copied.cuh says who): a thread
// block takes a tile of 128 query rows of a kv head, sixteen a warp, through all the chunks they see. Of its Side this
// asks besides:
//   keys(first), values(first)   where that chunk lies as multiply_keys() and add_values() take it; all threads call it
//   keys_read(), values_read()   all threads call it when they are done with that; may wait for all
//   scale_scores(scores)         what scores are multiplied with
//   weight_scale()               what weights are multiplied with, as weigh() takes it
// Device code and the host's side of it.
#pragma once

#include "backend/cuda/attend_chunk.cuh"

namespace millrace::cuda {

inline constexpr int kPieceThreads = kTileQueries / 16 * 32;

template <class Side>
struct PieceRoom {
  static constexpr int kQueryBytes = 64 * Side::kDim * 2;  // of 64 queries, as put_queries() lays them
  static constexpr int kSideAt = kTileQueries / 64 * kQueryBytes, kAll = kSideAt + Side::kPieceRoomBytes;
  static_assert(kAll <= 99 << 10);
};

namespace {
template <class Side, bool Shaped>
__global__ void __launch_bounds__(kPieceThreads, 1)
    copied_long_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                       const __grid_constant__ View q, const __grid_constant__ KvView kv,
                       const __grid_constant__ View out, const __grid_constant__ LongWork work,
                       const __grid_constant__ typename Side::Known known) {
  using T = typename Side::Number;
  constexpr int D = Side::kDim;
  extern __shared__ __align__(128) char raw[];
  const uint32_t shared = shared_address(raw);
  const int thread = static_cast<int>(threadIdx.x), group = attention.heads / kv.kv_heads;
  wait_for_previous();
  // The longest come last in a piece: start with them.
  QueryTile tile = find_tile(step, attention, work, work.tiles - 1 - static_cast<int>(blockIdx.x), group);
  tile.kv_head = static_cast<int>(blockIdx.y);
  if (tile.sequence < 0) return;
  int first = tile.first_chunk * kChunk;
  const int last = first + (tile.chunks - 1) * kChunk;
  const int first_seen = sight_begin(attention, step.positions[tile.first_row + tile.first_query / group]);
  Side side(known, kv, raw + PieceRoom<Side>::kSideAt, thread, first_seen, tile.end);
  side.begin(step.pages + int64_t{tile.sequence} * step.page_stride, tile.kv_head);
  auto bring_keys = [&](int at) {
    if (at <= last) side.bring_keys(at, tile.end);
    copies_end();
  };
  auto bring_values = [&](int at) {
    if (at <= last) side.bring_values(at, tile.end);
    copies_end();
  };
  bring_keys(first);
  bring_values(first);
  const int half = thread / 128, mine = tile.first_query + thread / 32 * 16 + thread % 32 / 4;
  const uint32_t queries = shared + static_cast<uint32_t>(half * PieceRoom<Side>::kQueryBytes);
  put_queries<T, D, Side::kParted>(q, tile, group, tile.first_query + half * 64, queries);
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
    multiply_keys<T, D>(scores, queries + static_cast<uint32_t>(thread / 32 % 4 * 16 * 128), side.keys(first));
    side.keys_read();
    bring_keys(first + kChunk);
    side.scale_scores(scores);
    const bool plain = first >= seen_from && first <= seen_by_all;
    if (Shaped || !plain) {
      const Sight both[2] = {sight(0), sight(1)};
      shape_scores<Shaped>(scores, first, plain, both, attention);
    }
    uint32_t weights[kChunk / 4];
    ChunkSums chunk = weigh<T>(scores, weights, factor, side.weight_scale());
    Factors factors[2];
    join_rows(base, total, chunk, factors);
    copies_wait<1>();
    __syncthreads();
    add_values<T, D>(all, weights, factors, side.values(first));
    side.values_read();
    bring_values(first + kChunk);
  }
  put_results<D>(out, attention, tile, group, mine, base, total, all);
}

template <class Side, bool Shaped>
void start_copied_long(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                       const KvView& kv, const View& out, const AttendPlan& plan, const typename Side::Known& known) {
  static const bool prepared = prepare(copied_long_kernel<Side, Shaped>, PieceRoom<Side>::kAll);
  static_cast<void>(prepared);
  // Each sequence may have one tile that is not full.
  const int64_t tiles = plan.long_rows * (attention.heads / kv.kv_heads) / kTileQueries + plan.long_queries;
  const LongWork work = {nullptr, static_cast<int32_t>(tiles), !plan.shorts};
  launch(stream, copied_long_kernel<Side, Shaped>, dim3(count(tiles), count(kv.kv_heads)), kPieceThreads,
         static_cast<size_t>(PieceRoom<Side>::kAll), step, attention, q, kv, out, work, known);
}
}  // namespace

}  // namespace millrace::cuda

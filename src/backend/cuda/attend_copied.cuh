// Attention whose thread blocks copy keys and values for themselves, sixteen bytes a copy: for GPUs without Hopper's
// copy engine (portable/), and for codes, which are no boxes of numbers (attend_small.cu). The next keys come while
// values are multiplied, the next values while keys are. A Side says what is copied and how:
//   kRoomBytes                of shared memory
//   begin(pages, kv_head)     whose chunks come next
//   bring_keys(first, end), bring_values(first, end)   asks for the chunk at `first`, of which positions before `end`
//                             are seen
// Device code and the host's side of it.
#pragma once

#include <algorithm>

#include "backend/cuda/attend_stretch.cuh"

namespace millrace::cuda {

// ---- single rows: a thread block is a team

template <class Four, class Side>
struct CopiedFeed {
  static constexpr int kJoinBatch = Side::kJoinBatch;
  static constexpr int kRoomBytes = Side::kRoomBytes;
  using Join = Joiner<Four::kDim, kJoinBatch>;
  static_assert(kTeamWarps * Join::kRooms * Join::kRoom <= kRoomBytes);
  const Four& team;
  const DeviceStep& step;
  Side& side;
  int next_keys = 0, next_values = 0, last = 0, seen_end = 0;

  __device__ void bring_keys() {
    if (next_keys < last) side.bring_keys(next_keys * kChunk, seen_end);
    copies_end();
    ++next_keys;
  }
  __device__ void bring_values() {
    if (next_values < last) side.bring_values(next_values * kChunk, seen_end);
    copies_end();
    ++next_values;
  }
  __device__ void begin(const ChunkPlace& place, int first, int to, int end) {
    next_keys = next_values = first;
    last = to;
    seen_end = end;
    side.begin(step.pages + int64_t{place.sequence} * step.page_stride, place.kv_head);
    bring_keys();
    bring_values();
  }
  // What was asked for longest ago.
  __device__ void arrived() {
    copies_wait<1>();
    team.sync();
  }
  __device__ uint32_t keys() {
    arrived();
    return side.keys_at();
  }
  __device__ void keys_read() {}
  __device__ void keys_free() { bring_keys(); }
  __device__ uint32_t values() {
    arrived();
    return side.values_at();
  }
  __device__ void values_read() {
    team.sync();
    bring_values();
  }
};

// What a step's single rows need, beside what a Side knows.
struct SingleRows {
  DeviceStep step;
  Attention attention;
  View q, out;
  KvView kv;
  AttendPlan::Fresh fresh;
  const int32_t* first_item;
  float* partials;
  unsigned* finished;
  const StretchStart* stretches;
  bool stretches_there;
};

namespace {
template <class Side, bool Shaped>
__global__ void __launch_bounds__(kTeamThreads, Side::kTeamsBeside)
    copied_short_kernel(const __grid_constant__ SingleRows rows, const __grid_constant__ typename Side::Known known) {
  using Four = typename Side::Four;
  extern __shared__ __align__(128) char raw[];
  __shared__ Exchange exchange;
  __shared__ __align__(16) char queries[Four::kQueryBytes];
  __shared__ unsigned before[2];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < Four::kQueryBytes / 16; i += kTeamThreads)
    reinterpret_cast<uint4*>(queries)[i] = {0, 0, 0, 0};
  __syncthreads();
  const ChunkList work = {rows.first_item, rows.step.sequences, rows.kv.kv_heads};
  if (!rows.stretches_there) wait_for_previous();  // it finds them
  const StretchStart start = rows.stretches[blockIdx.x];
  Side side(known, rows.kv, shared_address(raw), thread);
  Four team = side.team(exchange, shared_address(queries));
  CopiedFeed<Four, Side> feed = {team, rows.step, side};
  Stretch<Four, Shaped, CopiedFeed<Four, Side>> stretch = {.step = rows.step,
                                                           .attention = rows.attention,
                                                           .kv = rows.kv,
                                                           .q = rows.q,
                                                           .out = rows.out,
                                                           .work = work,
                                                           .fresh = rows.fresh,
                                                           .partials = rows.partials,
                                                           .finished = rows.finished,
                                                           .before = before,
                                                           .team = team,
                                                           .start = start,
                                                           .shares = start.shares,
                                                           .me = static_cast<int>(blockIdx.x),
                                                           .thread = thread,
                                                           .group = rows.attention.heads / rows.kv.kv_heads};
  stretch.run(feed, shared_address(raw));
}

template <class Side, bool Shaped>
void start_copied_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                        const KvView& kv, const View& out, const AttendPlan& plan, const typename Side::Known& known) {
  // All of them run at the same time: no more than there is room for.
  static const int beside = [] {
    prepare(copied_short_kernel<Side, Shaped>, Side::kRoomBytes);
    int number = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, copied_short_kernel<Side, Shaped>, kTeamThreads,
                                                  Side::kRoomBytes);
    return std::max(number, 1);
  }();
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  const int teams = static_cast<int>(std::min({int64_t{multiprocessors()} * beside, most, int64_t{kMostTeams}}));
  const StretchStart* stretches = find_stretches(stream, step, plan, kv.kv_heads, teams);
  const SingleRows rows = {
      step,      attention,           q, out, kv, plan.fresh, plan.first_item, plan.partials, plan.finished,
      stretches, plan.stretches_there};
  launch(stream, copied_short_kernel<Side, Shaped>, count(teams), kTeamThreads, static_cast<size_t>(Side::kRoomBytes),
         rows, known);
}
}  // namespace

}  // namespace millrace::cuda

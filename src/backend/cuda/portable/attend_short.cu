// Attention of sequences of one row without Hopper's instructions: a thread group is a team of four warps that goes
// through its stretch of all chunks (attend_stretch.cuh) and copies keys and values for itself: the next keys come
// while values are multiplied, the next values while keys are.
#include <algorithm>

#include "backend/cuda/attend_stretch.cuh"
#include "backend/cuda/portable/chunks.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

template <int D>
constexpr int kSideBytes = kChunk* D * 2;  // keys or values of a chunk

template <class T, int D>
struct Copied {
  static constexpr int kJoinBatch = D == 128 ? 32 : 16;
  static constexpr int kRoomBytes = 2 * kSideBytes<D>;
  static_assert(kTeamWarps * Joiner<D, kJoinBatch>::kRooms * Joiner<D, kJoinBatch>::kRoom <= 2 * kSideBytes<D>);
  const Team<T, D>& team;
  const DeviceStep& step;
  const KvView& kv;
  uint32_t room;
  int thread;
  const int32_t* pages = nullptr;
  int kv_head = 0, next_keys = 0, next_values = 0, last = 0, seen_end = 0;

  __device__ void bring(int& chunk, int64_t offset, uint32_t to) {
    if (chunk < last) bring_chunk<D, kTeamThreads>(kv, pages, offset, kv_head, chunk * kChunk, seen_end, to, thread);
    copies_end();
    ++chunk;
  }
  __device__ void begin(const ChunkPlace& place, int first, int to, int end) {
    pages = step.pages + int64_t{place.sequence} * step.page_stride;
    kv_head = place.kv_head;
    next_keys = next_values = first;
    last = to;
    seen_end = end;
    bring(next_keys, kv.k_offset, room);
    bring(next_values, kv.v_offset, room + kSideBytes<D>);
  }
  __device__ uint32_t keys() {
    copies_wait<1>();
    team.sync();
    return room;
  }
  __device__ void keys_read() {}
  __device__ void keys_free() { bring(next_keys, kv.k_offset, room); }
  __device__ uint32_t values() { return keys() + kSideBytes<D>; }
  __device__ void values_read() {
    team.sync();
    bring(next_values, kv.v_offset, room + kSideBytes<D>);
  }
};

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kTeamThreads)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                 const __grid_constant__ AttendPlan::Fresh fresh, const int32_t* first_item, float* partials,
                 unsigned* finished, const StretchStart* stretches) {
  using Four = Team<T, D>;
  extern __shared__ __align__(128) char raw[];
  __shared__ Exchange exchange;
  __shared__ __align__(16) char queries[Four::kQueryBytes];
  __shared__ unsigned before[2];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < Four::kQueryBytes / 16; i += kTeamThreads)
    reinterpret_cast<uint4*>(queries)[i] = {0, 0, 0, 0};
  __syncthreads();
  const ChunkList work = {first_item, step.sequences, kv.kv_heads};
  const StretchStart start = stretches[blockIdx.x];
  Four team = {exchange, shared_address(queries), 1, kChunk, thread / 32, {}, {}, {}};
  Stretch<T, D, Shaped, Copied<T, D>> stretch = {.step = step,
                                                 .attention = attention,
                                                 .kv = kv,
                                                 .q = q,
                                                 .out = out,
                                                 .work = work,
                                                 .fresh = fresh,
                                                 .partials = partials,
                                                 .finished = finished,
                                                 .before = before,
                                                 .team = team,
                                                 .start = start,
                                                 .shares = start.shares,
                                                 .me = static_cast<int>(blockIdx.x),
                                                 .thread = thread,
                                                 .group = attention.heads / kv.kv_heads};
  Copied<T, D> copied = {team, step, kv, shared_address(raw), thread};
  stretch.run(copied, shared_address(raw));
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const AttendPlan& plan) {
  // All of them run at the same time: no more than there is room for.
  static const int beside = [] {
    prepare(short_kernel<T, D, Shaped>, 2 * kSideBytes<D>);
    int number = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, short_kernel<T, D, Shaped>, kTeamThreads, 2 * kSideBytes<D>);
    return std::max(number, 1);
  }();
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  const int teams = static_cast<int>(std::min({int64_t{multiprocessors()} * beside, most, int64_t{kMostTeams}}));
  const StretchStart* stretches = find_stretches(stream, step, plan, kv.kv_heads, teams);
  launch(stream, short_kernel<T, D, Shaped>, count(teams), kTeamThreads, static_cast<size_t>(2 * kSideBytes<D>), step,
         attention, q, kv, out, plan.fresh, plan.first_item, plan.partials, plan.finished, stretches);
}

}  // namespace

void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const AttendPlan& plan) {
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    start<T, D, Shaped>(stream, step, attention, q, kv, out, plan);
  });
}

cudaError_t load_attend_short() { return load_kernels(); }

}  // namespace millrace::cuda::portable

// Attention of sequences of one row on Hopper: two teams of four warps on every multiprocessor take a stretch of all
// chunks each (attend_stretch.cuh), so that one computes while the other waits. For each team a warp asks for keys and
// values ahead, through a ring.
#include <algorithm>

#include "backend/cuda/attend_stretch.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = kTeamWarps;
constexpr int kTeams = 2;
constexpr int kThreads = kTeams * (kTeamThreads + 32);
constexpr int kBatch = 64;          // chunks joined at a time
constexpr int kBegun = 1 + kTeams;  // names of barriers: teams have the first

template <int D>
struct Sizes {
  static constexpr int kEntryBytes = kChunk * D * 2;  // keys or values of a chunk
  static constexpr int kEntries = D == 128 ? 3 : 6;   // of a team's ring
  static constexpr int kRingBytes = kEntries * kEntryBytes;
  static constexpr int kShared = kTeams * kRingBytes + 1024;
  static_assert(kWarps * Joiner<D, kBatch>::kRooms * Joiner<D, kBatch>::kRoom <= kRingBytes);
};

// Every thread block has a team at work before any has two.
__device__ inline int number_of(int team) { return static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x); }

// ---- the warps that ask

template <int D>
__device__ void bring(const DeviceStep& step, const Attention& attention, const KvView& kv, const KvMaps& maps,
                      const ChunkList& work, bool fresh, const StretchStart& begins, uint32_t ring, uint64_t* full,
                      uint64_t* free) {
  using Size = Sizes<D>;
  const int lane = static_cast<int>(threadIdx.x) % 32, shift = 31 - __clz(kv.page_tokens);
  const int first = begins.first, last = begins.last;
  const uint64_t policy = read_once();
  bool waited = false;
  if (first < last) {
    ChunkPlace place = begins.place;
    RingPlace<Size::kEntries> turn;
    int sequence = place.sequence, end = 0, known = 0, begin = 0;
    auto look = [&](int position, int visible) {
      end = visible, begin = sight_begin(attention, position);
      known = fresh ? end + kChunk : min(end, position - step.linked);
    };
    look(begins.position, begins.visible);
    for (int number = first; number < last; ++number, work.next(place)) {
      if (place.sequence != sequence) {
        sequence = place.sequence;
        const int row = step.first_row[sequence];
        look(step.positions[row], step.visible[row]);
      }
      const int start = place.chunk * kChunk, at = start + lane * maps.run;
      if (start + kChunk <= begin) continue;
      const bool real = lane * maps.run < kChunk && at < end;
      int page = 0;
      if (real) page = max(step.pages[int64_t{sequence} * step.page_stride + (at >> shift)], 0);
      const int row = place.kv_head * kv.page_tokens + (at & (kv.page_tokens - 1));
      const uint32_t bytes = static_cast<uint32_t>(__popc(__ballot_sync(~0u, real)) * maps.run * D * 2);
      if (!waited && start + kChunk > known) {  // the newest position comes from the kernel in front
        wait_for_previous();
        fence_copies();
        waited = true;
      }
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        barrier_wait(shared_address(&free[turn.stage]), turn.round ^ 1);
        const uint32_t barrier = shared_address(&full[turn.stage]);
        if (lane == 0) barrier_expect(barrier, bytes);
        __syncwarp();
        const uint32_t to = ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes + lane * maps.run * D * 2);
        if (real) copy_box(to, side == 0 ? maps.keys : maps.values, 0, row, 0, page, barrier, policy);
        __syncwarp();
        turn.next();
      }
    }
  }
  if (!waited) wait_for_previous();
}

// ---- the teams

// What the warp that asks has brought.
template <class T, int D>
struct Brought {
  using Size = Sizes<D>;
  static constexpr int kJoinBatch = kBatch;
  static constexpr int kRoomBytes = Size::kRingBytes;
  uint32_t ring;
  uint64_t *full, *free;
  RingPlace<Size::kEntries> turn = {};

  __device__ void begin(const ChunkPlace&, int, int, int) {}
  __device__ uint32_t keys() {
    barrier_wait(shared_address(&full[turn.stage]), turn.round);
    return ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes);
  }
  __device__ void keys_read() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&free[turn.stage]));
    turn.next();
  }
  __device__ void keys_free() {}
  __device__ uint32_t values() { return keys(); }
  __device__ void values_read() { keys_read(); }
};

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                 const __grid_constant__ KvMaps maps, const __grid_constant__ AttendPlan::Fresh fresh,
                 const int32_t* first_item, float* partials, unsigned* finished, const StretchStart* stretches,
                 bool stretches_there) {
  using Size = Sizes<D>;
  using Four = Team<T, D>;
  extern __shared__ char raw[];
  __shared__ uint64_t full[kTeams][Size::kEntries], free[kTeams][Size::kEntries];
  __shared__ Exchange exchange[kTeams];
  __shared__ __align__(16) char queries[kTeams][Four::kQueryBytes];
  __shared__ unsigned before[kTeams][2];
  const uint32_t rings = (shared_address(raw) + 1023) & ~1023u;
  const int thread = static_cast<int>(threadIdx.x);
  const bool asks = thread >= kTeams * kTeamThreads;
  const int number = asks ? thread / 32 - kTeams * kWarps : thread / kTeamThreads;
  if (!stretches_there) wait_for_previous();
  const StretchStart start = stretches[number_of(number)];  // asked for now, needed further down
  const ChunkList work = {first_item, step.sequences, kv.kv_heads};
  const uint32_t ring = rings + static_cast<uint32_t>(number * Size::kRingBytes);
  if (asks) {  // at once, without waiting for the teams
    const int lane = thread % 32;
    if (lane < 2) asm volatile("prefetch.tensormap [%0];" ::"l"(lane == 0 ? &maps.keys : &maps.values) : "memory");
    if (lane < Size::kEntries) {
      barrier_begin(shared_address(&full[number][lane]), 1);
      barrier_begin(shared_address(&free[number][lane]), kWarps);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    group_arrive(kBegun + number, kTeamThreads + 32);
    bring<D>(step, attention, kv, maps, work, fresh.table != nullptr, start, ring, full[number], free[number]);
    return;
  }
#pragma unroll 1
  for (int i = thread % kTeamThreads; i < Four::kQueryBytes / 16; i += kTeamThreads)
    reinterpret_cast<uint4*>(queries[number])[i] = {0, 0, 0, 0};
  group_sync(kBegun + number, kTeamThreads + 32);
  Four team = {
      exchange[number], shared_address(queries[number]), 1 + number, maps.run, thread / 32 % kWarps, {}, {}, {}};
  Stretch<Four, Shaped, Brought<T, D>> stretch = {step,
                                                  attention,
                                                  kv,
                                                  q,
                                                  out,
                                                  work,
                                                  fresh,
                                                  partials,
                                                  finished,
                                                  before[number],
                                                  team,
                                                  start,
                                                  start.shares,
                                                  number_of(number),
                                                  thread % kTeamThreads,
                                                  attention.heads / kv.kv_heads};
  Brought<T, D> brought = {ring, full[number], free[number]};
  stretch.run(brought, ring);
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const KvMaps& maps, const AttendPlan& plan) {
  static const bool prepared = prepare(short_kernel<T, D, Shaped>, Sizes<D>::kShared);
  static_cast<void>(prepared);
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  const int groups = static_cast<int>(std::min<int64_t>(multiprocessors(), most));
  const StretchStart* stretches = find_stretches(stream, step, plan, kv.kv_heads, groups * kTeams);
  launch(stream, short_kernel<T, D, Shaped>, count(groups), kThreads, Sizes<D>::kShared, step, attention, q, kv, out,
         maps, plan.fresh, plan.first_item, plan.partials, plan.finished, stretches, plan.stretches_there);
}

}  // namespace

void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan) {
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    start<T, D, Shaped>(stream, step, attention, q, kv, out, maps, plan);
  });
}

cudaError_t load_attend_short() { return load_kernels(); }

}  // namespace millrace::cuda

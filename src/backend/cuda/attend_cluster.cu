// Attention of few sequences of one row and few chunks on Hopper, where most time goes into handing over. A cluster of
// thread blocks has a kv head of a sequence; its chunks are dealt out to their teams, two each (attend_team.cuh). What
// a team finds goes straight into the shared memory of the cluster's first thread block, which joins it in order: no
// counters, no way through memory. The arithmetic is that of attend.cuh.
#include <algorithm>

#include "backend/cuda/attend_fresh.cuh"
#include "backend/cuda/attend_team.cuh"

namespace millrace::cuda {
namespace {

constexpr int kTeams = 2;
constexpr int kThreads = kTeams * (kTeamThreads + 32);
constexpr int kBegun = 1 + kTeams;      // names of barriers: teams have the first
constexpr int kRingBytes = 64 << 10;    // of a team, for keys and values
constexpr int kMostShared = 204 << 10;  // beside what is of fixed size
constexpr int kMostTogether = 8;        // thread blocks of a cluster

template <int D>
struct Sizes {
  static constexpr int kEntryBytes = kChunk * D * 2;  // keys or values of a chunk
  static constexpr int kEntries = kRingBytes / kEntryBytes;
  static constexpr int kPitch = (D + 4) * 4;  // of a row of results: values, maximum, sum
  static constexpr int kRowBytes = (D + 2) * 4;
  static int shared(int64_t chunks, int group) {
    return 1024 + kTeams * kRingBytes + static_cast<int>(chunks) * group * kPitch;
  }
};

__device__ inline uint32_t at_first(uint32_t address) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(address));
  return there;
}
// Two numbers into shared memory of another thread block, counted at a barrier there.
__device__ inline void send_two(uint32_t to, float x, float y, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(to),
               "f"(x), "f"(y), "r"(barrier)
               : "memory");
}

// Which chunks a team has of its cluster's: every `step`-th from `first` on.
struct Deal {
  int sequence, kv_head, first, step;
};

// ---- the warps that ask

template <int D>
__device__ void bring(const DeviceStep& step, const Attention& attention, const KvView& kv, const KvMaps& maps,
                      const Deal& deal, bool fresh, uint32_t ring, uint64_t* full, uint64_t* free) {
  using Size = Sizes<D>;
  const int lane = static_cast<int>(threadIdx.x) % 32, shift = 31 - __clz(kv.page_tokens);
  const int32_t* pages = step.pages + int64_t{deal.sequence} * step.page_stride;
  const bool used = lane * maps.run < kChunk;
  auto page_of = [&](int chunk) {
    const int page = (chunk * kChunk + lane * maps.run) >> shift;
    return used && page < step.page_stride ? pages[page] : 0;
  };
  int page = page_of(deal.first);  // asked for before it is known whether it is needed
  const int position = step.positions[deal.sequence], end = step.visible[deal.sequence];
  const int begin = sight_begin(attention, position);
  const int known = fresh ? end + kChunk : min(end, position - step.linked);
  bool waited = false;
  RingPlace<Size::kEntries> turn;
  for (int chunk = deal.first; chunk * kChunk < end; chunk += deal.step) {
    const int start = chunk * kChunk, at = start + lane * maps.run, here = max(page, 0);
    page = page_of(chunk + deal.step);
    if (start + kChunk <= begin) continue;
    const bool real = used && at < end;
    const int row = deal.kv_head * kv.page_tokens + (at & (kv.page_tokens - 1));
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
      if (real) copy_box(to, side == 0 ? maps.keys : maps.values, 0, row, 0, here, barrier, read_once());
      __syncwarp();
      turn.next();
    }
  }
  if (!waited) wait_for_previous();
}

// ---- the teams

// This warp's numbers of a chunk, to the record at `to`.
template <class T, int D>
__device__ void send(const Team<T, D>& team, uint32_t to, const float (&total)[2], int group, uint32_t barrier) {
  using Four = Team<T, D>;
  const int t = Four::lane() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = Four::lane() / 4 + 8 * r;
    if (head >= group) continue;
    const uint32_t row = to + static_cast<uint32_t>(head * Sizes<D>::kPitch);
    if (t == 0 && team.warp == 0) send_two(row + D * 4, team.most[r], total[r], barrier);
#pragma unroll
    for (int n = 0; n < Four::kTiles; ++n)
      send_two(row + static_cast<uint32_t>((team.warp * Four::kNumbers + n * 8 + 2 * t) * 4), team.sums[n][2 * r],
               team.sums[n][2 * r + 1], barrier);
  }
}

// All records of the cluster, by its first thread block: a thread has two numbers.
template <int D>
__device__ void join_records(const char* records, int count, int group, const Attention& attention, int kv_head,
                             const View& out, int row) {
  const int stride = group * Sizes<D>::kPitch;
  char* to = static_cast<char*>(out.data) + row * out.stride;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * 2; i < group * D; i += 2 * kTeams * kTeamThreads) {
    const char* at = records + i / D * Sizes<D>::kPitch;
    float base = -INFINITY, total = 0;
    float2 sum = {};
#pragma unroll 2
    for (int record = 0; record < count; ++record, at += stride) {
      const float2 values = *reinterpret_cast<const float2*>(at + i % D * 4);
      const float2 sums = *reinterpret_cast<const float2*>(at + D * 4);
      const Factors factors = join(base, total, sums.x, sums.y);
      sum.x = fmaf(values.x, factors.of_chunk, sum.x * factors.of_all);
      sum.y = fmaf(values.y, factors.of_chunk, sum.y * factors.of_all);
    }
    const int head = kv_head * group + i / D, col = head * D + i % D;
    const float last = last_factor(base, total, attention.sinks, head), x = sum.x * last, y = sum.y * last;
    if (out.form == Form::f32)
      *reinterpret_cast<float2*>(to + col * 4) = {x, y};
    else
      *reinterpret_cast<uint32_t*>(to + col * 2) = out.form == Form::f16 ? two<__half>(x, y) : two<__nv_bfloat16>(x, y);
  }
}

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    cluster_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                   const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                   const __grid_constant__ KvMaps maps, const __grid_constant__ AttendPlan::Fresh fresh) {
  using Size = Sizes<D>;
  using Four = Team<T, D>;
  extern __shared__ char raw[];
  __shared__ uint64_t full[kTeams][Size::kEntries], free[kTeams][Size::kEntries], arrived;
  __shared__ Exchange exchange[kTeams];
  __shared__ __align__(16) char queries[kTeams][Four::kQueryBytes];  // rows of no head hold anything: nobody reads on
  const uint32_t rings = (shared_address(raw) + 1023) & ~1023u, records = rings + kTeams * kRingBytes;
  const int thread = static_cast<int>(threadIdx.x);
  const bool asks = thread >= kTeams * kTeamThreads;
  const int number = asks ? thread / 32 - kTeams * kTeamWarps : thread / kTeamThreads;
  const int rank = static_cast<int>(blockIdx.x), together = static_cast<int>(gridDim.x);
  // Every thread block has a team at work before any has two.
  const Deal deal = {static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y), rank + number * together,
                     kTeams * together};
  const uint32_t ring = rings + static_cast<uint32_t>(number * kRingBytes);
  if (asks) {
    const int lane = thread % 32;
    if (lane < 2) asm volatile("prefetch.tensormap [%0];" ::"l"(lane == 0 ? &maps.keys : &maps.values) : "memory");
    if (lane < Size::kEntries) {
      barrier_begin(shared_address(&full[number][lane]), 1);
      barrier_begin(shared_address(&free[number][lane]), kTeamWarps);
    }
    if (number == 0 && lane == 0) barrier_begin(shared_address(&arrived), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
    group_arrive(kBegun + number, kTeamThreads + 32);
    cluster_arrive();
    bring<D>(step, attention, kv, maps, deal, fresh.table != nullptr, ring, full[number], free[number]);
    return cluster_wait();
  }
  const int row = deal.sequence, group = attention.heads / kv.kv_heads;
  const int position = step.positions[row], end = step.visible[row];
  cluster_arrive();
  group_sync(kBegun + number, kTeamThreads + 32);
  Sight sight[2];
  sight[0] = {sight_begin(attention, position), end, position, 0};
  sight[1] = sight[0];
  const int chunks = (end + kChunk - 1) / kChunk, first_seen = sight[0].begin / kChunk, count = chunks - first_seen;
  if (rank == 0 && thread == 0)
    barrier_expect(shared_address(&arrived), static_cast<uint32_t>(count * group * Size::kRowBytes));
  int chunk = deal.first;
  while (chunk < first_seen) chunk += deal.step;
  wait_for_previous();
  if (chunk < chunks) {
    if (Shaped && attention.slopes != nullptr) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int head = Four::lane() / 4 + 8 * r;
        sight[r].slope = head < group ? attention.slopes[deal.kv_head * group + head] : 0.0f;
      }
    }
    Four team = {
        exchange[number], shared_address(queries[number]), 1 + number, maps.run, thread / 32 % kTeamWarps, {}, {}, {}};
    const int in_team = thread % kTeamThreads;
    bring_queries<Team<T, D>>(team.queries, q, row, group, deal.kv_head, fresh, in_team);
    Newest<T, D> latest(in_team);
    const bool newest = fresh.table != nullptr && ((chunks - 1 - chunk) & (deal.step - 1)) == 0;
    if (newest) latest.bring(step, kv, fresh, row, deal.kv_head);
    team.sync();
    cluster_wait();  // the first thread block is there
    const uint32_t to = at_first(records), barrier = at_first(shared_address(&arrived));
    RingPlace<Size::kEntries> turn;
    auto brought = [&] {
      barrier_wait(shared_address(&full[number][turn.stage]), turn.round);
      return ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes);
    };
    auto read = [&] {
      __syncwarp();
      if (Four::lane() == 0) barrier_arrive(shared_address(&free[number][turn.stage]));
      turn.next();
    };
#pragma unroll 1
    for (; chunk < chunks; chunk += deal.step) {
      const int start = chunk * kChunk;
      const bool last_one = newest && chunk + 1 == chunks;
      const uint32_t keys = brought();
      if (last_one) {
        latest.place(0, keys, position - start, team.run);
        team.sync();
      }
      team.multiply_keys(keys);
      read();
      team.weigh(start, sight, attention, Shaped);
      const uint32_t values = brought();
      if (last_one) latest.place(1, values, position - start, team.run);
      if (start + kChunk > end) clear_values<D>(values, end - start, team.run, in_team);
      if (last_one || start + kChunk > end) team.sync();
      team.multiply_values(values);
      read();
      const float total[2] = {team.total(0), team.total(1)};
      send(team, to + static_cast<uint32_t>((chunk - first_seen) * group * Size::kPitch), total, group, barrier);
    }
  } else {
    cluster_wait();
  }
  if (rank != 0) return;
  barrier_wait(shared_address(&arrived), 0);
  join_records<D>(raw + (records - shared_address(raw)), count, group, attention, deal.kv_head, out, row);
}

template <class T, int D, bool Shaped>
struct Kernel {
  static constexpr auto kKernel = cluster_kernel<T, D, Shaped>;
  // Clusters of so many thread blocks that run at a time.
  static int at_once(int together) {
    static int most[kMostTogether + 1] = {};
    static const bool prepared = prepare(kKernel, kMostShared);
    static_cast<void>(prepared);
    if (most[together] == 0) {
      const Launch how(nullptr, dim3(static_cast<unsigned>(together)), kThreads, kMostShared, together, false);
      int found = 0;
      if (cudaOccupancyMaxActiveClusters(&found, kKernel, &how.config) != cudaSuccess) cudaGetLastError(), found = 0;
      most[together] = found > 0 ? found : -1;
    }
    return most[together];
  }
};

}  // namespace

bool attend_cluster(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                    const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan) {
  bool done = false;
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    using K = Kernel<T, D, Shaped>;
    const int shared = Sizes<D>::shared(plan.longest, attention.heads / kv.kv_heads);
    int together = kMostTogether;
    while (together > 1 && step.sequences * kv.kv_heads > K::at_once(together)) together /= 2;
    if (plan.longest > kBriefChunks || shared > kMostShared || together == 1) return;
    const Launch how(stream,
                     dim3(static_cast<unsigned>(together), static_cast<unsigned>(kv.kv_heads),
                          static_cast<unsigned>(step.sequences)),
                     kThreads, static_cast<size_t>(shared), together, kernels_wait());
    cudaLaunchKernelEx(&how.config, K::kKernel, step, attention, q, kv, out, maps, plan.fresh);
    done = true;
  });
  return done;
}

cudaError_t load_attend_cluster() { return load_kernels(); }

}  // namespace millrace::cuda

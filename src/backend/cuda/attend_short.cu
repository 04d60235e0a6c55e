// Attention of sequences of one row. All their chunks, in the order of sequence, kv head, position, are shared out
// evenly: two teams of four warps on every multiprocessor take a stretch each, so that one computes while the other
// waits. The team that has a row's newest position turns its key and puts it and the value into the cache, if that has
// not been done. For each team a warp asks for keys and values ahead, through a ring. What begins with a sequence's first chunk
// is joined on the way; other chunks are written down, and joined in the end by the team that finishes last, or by all
// of them if there are many.
#include <algorithm>

#include "backend/cuda/attend_join.cuh"
#include "backend/cuda/attend_team.cuh"
#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = kTeamWarps;
static_assert(kWarps == kJoiners);
constexpr int kTeamThreads = kWarps * 32;
constexpr int kTeams = 2;
constexpr int kThreads = kTeams * (kTeamThreads + 32);
constexpr int kShareFrom = 48;  // written chunks from which on joining them is shared

template <int D>
struct Sizes {
  static constexpr int kEntryBytes = kChunk * D * 2;  // keys or values of a chunk
  static constexpr int kEntries = D == 128 ? 3 : 6;   // of a team's ring
  static constexpr int kRingBytes = kEntries * kEntryBytes;
  static constexpr int kShared = kTeams * kRingBytes + 1024;
  static_assert(kWarps * Joiner<D>::kRooms * Joiner<D>::kRoom <= kRingBytes);
};

// ---- who computes what

struct Place {
  int sequence, kv_head, chunk;
  int chunks, first_item;  // of the sequence
};

struct Work {
  const int32_t* first_item;
  int sequences, kv_heads;

  __device__ int all() const { return first_item[sequences] * kv_heads; }
  // The lanes of a warp look together.
  __device__ Place find(int number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, item = number / kv_heads;
    int low = 0, span = sequences;
    while (span > 1) {
      const int step = (span + 31) / 32, probe = min(low + (lane + 1) * step, sequences);
      const bool beyond = probe >= low + span || first_item[probe] > item;
      low += (__ffs(static_cast<int>(__ballot_sync(~0u, beyond))) - 1) * step;
      span = step;
    }
    Place place = {low, 0, 0, first_item[low + 1] - first_item[low], first_item[low]};
    const int within = number - place.first_item * kv_heads;
    place.kv_head = within / max(place.chunks, 1);
    place.chunk = within % max(place.chunks, 1);
    return place;
  }
  __device__ void next(Place& place) const {
    if (++place.chunk < place.chunks) return;
    place.chunk = 0;
    if (++place.kv_head < kv_heads) return;
    place.kv_head = 0;
    do {
      if (++place.sequence >= sequences) return;
      place.first_item = first_item[place.sequence];
      place.chunks = first_item[place.sequence + 1] - place.first_item;
    } while (place.chunks == 0);
  }
};

// How chunks are shared out: a stretch for each team, the first `longer` of them a chunk longer. Every thread group has
// one before any has two; with fewer chunks than teams the last have none.
struct Shares {
  int all, teams, each, longer;

  __device__ explicit Shares(int chunks)
      : all(chunks), teams(max(1, min(chunks, static_cast<int>(gridDim.x) * kTeams))) {
    each = all / teams;
    longer = all - each * teams;
  }
  __device__ static int number(int team) { return static_cast<int>(blockIdx.x) + team * static_cast<int>(gridDim.x); }
  __device__ int begin(int number) const { return number < teams ? number * each + min(number, longer) : all; }
  __device__ int owner(int chunk) const {
    const int of_longer = longer * (each + 1);
    return chunk < of_longer ? chunk / (each + 1) : longer + (chunk - of_longer) / each;
  }
};

__device__ inline int row_begin(const DeviceStep& step, const Attention& attention, int row) {
  return attention.window > 0 ? max(0, step.positions[row] - attention.window + 1) : 0;
}

// Brings what everybody reads first nearer, all of it at the same time: each would otherwise wait for the one before.
__device__ inline void touch(const int32_t* at) {
  asm volatile("{\n.reg .b32 unused;\nld.global.b32 unused, [%0];\n}" ::"l"(at));
}
__device__ inline void touch_first(const DeviceStep& step, const int32_t* first_item) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = min(lane, step.rows - 1);
  touch(first_item + min(lane, step.sequences));
  touch(step.first_row + min(lane, step.sequences));
  touch(step.positions + row);
  touch(step.visible + row);
  touch(step.pages + min(lane * 8, step.page_stride - 1));
}

// ---- the warps that ask

template <int D>
__device__ void bring(const DeviceStep& step, const Attention& attention, const KvView& kv, const KvMaps& maps,
                      const Work& work, bool fresh, int team, uint32_t ring, uint64_t* full, uint64_t* free) {
  using Size = Sizes<D>;
  const int lane = static_cast<int>(threadIdx.x) % 32, shift = 31 - __clz(kv.page_tokens);
  const Shares shares(work.all());
  const int me = Shares::number(team), first = shares.begin(me), last = shares.begin(me + 1);
  bool waited = false;
  if (first < last) {
    Place place = work.find(first);
    RingPlace<Size::kEntries> turn;
    int sequence = -1, end = 0, known = 0, begin = 0;
    for (int number = first; number < last; ++number, work.next(place)) {
      if (place.sequence != sequence) {
        sequence = place.sequence;
        const int row = step.first_row[sequence];
        end = step.visible[row], begin = row_begin(step, attention, row);
        known = fresh ? end + kChunk : min(end, step.positions[row]);
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
        if (real) copy_box(to, side == 0 ? maps.keys : maps.values, 0, row, 0, page, barrier);
        __syncwarp();
        turn.next();
      }
    }
  }
  if (!waited) wait_for_previous();
}

// ---- the teams

// Numbers i to i + 3 of a head, turned; rows that are turned here are float32.
__device__ inline float4 turned_four(const float* head, int i, const AttendPlan::Fresh& fresh, int row) {
  const float4 four = *reinterpret_cast<const float4*>(head + i);
  if (i >= 2 * fresh.pairs) return four;
  const float2* angles = reinterpret_cast<const float2*>(fresh.table) + row * fresh.pairs;
  if (fresh.neighbours) {
    const float4 two = *reinterpret_cast<const float4*>(angles + i / 2);
    const float2 first = turned({two.x, two.y}, four.x, four.y), second = turned({two.z, two.w}, four.z, four.w);
    return {first.x, first.y, second.x, second.y};
  }
  const bool low = i < fresh.pairs;
  const int pair = low ? i : i - fresh.pairs;
  const float4 other = *reinterpret_cast<const float4*>(head + (low ? i + fresh.pairs : pair));
  const float4 one = *reinterpret_cast<const float4*>(angles + pair);
  const float4 next = *reinterpret_cast<const float4*>(angles + pair + 2);
  auto side = [&](float2 angle, float mine, float its) {
    const float2 both = turned(angle, low ? mine : its, low ? its : mine);
    return low ? both.x : both.y;
  };
  return {side({one.x, one.y}, four.x, other.x), side({one.z, one.w}, four.y, other.y),
          side({next.x, next.y}, four.z, other.z), side({next.z, next.w}, four.w, other.w)};
}

// Queries of a kv head: row i is head i of the group.
template <class T, int D>
__device__ void bring_queries(uint32_t to, const View& view, int row, int group, int kv_head,
                              const AttendPlan::Fresh& fresh, int thread) {
  const auto* from = reinterpret_cast<const float*>(static_cast<const char*>(view.data) + row * view.stride);
#pragma unroll 1
  for (int i = thread * 4; i < group * D; i += kTeamThreads * 4) {
    const int col = kv_head * group * D + i;
    float4 four;
    if (fresh.table != nullptr) {
      four = turned_four(from + (col - i % D), i % D, fresh, row);
    } else if (view.form == Form::f32) {
      four = *reinterpret_cast<const float4*>(from + col);
    } else {
      four = {read(view, row, col), read(view, row, col + 1), read(view, row, col + 2), read(view, row, col + 3)};
    }
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(
                     to + static_cast<uint32_t>(i / D * Team<T, D>::kQueryPitch + i % D * 2)),
                 "r"(two<T>(four.x, four.y)), "r"(two<T>(four.z, four.w))
                 : "memory");
  }
}

// The newest position's key (the team's first half) and value (the second): four numbers a thread.
template <class T, int D>
struct Newest {
  int side, i;  // which four numbers; i < 0: none
  uint2 numbers = {};

  __device__ explicit Newest(int thread) : side(thread / (kTeamThreads / 2)), i(thread % (kTeamThreads / 2) * 4) {
    if (i >= D) i = -1;
  }
  // Reads, turns and puts into the cache.
  __device__ void bring(const DeviceStep& step, const KvView& kv, const AttendPlan::Fresh& fresh, int row,
                        int kv_head) {
    if (i < 0) return;
    const auto* data = static_cast<const char*>(side == 0 ? fresh.k.data : fresh.v.data);
    const int64_t stride = side == 0 ? fresh.k.stride : fresh.v.stride;
    const float* head = reinterpret_cast<const float*>(data + row * stride) + kv_head * D;
    const float4 four = side == 0 ? turned_four(head, i, fresh, row) : *reinterpret_cast<const float4*>(head + i);
    numbers = {two<T>(four.x, four.y), two<T>(four.z, four.w)};
    std::byte* to = slot(step, kv, row, kv_head, side == 0 ? kv.k_offset : kv.v_offset, D);
    *reinterpret_cast<uint2*>(to + i * 2) = numbers;
  }
  // Puts them where a copy brought what was in the cache before.
  __device__ void place(int which, uint32_t entry, int position, int run) const {
    if (i < 0 || side != which) return;
    const int piece = i / 8;
    const uint32_t to = entry + position_at<D>(position, run) +
                        static_cast<uint32_t>(piece / 8 * run * 128 + (piece % 8 ^ position % 8) * 16 + i % 8 * 2);
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to), "r"(numbers.x), "r"(numbers.y) : "memory");
    fence_copies();  // the next copy comes after
  }
};

template <int D>
__device__ void clear_values(uint32_t values, int from, int run, int thread) {
  constexpr int kPieces = D / 8;
#pragma unroll 1
  for (int i = from * kPieces + thread; i < kChunk * kPieces; i += kTeamThreads) {
    const uint32_t place =
        values + position_at<D>(i / kPieces, run) + static_cast<uint32_t>(i % kPieces / 8 * run * 128 + i % 8 * 16);
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(place), "r"(0) : "memory");
  }
  fence_copies();  // the next copy comes after
}

// A sequence's kv head of which this team computed some chunks.
struct Cut {
  Place place;
  int count = 0;  // of chunks
  int row, first_seen;
};

__device__ inline unsigned read_counter(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

template <class T, int D, bool Shaped>
struct Stretch {
  using Size = Sizes<D>;
  using Four = Team<T, D>;
  const DeviceStep& step;
  const Attention& attention;
  const KvView& kv;
  const View& q;
  const View& out;
  const Work& work;
  const AttendPlan::Fresh& fresh;
  float* partials;
  unsigned* finished;
  unsigned* before;  // two counters as they were, in shared memory
  Four& team;
  const Shares& shares;
  int me, thread, group;

  __device__ float* written(const Place& place, int chunk) const {
    return partials + (int64_t{place.first_item + chunk} * attention.heads + place.kv_head * group) * kWrittenPitch<D>;
  }
  __device__ int first_of(const Place& place) const {
    return place.first_item * work.kv_heads + place.kv_head * place.chunks;
  }
  __device__ unsigned* counter(const Place& place) const {
    return finished + place.sequence * kv.kv_heads + place.kv_head;
  }
  // The first chunk that is not joined by the team that has the first one seen.
  __device__ int joined_until(const Place& place, int first_seen) const {
    const int first = first_of(place);
    return min(shares.begin(shares.owner(first + first_seen) + 1) - first, place.chunks);
  }

  // This warp's numbers of the group's rows, at `to` for the first head.
  __device__ void write_rows(float* to, const float (&most)[2], const float (&total)[2],
                             const float (&sums)[Four::kTiles][4]) const {
    const int t = Four::lane() % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = Four::lane() / 4 + 8 * r;
      if (head >= group) continue;
      float* row = to + head * kWrittenPitch<D>;
      if (t == 0 && team.warp == 0) *reinterpret_cast<float2*>(row + D) = {most[r], total[r]};
#pragma unroll
      for (int n = 0; n < Four::kTiles; ++n)
        *reinterpret_cast<float2*>(row + team.warp * Four::kNumbers + n * 8 + 2 * t) = {sums[n][2 * r],
                                                                                        sums[n][2 * r + 1]};
    }
  }
  __device__ void put(const Place& place, int row, const float (&base)[2], const float (&total)[2],
                      const float (&sums)[Four::kTiles][4]) const {
    char* to = static_cast<char*>(out.data) + row * out.stride;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = Four::lane() / 4 + 8 * r, number = place.kv_head * group + head;
      if (head >= group) continue;
      const float last = last_factor(base[r], total[r], attention.sinks, number);
      const int col = number * D + team.warp * Four::kNumbers + Four::lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < Four::kTiles; ++n) {
        const float x = sums[n][2 * r] * last, y = sums[n][2 * r + 1] * last;
        if (out.form == Form::f32)
          *reinterpret_cast<float2*>(to + (col + n * 8) * 4) = {x, y};
        else
          *reinterpret_cast<uint32_t*>(to + (col + n * 8) * 2) =
              out.form == Form::f16 ? two<__half>(x, y) : two<__nv_bfloat16>(x, y);
      }
    }
  }

  // Says how many chunks have been written, of both ends of the stretch. True for those that this team joins alone.
  __device__ void publish(const Cut (&cuts)[2], bool (&joins)[2]) {
    team.sync();
    if (thread < 2) {
      const Cut& cut = thread == 0 ? cuts[0] : cuts[1];
      __threadfence();
      if (cut.count > 0) before[thread] = atomicAdd(counter(cut.place), static_cast<unsigned>(cut.count));
      __threadfence();
    }
    team.sync();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      joins[i] = cuts[i].count > 0 &&
                 before[i] + static_cast<unsigned>(cuts[i].count) == static_cast<unsigned>(cuts[i].place.chunks);
    }
  }
  __device__ void finish(const Cut& cut, bool joins, uint32_t ring, const char* seen_ring) const {
    if (cut.count == 0) return;
    const Place& place = cut.place;
    const int until = joined_until(place, cut.first_seen);
    const bool share = place.chunks - until > kShareFrom;
    if (!share && !joins) return;
    int part = 0, of = 1;
    if (share) {
      const int first = shares.owner(first_of(place)), last = shares.owner(first_of(place) + place.chunks - 1);
      part = me - first, of = last - first + 1;
      const unsigned chunks = static_cast<unsigned>(place.chunks);
      if (thread == 0) {
        while (read_counter(counter(place)) < chunks) __nanosleep(100);
        if (atomicAdd(counter(place), 1u) == chunks + static_cast<unsigned>(of) - 1) *counter(place) = 0;
      }
      __threadfence();
      team.sync();
    } else if (thread == 0) {
      *counter(place) = 0;
    }
    const uint32_t mine = static_cast<uint32_t>(team.warp * Joiner<D>::kRooms * Joiner<D>::kRoom);
    Joiner<D> joiner = {written(place, until - 1), int64_t{attention.heads} * kWrittenPitch<D>,
                        place.chunks - until + 1, ring + mine, seen_ring + mine};
    joiner.run(part, of, group, attention, place.kv_head, cut.row, out);
    team.sync();
  }

  __device__ void run(uint32_t ring, const char* seen_ring, uint64_t* full, uint64_t* free) {
    const int first = shares.begin(me), last = shares.begin(me + 1);
    if (first >= last) return wait_for_previous();
    const int g = Four::lane() / 4;
    RingPlace<Size::kEntries> turn;
    Cut cuts[2] = {};
    Place place = work.find(first);
    int sequence = -1, row = 0;
    Sight sight[2] = {};
    auto look = [&] {
      sequence = place.sequence;
      row = step.first_row[sequence];
      const int position = step.positions[row];
      sight[0] = {attention.window > 0 ? max(0, position - attention.window + 1) : 0, step.visible[row], position, 0};
      sight[1] = sight[0];
    };
    look();  // the step's arrays were there before the kernel in front
    wait_for_previous();
    for (int number = first; number < last;) {  // one kv head of a sequence after the other
      const int from = place.chunk, to = min(place.chunks, from + (last - number));
      if (place.sequence != sequence) look();
      if (Shaped && attention.slopes != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          sight[r].slope = g + 8 * r < group ? attention.slopes[place.kv_head * group + g + 8 * r] : 0.0f;
      }
      bring_queries<T, D>(team.queries, q, row, group, place.kv_head, fresh, thread);
      const bool newest = fresh.table != nullptr && to == place.chunks;
      Newest<T, D> latest(thread);
      if (newest) latest.bring(step, kv, fresh, row, place.kv_head);
      team.sync();
      const int first_seen = sight[0].begin / kChunk;
      const bool joins = from <= first_seen;
      float base[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[Four::kTiles][4] = {};
      for (int chunk = max(from, first_seen); chunk < to; ++chunk) {
        const bool last_one = newest && chunk + 1 == place.chunks;
        const uint32_t keys = ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes);
        barrier_wait(shared_address(&full[turn.stage]), turn.round);
        if (last_one) {
          latest.place(0, keys, sight[0].position - chunk * kChunk, team.run);
          team.sync();
        }
        team.multiply_keys(keys);
        __syncwarp();
        if (Four::lane() == 0) barrier_arrive(shared_address(&free[turn.stage]));
        team.weigh(chunk * kChunk, sight, attention, Shaped);
        turn.next();
        const uint32_t values = ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes);
        barrier_wait(shared_address(&full[turn.stage]), turn.round);
        if (last_one) latest.place(1, values, sight[0].position - chunk * kChunk, team.run);
        if ((chunk + 1) * kChunk > sight[0].end)
          clear_values<D>(values, sight[0].end - chunk * kChunk, team.run, thread);
        if (last_one || (chunk + 1) * kChunk > sight[0].end) team.sync();
        team.multiply_values(values);
        __syncwarp();
        if (Four::lane() == 0) barrier_arrive(shared_address(&free[turn.stage]));
        turn.next();
        const float one[2] = {team.total(0), team.total(1)};
        if (joins) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const Factors factors = join(base[r], total[r], team.most[r], one[r]);
#pragma unroll
            for (int n = 0; n < Four::kTiles; ++n) {
#pragma unroll
              for (int i = 2 * r; i < 2 * r + 2; ++i)
                sums[n][i] = fmaf(team.sums[n][i], factors.of_chunk, sums[n][i] * factors.of_all);
            }
          }
        } else {
          write_rows(written(place, chunk), team.most, one, team.sums);
        }
      }
      if (from == 0 && to == place.chunks) {
        put(place, row, base, total, sums);
      } else {
        if (joins && to > first_seen) write_rows(written(place, to - 1), base, total, sums);
        const Cut cut = {place, to - from, row, first_seen};
        if (number == first)
          cuts[0] = cut;
        else
          cuts[1] = cut;
      }
      number += to - from;
      place.chunk = place.chunks - 1;
      if (number < last) work.next(place);
    }
    if (cuts[0].count + cuts[1].count == 0) return;
    bool joins[2];
    publish(cuts, joins);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) finish(i == 0 ? cuts[0] : cuts[1], i == 0 ? joins[0] : joins[1], ring, seen_ring);
  }
};

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                 const __grid_constant__ KvMaps maps, const __grid_constant__ AttendPlan::Fresh fresh,
                 const int32_t* first_item, float* partials, unsigned* finished) {
  using Size = Sizes<D>;
  using Four = Team<T, D>;
  extern __shared__ char raw[];
  __shared__ uint64_t full[kTeams][Size::kEntries], free[kTeams][Size::kEntries];
  __shared__ Exchange exchange[kTeams];
  __shared__ __align__(16) char queries[kTeams][Four::kQueryBytes];
  __shared__ unsigned before[kTeams][2];
  const uint32_t rings = (shared_address(raw) + 1023) & ~1023u;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread / 32 == kTeams * kWarps) {
    touch_first(step, first_item);
    if (thread % 32 < 2)
      asm volatile("prefetch.tensormap [%0];" ::"l"(thread % 32 == 0 ? &maps.keys : &maps.values) : "memory");
  }
  if (thread < kTeams * Size::kEntries) {
    barrier_begin(shared_address(&full[0][thread]), 1);
    barrier_begin(shared_address(&free[0][thread]), kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
#pragma unroll 1
  for (int i = thread; i < kTeams * Four::kQueryBytes / 16; i += kThreads)
    reinterpret_cast<uint4*>(queries[0])[i] = {0, 0, 0, 0};
  __syncthreads();
  const Work work = {first_item, step.sequences, kv.kv_heads};
  const bool asks = thread >= kTeams * kTeamThreads;
  const int number = asks ? thread / 32 - kTeams * kWarps : thread / kTeamThreads;
  const uint32_t ring = rings + static_cast<uint32_t>(number * Size::kRingBytes);
  if (asks) {
    bring<D>(step, attention, kv, maps, work, fresh.table != nullptr, number, ring, full[number], free[number]);
    return;
  }
  const Shares shares(work.all());
  Four team = {
      exchange[number], shared_address(queries[number]), 1 + number, maps.run, thread / 32 % kWarps, {}, {}, {}};
  Stretch<T, D, Shaped> stretch = {step,
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
                                   shares,
                                   Shares::number(number),
                                   thread % kTeamThreads,
                                   attention.heads / kv.kv_heads};
  stretch.run(ring, raw + (ring - shared_address(raw)), full[number], free[number]);
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const KvMaps& maps, const AttendPlan& plan) {
  static const bool prepared = prepare(short_kernel<T, D, Shaped>, Sizes<D>::kShared);
  static_cast<void>(prepared);
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  launch(stream, short_kernel<T, D, Shaped>, count(std::min<int64_t>(multiprocessors(), most)), kThreads,
         Sizes<D>::kShared, step, attention, q, kv, out, maps, plan.fresh, plan.first_item, plan.partials,
         plan.finished);
}

}  // namespace

void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan) {
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    start<T, D, Shaped>(stream, step, attention, q, kv, out, maps, plan);
  });
}

}  // namespace millrace::cuda

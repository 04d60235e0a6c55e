// Attention of single rows as a task of the kernel that computes a whole step (program.cu). Chunks are spread over the
// thread groups, eight warps compute one. What a chunk came to is written to memory where all bits are set, and whoever
// joins looks until no number has all bits set: nobody counts or waits for the order of writes. The arithmetic is that
// of attend.cuh. Device code.
#pragma once

#include "backend/cuda/attend_join.cuh"
#include "backend/cuda/attend_team.cuh"
#include "backend/cuda/program.h"
#include "backend/cuda/turn.cuh"

namespace millrace::cuda {

inline constexpr int kAttendWarps = 8, kAttendThreads = kAttendWarps * 32;
inline constexpr int kAttendSync = 2;                 // name of the barrier among them
inline constexpr int kAttendRoom = kChunk * 128 * 2;  // keys or values of a chunk
inline constexpr int kAttendAreaBytes =
    2 * kAttendRoom + static_cast<int>(sizeof(Exchange<kAttendWarps>)) + Team<__half, 128, kAttendWarps>::kQueryBytes;
static_assert(kAttendAreaBytes <= 80 << 10);

// What a chunk came to for 32 numbers of a head: they, the chunk's maximum and sum, and two that nobody uses.
inline constexpr int kRecordBytes = kRecordFloats * 4;
inline constexpr unsigned kNotYet = ~0u;

template <class T, int D>
struct StepAttention {
  using Eight = Team<T, D, kAttendWarps>;
  static constexpr int kPieces = D / 8;                                         // of sixteen bytes, of a position
  static constexpr int kTogether = kAttendThreads / kPieces;                    // positions brought at a time, ...
  static constexpr int kOfWarp = 32 / kPieces;                                  // ... by a warp
  static constexpr int kSegments = D / 64;                                      // of 32 pairs
  static constexpr int kRecords = D / 32;                                       // of a head
  static constexpr int kBatch = 2 * kAttendRoom / kAttendWarps / kRecordBytes;  // records brought at a time

  const Attending& task;
  char* area;
  Eight team;
  // Each lane knows a sequence. Its row has the same number.
  int known_until, known_position, known_end;

  struct Item {
    int number = -1;  // among all chunks of all kv heads
    int sequence, kv_head, chunk, record;
    int begin, end, newest;  // positions seen; the one that is new
    const std::byte* place;  // of the key that this lane knows
    __device__ int start() const { return chunk * kChunk; }
    __device__ bool has_newest() const { return newest / kChunk == chunk; }
  };

  __device__ StepAttention(const Attending& attend, char* room)
      : task(attend),
        area(room),
        team{*reinterpret_cast<Exchange<kAttendWarps>*>(room + 2 * kAttendRoom),
             shared_address(room) + 2 * kAttendRoom + static_cast<uint32_t>(sizeof(Exchange<kAttendWarps>)),
             kAttendSync,
             kChunk,
             static_cast<int>(threadIdx.x) / 32,
             {},
             {},
             {}} {
    const int lane = Eight::lane(), mine = min(lane, task.step.sequences - 1);
    known_until = task.first_item[mine + 1];
    known_position = task.step.positions[mine];
    known_end = task.step.visible[mine];
  }
  __device__ int group() const { return task.attention.heads / task.kv.kv_heads; }
  __device__ uint32_t keys() const { return shared_address(area); }
  __device__ uint32_t values() const { return keys() + kAttendRoom; }
  __device__ int first_item(int sequence) const {
    const int before = __shfl_sync(~0u, known_until, max(sequence - 1, 0));
    return sequence == 0 ? 0 : before;
  }
  __device__ int begin_of(int newest) const {
    return task.attention.window > 0 ? max(0, newest - task.attention.window + 1) : 0;
  }

  // The next chunk that is seen, from `number` on. Asks where its pages are.
  __device__ Item find(int number) const {
    const int all = __shfl_sync(~0u, known_until, task.step.sequences - 1) * task.kv.kv_heads;
    Item at;
    for (; number < all; number += static_cast<int>(gridDim.x)) {
      at.record = number / task.kv.kv_heads;
      at.kv_head = number - at.record * task.kv.kv_heads;
      at.sequence = __popc(__ballot_sync(~0u, Eight::lane() < task.step.sequences && known_until <= at.record));
      at.chunk = at.record - first_item(at.sequence);
      at.newest = __shfl_sync(~0u, known_position, at.sequence);
      at.end = __shfl_sync(~0u, known_end, at.sequence);
      at.begin = begin_of(at.newest);
      if (at.start() + kChunk <= at.begin) continue;
      at.number = number;
      const int lane = Eight::lane() % 16;
      at.place = key_of(at, at.start() + lane / kOfWarp * kTogether + team.warp * kOfWarp + lane % kOfWarp);
      break;
    }
    return at;
  }
  __device__ std::byte* key_of(const Item& at, int position) const {
    const KvView& kv = task.kv;
    const int shift = 31 - __clz(kv.page_tokens), seen = min(position, at.end - 1);
    const int page = max(task.step.pages[int64_t{at.sequence} * task.step.page_stride + (seen >> shift)], 0);
    return kv.base + int64_t{page} * kv.page_stride + kv.k_offset +
           (int64_t{at.kv_head} * kv.page_tokens + (seen & (kv.page_tokens - 1))) * D * 2;
  }
  __device__ int64_t to_values() const { return task.kv.v_offset - task.kv.k_offset; }
  __device__ static uint32_t piece_at(int position, int piece) {
    return static_cast<uint32_t>(position * 128 + piece / 8 * kChunk * 128 + (piece % 8 ^ position % 8) * 16);
  }

  // Keys or values of all positions but the new one; what is not there yet is zero.
  __device__ void fetch(const Item& at, int64_t offset, uint32_t to) const {
    const int thread = static_cast<int>(threadIdx.x), piece = thread % kPieces;
    int position = thread / kPieces;
    const int known = min(at.end, at.newest) - at.start(), newest = at.newest - at.start();
    to += piece_at(position, piece);
#pragma unroll 2
    for (int i = 0; i < kChunk / kTogether; ++i) {
      const auto from = __shfl_sync(~0u, reinterpret_cast<uint64_t>(at.place), i * kOfWarp + Eight::lane() / kPieces);
      if (position != newest)
        copy_16(to, reinterpret_cast<const char*>(from) + offset + piece * 16, position < known ? 16 : 0);
      position += kTogether;
      to += kTogether * 128;
    }
    copies_end();
  }

  // A pair of numbers of a query, of the new key or of the new value. Of each there are kSegments units of 32 pairs,
  // one a lane.
  struct Pair {
    int what, x, y;  // what: a head of the group, then the key, then the value
    bool turns;
    float a, b;
    float2 angle;
  };
  __device__ Pair read_pair(const Item& at, int unit) const {
    const int pair = unit % kSegments * 32 + Eight::lane(), heads = group();
    Pair p;
    p.what = unit / kSegments;
    p.turns = task.finish && p.what <= heads && pair < task.half;
    const Turn turn = {task.half, task.neighbours};
    p.x = p.turns ? turn.first(pair) : 2 * pair;
    p.y = p.turns ? turn.second(pair) : 2 * pair + 1;
    const View& view = p.what < heads ? task.q : p.what == heads ? task.k : task.v;
    const int col = (p.what < heads ? at.kv_head * heads + p.what : at.kv_head) * D;
    p.a = read_fresh(view, at.sequence, col + p.x);
    p.b = read_fresh(view, at.sequence, col + p.y);
    if (p.turns) p.angle = __ldcg(reinterpret_cast<const float2*>(task.table) + at.sequence * task.half + pair);
    return p;
  }
  __device__ void put_pair(const Item& at, const Pair& p, std::byte* newest) const {
    float2 to = {p.a, p.b};
    if (p.turns) to = turned(p.angle, p.a, p.b);
    const uint32_t both = two<T>(to.x, to.y);
    uint32_t first = team.queries + static_cast<uint32_t>(p.what * Eight::kQueryPitch + p.x * 2);
    uint32_t second = team.queries + static_cast<uint32_t>(p.what * Eight::kQueryPitch + p.y * 2);
    if (p.what >= group()) {
      const bool value = p.what > group();
      auto* kept = reinterpret_cast<uint16_t*>(newest + (value ? to_values() : 0));
      kept[p.x] = static_cast<uint16_t>(both);
      kept[p.y] = static_cast<uint16_t>(both >> 16);
      const uint32_t room = value ? values() : keys();
      const int position = at.newest % kChunk;
      first = room + piece_at(position, p.x / 8) + static_cast<uint32_t>(p.x % 8 * 2);
      second = room + piece_at(position, p.y / 8) + static_cast<uint32_t>(p.y % 8 * 2);
    }
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(first), "h"(static_cast<uint16_t>(both)) : "memory");
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(second), "h"(static_cast<uint16_t>(both >> 16)) : "memory");
  }
  // Queries, and what is new; two units a warp are read at the same time.
  __device__ void bring_new(const Item& at, std::byte* newest) const {
    const bool keeps = task.finish && newest != nullptr;
    const int units = (group() + (keeps ? 2 : 0)) * kSegments;
#pragma unroll 1
    for (int unit = team.warp; unit < units; unit += 2 * kAttendWarps) {
      const Pair one = read_pair(at, unit), other = read_pair(at, min(unit + kAttendWarps, units - 1));
      put_pair(at, one, newest);
      if (unit + kAttendWarps < units) put_pair(at, other, newest);
    }
    const int thread = static_cast<int>(threadIdx.x), piece = thread % kPieces;
    if (!task.finish && newest != nullptr && thread < 2 * kPieces) {
      const bool value = thread >= kPieces;
      copy_16((value ? values() : keys()) + piece_at(at.newest % kChunk, piece),
              newest + (value ? to_values() : 0) + piece * 16, 16);
      copies_end();
    }
  }

  __device__ float* record_of(int item, int head, int segment) const {
    return task.partials + ((int64_t{item} * task.attention.heads + head) * kRecords + segment) * kRecordFloats;
  }
  __device__ static void tell(float* to, float a, float b) {
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1,%2};" ::"l"(to), "r"(min(__float_as_uint(a), kNotYet - 1)),
                 "r"(min(__float_as_uint(b), kNotYet - 1))
                 : "memory");
  }

  // Before the call keys and values are on their way; leaves those of `next` on their way.
  __device__ void compute(const Item& at, const Item& next, std::byte* newest) {
    const int lane = Eight::lane(), g = lane / 4, t = lane % 4, heads = group();
    const bool shapes = shapes_scores(task.attention);
    bring_new(at, newest);
    Sight sight[2];
    sight[0] = {at.begin, at.end, at.newest, 0};
    sight[1] = sight[0];
    if (task.attention.slopes != nullptr) {
      sight[0].slope = task.attention.slopes[at.kv_head * heads + min(g, heads - 1)];
      sight[1].slope = task.attention.slopes[at.kv_head * heads + min(g + 8, heads - 1)];
    }
    copies_wait<0>();
    team.sync();
    team.multiply_keys(keys());
    team.weigh(at.start(), sight, task.attention, shapes);
    if (next.number >= 0) fetch(next, 0, keys());
    team.multiply_values(values());
    if (team.warp < Eight::kSumming) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (g + 8 * r >= heads) continue;
        const int first = team.warp * Eight::kNumbers;
        float* to = record_of(at.record, at.kv_head * heads + g + 8 * r, first / 32) + first % 32 + 2 * t;
#pragma unroll
        for (int n = 0; n < Eight::kTiles; ++n) tell(to + n * 8, team.sums[n][2 * r], team.sums[n][2 * r + 1]);
      }
    }
    team.sync();
    if (next.number >= 0) fetch(next, to_values(), values());
    if (team.warp < 2 && team.warp * 8 < heads) {  // a lane for each record of a head
      const int r = team.warp, head = g + 8 * r;
      const float total = team.total(r);
      if (head < heads && t < kRecords)
        tell(record_of(at.record, at.kv_head * heads + head, t) + 32, r == 0 ? team.most[0] : team.most[1], total);
    }
  }

  // 32 numbers of a head, from all its chunks: every warp of the machine has some.
  __device__ void join_all() const {
    const int lane = Eight::lane(), of_row = task.attention.heads * kRecords;
    const int units = of_row * task.step.sequences, grid = static_cast<int>(gridDim.x);
    char* room = area + team.warp * (2 * kAttendRoom / kAttendWarps);
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x) + team.warp * grid; unit < units; unit += kAttendWarps * grid) {
      const int row = unit / of_row, head = (unit - row * of_row) / kRecords, segment = unit % kRecords;
      const int first = first_item(row) + begin_of(__shfl_sync(~0u, known_position, row)) / kChunk;
      const int last = __shfl_sync(~0u, known_until, row);
      float base = -INFINITY, total = 0, sum = 0;
#pragma unroll 1
      for (int item = first; item < last; item += kBatch) {
        const int count = min(kBatch, last - item);
        char* from = reinterpret_cast<char*>(record_of(item, head, segment));
        do {
          bring(room, from, count);
        } while (__any_sync(~0u, lacks(room, count)));
        join_brought<kRecordBytes, kRecordBytes>(room, room + 128, count, base, total, sum);
        __syncwarp();
        each_piece(from, count, [&](int, char* at) { *reinterpret_cast<uint4*>(at) = {~0u, ~0u, ~0u, ~0u}; });
      }
      write(task.out, row, head * D + segment * 32 + lane, sum * last_factor(base, total, task.attention.sinks, head));
    }
  }
  template <class F>
  __device__ void each_piece(char* from, int count, F&& body) const {
    constexpr int kOf = kRecordBytes / 16;
    const int64_t stride = int64_t{task.attention.heads} * kRecords * kRecordBytes;
#pragma unroll 1
    for (int i = Eight::lane(); i < count * kOf; i += 32) body(i, from + i / kOf * stride + i % kOf * 16);
  }
  __device__ void bring(char* room, char* from, int count) const {
    const uint32_t to = shared_address(room);
    each_piece(from, count, [&](int i, char* at) { copy_16(to + static_cast<uint32_t>(i * 16), at, 16); });
    copies_end();
    copies_wait<0>();
    __syncwarp();
  }
  // Something that has not been written yet.
  __device__ static bool lacks(const char* room, int count) {
    const int lane = Eight::lane();
    bool found = false;
#pragma unroll 4
    for (int i = 0; i < count; ++i)
      found |= *reinterpret_cast<const unsigned*>(room + i * kRecordBytes + lane * 4) == kNotYet;
    for (int i = lane; i < count; i += 32) {
      const uint2 both = *reinterpret_cast<const uint2*>(room + i * kRecordBytes + 128);
      found |= both.x == kNotYet || both.y == kNotYet;
    }
    return found;
  }

  template <class Wait>
  __device__ void run(const Wait& wait) {
    Item at = find(static_cast<int>(blockIdx.x));
    std::byte* newest = nullptr;
    if (at.number >= 0) {
      fetch(at, 0, keys());
      fetch(at, to_values(), values());
      if (at.has_newest()) newest = key_of(at, at.newest);
      // Rows beyond the group's heads stay zero.
      for (int i = static_cast<int>(threadIdx.x); i < Eight::kQueryBytes / 4; i += kAttendThreads)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(team.queries + static_cast<uint32_t>(i * 4)), "r"(0) : "memory");
    }
    wait();
    if (at.number >= 0) {
      team.sync();
#pragma unroll 1
      while (at.number >= 0) {
        const Item next = find(at.number + static_cast<int>(gridDim.x));
        compute(at, next, newest);
        at = next;
        newest = at.number >= 0 && at.has_newest() ? key_of(at, at.newest) : nullptr;
      }
      team.sync();
    }
    join_all();
  }
};

template <class T, int D, class Wait>
__device__ __noinline__ void attend_of(const Attending& task, char* area, Wait wait) {
  StepAttention<T, D>(task, area).run(wait);
}

// All kAttendThreads threads of every thread group; others may be beside them. `area`: kAttendAreaBytes of shared
// memory. wait() returns when q, k and v can be read.
template <class Wait>
__device__ void attend_task(const Attending& task, char* area, Wait wait) {
  if (task.kv.type == DType::f16) {
    if (task.kv.k_dim == 64) return attend_of<__half, 64>(task, area, wait);
    return attend_of<__half, 128>(task, area, wait);
  }
  if (task.kv.k_dim == 64) return attend_of<__nv_bfloat16, 64>(task, area, wait);
  attend_of<__nv_bfloat16, 128>(task, area, wait);
}

}  // namespace millrace::cuda

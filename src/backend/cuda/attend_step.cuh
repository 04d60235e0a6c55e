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

// What a chunk came to for 32 numbers of a head: they, the chunk's maximum and sum, and two zeros.
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
  int group, grid, all;  // all: chunks of all kv heads
  // Each lane knows a sequence. Its row has the same number.
  int known_until, known_position, known_end;

  struct Item {
    int number = -1;  // among all chunks of all kv heads
    int sequence, kv_head, chunk, record;
    int begin, end, newest;  // positions seen; the one that is new
    std::byte* place;        // of the key that this lane knows; lane 16 knows the new one's
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
    const int mine = min(Eight::lane(), task.step.sequences - 1);
    known_until = task.first_item[mine + 1];
    known_position = task.step.positions[mine];
    known_end = task.step.visible[mine];
    group = task.attention.heads / task.kv.kv_heads;
    grid = static_cast<int>(gridDim.x);
    all = __shfl_sync(~0u, known_until, 31) * task.kv.kv_heads;
  }
  __device__ uint32_t keys() const { return shared_address(area); }
  __device__ uint32_t values() const { return keys() + kAttendRoom; }
  __device__ int first_item(int sequence) const {
    const int before = __shfl_sync(~0u, known_until, max(sequence - 1, 0));
    return sequence == 0 ? 0 : before;
  }
  __device__ int begin_of(int newest) const {
    return task.attention.window > 0 ? max(0, newest - task.attention.window + 1) : 0;
  }

  // The next chunk that is seen, from `number` on. Looks up where its pages are.
  __device__ Item find(int number) const {
    Item at;
#pragma unroll 1
    for (; number < all; number += grid) {
      at.record = number / task.kv.kv_heads;
      at.kv_head = number - at.record * task.kv.kv_heads;
      at.sequence = __popc(__ballot_sync(~0u, Eight::lane() < task.step.sequences && known_until <= at.record));
      at.chunk = at.record - first_item(at.sequence);
      at.newest = __shfl_sync(~0u, known_position, at.sequence);
      at.begin = begin_of(at.newest);
      if (at.start() + kChunk <= at.begin) continue;
      at.number = number;
      break;
    }
    if (at.number < 0) return at;
    at.end = __shfl_sync(~0u, known_end, at.sequence);
    const KvView& kv = task.kv;
    const int lane = Eight::lane();
    int position = at.start() + lane / kOfWarp * kTogether + team.warp * kOfWarp + lane % kOfWarp;
    position = min(lane < 16 ? position : at.newest, at.end - 1);
    const int shift = 31 - __clz(kv.page_tokens);
    const int page = max(task.step.pages[at.sequence * task.step.page_stride + (position >> shift)], 0);
    const int row = at.kv_head * kv.page_tokens + (position & (kv.page_tokens - 1));
    at.place = kv.base + page * kv.page_stride + kv.k_offset + row * (D * 2);
    return at;
  }
  __device__ static std::byte* known_by(const Item& at, int lane) {
    return reinterpret_cast<std::byte*>(__shfl_sync(~0u, reinterpret_cast<uint64_t>(at.place), lane));
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
      const std::byte* from = known_by(at, i * kOfWarp + Eight::lane() / kPieces);
      if (position != newest) copy_16(to, from + offset + piece * 16, position < known ? 16 : 0);
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
    const int pair = unit % kSegments * 32 + Eight::lane();
    Pair p;
    p.what = unit / kSegments;
    p.turns = task.finish && p.what <= group && pair < task.half;
    const Turn turn = {task.half, task.neighbours};
    p.x = p.turns ? turn.first(pair) : 2 * pair;
    p.y = p.turns ? turn.second(pair) : 2 * pair + 1;
    const View& view = p.what < group ? task.q : p.what == group ? task.k : task.v;
    const int col = (p.what < group ? at.kv_head * group + p.what : at.kv_head) * D;
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
    if (p.what >= group) {
      const bool value = p.what > group;
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
  __device__ void bring_new(const Item& at) const {
    const bool has_newest = at.has_newest(), finish = task.finish;
    std::byte* newest = known_by(at, 16);
    const int units = (group + (finish && has_newest ? 2 : 0)) * kSegments;
#pragma unroll 1
    for (int unit = team.warp; unit < units; unit += 2 * kAttendWarps) {
      const bool two_units = unit + kAttendWarps < units;
      Pair other;
      const Pair one = read_pair(at, unit);
      if (two_units) other = read_pair(at, unit + kAttendWarps);
      put_pair(at, one, newest);
      if (two_units) put_pair(at, other, newest);
    }
    const int thread = static_cast<int>(threadIdx.x), piece = thread % kPieces;
    if (!finish && has_newest && thread < 2 * kPieces) {
      const bool value = thread >= kPieces;
      copy_16((value ? values() : keys()) + piece_at(at.newest % kChunk, piece),
              newest + (value ? to_values() : 0) + piece * 16, 16);
      copies_end();
    }
  }

  __device__ float* record_of(int item, int head, int segment) const {
    return task.partials + ((int64_t{item} * task.attention.heads + head) * kRecords + segment) * kRecordFloats;
  }
  __device__ static uint32_t said(float value) { return min(__float_as_uint(value), kNotYet - 1); }

  __device__ void weigh(const Item& at) {
    const int g = Eight::lane() / 4;
    Sight sight[2];
    sight[0] = {at.begin, at.end, at.newest, 0};
    sight[1] = sight[0];
    if (task.attention.slopes != nullptr) {
      sight[0].slope = task.attention.slopes[at.kv_head * group + min(g, group - 1)];
      sight[1].slope = task.attention.slopes[at.kv_head * group + min(g + 8, group - 1)];
    }
    team.multiply_keys(keys());
    team.weigh(at.start(), sight, task.attention, shapes_scores(task.attention));
  }
  __device__ void tell_sums(const Item& at) const {
    if (team.warp >= Eight::kSumming) return;
    const int g = Eight::lane() / 4, t = Eight::lane() % 4, first = team.warp * Eight::kNumbers;
    float* to = record_of(at.record, at.kv_head * group + g, first / 32) + first % 32 + 2 * t;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (g + 8 * r >= group) break;
#pragma unroll
      for (int n = 0; n < Eight::kTiles; ++n)
        asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1,%2};" ::"l"(to + n * 8), "r"(said(team.sums[n][2 * r])),
                     "r"(said(team.sums[n][2 * r + 1]))
                     : "memory");
      to += 8 * kRecords * kRecordFloats;
    }
  }
  // Two warps have eight heads each, a lane for each record of a head.
  __device__ void tell_total(const Item& at) const {
    const int r = team.warp, head = Eight::lane() / 4 + 8 * r, t = Eight::lane() % 4;
    if (r >= 2 || 8 * r >= group) return;
    const float total = team.total(r);
    if (head >= group || t >= kRecords) return;
    asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1,%2,%3,%3};" ::"l"(
                     record_of(at.record, at.kv_head * group + head, t) + 32),
                 "r"(said(r == 0 ? team.most[0] : team.most[1])), "r"(said(total)), "r"(0)
                 : "memory");
  }

  // 32 numbers of a head, from all its chunks: every warp of the machine has some.
  __device__ void join_all() const {
    const int lane = Eight::lane(), of_row = task.attention.heads * kRecords;
    const int sequences = task.step.sequences, units = of_row * sequences;
    char* room = area + team.warp * (2 * kAttendRoom / kAttendWarps);
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x) + team.warp * grid; unit < units; unit += kAttendWarps * grid) {
      const int row = sequences == 1 ? 0 : unit / of_row, head = (unit - row * of_row) / kRecords,
                segment = unit % kRecords;
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
    bool found = false;
#pragma unroll 1
    for (int i = Eight::lane(); i < count * (kRecordBytes / 16); i += 32) {
      const uint4 four = *reinterpret_cast<const uint4*>(room + i * 16);
      found |= max(max(four.x, four.y), max(four.z, four.w)) == kNotYet;
    }
    return found;
  }

  // While a chunk is computed the next one's keys and values are brought. The first time round there is none yet.
  template <class Wait>
  __device__ void run(const Wait& wait) {
    clear_queries();
    Item at;
    int number = static_cast<int>(blockIdx.x);
#pragma unroll 1
    for (bool first = true;; first = false) {
      const Item next = find(number);
      if (!first) {
        bring_new(at);
        copies_wait<0>();
        team.sync();
        weigh(at);
      }
      if (next.number >= 0) fetch(next, 0, keys());
      if (!first) {
        team.multiply_values(values());
        tell_sums(at);
        team.sync();
      }
      if (next.number >= 0) fetch(next, to_values(), values());
      if (first) {
        wait();
        team.sync();
      } else {
        tell_total(at);
      }
      if (next.number < 0) break;
      at = next;
      number = at.number + grid;
    }
    join_all();
  }
  // Rows beyond the group's heads stay zero.
  __device__ void clear_queries() const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < Eight::kQueryBytes / 16; i += kAttendThreads)
      asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(team.queries + static_cast<uint32_t>(i * 16)), "r"(0)
                   : "memory");
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

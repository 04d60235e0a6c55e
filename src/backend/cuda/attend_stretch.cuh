// What a team of four warps does with its stretch of chunks of single rows, on Hopper (attend_short.cu) and elsewhere
// (portable/attend_short.cu): all chunks, in the order of sequence, kv head, position, are shared out evenly. What
// begins with a sequence's first chunk is joined on the way; other chunks are written down, and joined in the end by
// the team that finishes last, or by all of them if there are many: they wait for one another, so all teams must be
// running. The team that has a row's newest position turns its key and puts it and the value into the cache, if that
// has not been done. Device code.
#pragma once

#include "backend/cuda/attend_fresh.cuh"
#include "backend/cuda/attend_join.cuh"
#include "backend/cuda/attend_team.cuh"

namespace millrace::cuda {

static_assert(kTeamWarps == kJoiners);
inline constexpr int kShareFrom = 96;  // so many written chunks are joined by one team; more by all

struct ChunkPlace {
  int sequence, kv_head, chunk;
  int chunks, first_item;  // of the sequence
};

struct ChunkList {
  const int32_t* first_item;
  int sequences, kv_heads;

  __device__ int all() const { return first_item[sequences] * kv_heads; }
  // The lanes of a warp look together.
  __device__ ChunkPlace find(int number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, item = number / kv_heads;
    int low = 0, span = sequences;
    while (span > 1) {
      const int step = (span + 31) / 32, probe = min(low + (lane + 1) * step, sequences);
      const bool beyond = probe >= low + span || first_item[probe] > item;
      low += (__ffs(static_cast<int>(__ballot_sync(~0u, beyond))) - 1) * step;
      span = step;
    }
    ChunkPlace place = {low, 0, 0, first_item[low + 1] - first_item[low], first_item[low]};
    const int within = number - place.first_item * kv_heads;
    place.kv_head = within / max(place.chunks, 1);
    place.chunk = within % max(place.chunks, 1);
    return place;
  }
  __device__ void next(ChunkPlace& place) const {
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

// How chunks are shared out: a stretch for each team, the first `longer` of them a chunk longer. With fewer chunks than
// teams the last have none.
struct ChunkShares {
  int all, teams, each, longer;

  __device__ static ChunkShares of(int chunks, int most_teams) {
    const int teams = max(1, min(chunks, most_teams)), each = chunks / teams;
    return {chunks, teams, each, chunks - each * teams};
  }
  __device__ int begin(int number) const { return number < teams ? number * each + min(number, longer) : all; }
  __device__ int owner(int chunk) const {
    const int of_longer = longer * (each + 1);
    return chunk < of_longer ? chunk / (each + 1) : longer + (chunk - of_longer) / each;
  }
};

// What a team begins with. Finding it out takes several reads, one behind the other, and divisions, and it is the same
// in all layers of a step.
struct alignas(16) StretchStart {
  ChunkShares shares;
  int first, last;             // chunks of this team
  ChunkPlace place;            // of the first
  int row, position, visible;  // of its sequence
  int unused[2];
};
static_assert(sizeof(StretchStart) == 64);
inline constexpr int kMostTeams = static_cast<int>(kStretchBytes / sizeof(StretchStart));

namespace {
constexpr int kFindThreads = 256;
__global__ void __launch_bounds__(kFindThreads)
    find_stretches_kernel(const __grid_constant__ DeviceStep step, ChunkList work, int teams, StretchStart* to) {
  wait_for_previous();
  const int team = static_cast<int>(blockIdx.x * kFindThreads + threadIdx.x) / 32;
  if (team >= teams) return;
  StretchStart start = {};
  start.shares = ChunkShares::of(work.all(), teams);
  start.first = start.shares.begin(team);
  start.last = start.shares.begin(team + 1);
  if (start.first < start.last) {
    start.place = work.find(start.first);
    start.row = step.first_row[start.place.sequence];
    start.position = step.positions[start.row];
    start.visible = step.visible[start.row];
  }
  if (threadIdx.x % 32 == 0) to[team] = start;
}
// For all teams of the kernel that comes next, unless it is there already.
const StretchStart* find_stretches(cudaStream_t stream, const DeviceStep& step, const AttendPlan& plan, int kv_heads,
                                   int teams) {
  auto* to = reinterpret_cast<StretchStart*>(plan.stretches);
  if (!plan.stretches_there)
    launch(stream, find_stretches_kernel, count((int64_t{teams} * 32 + kFindThreads - 1) / kFindThreads), kFindThreads,
           0, step, ChunkList{plan.first_item, step.sequences, kv_heads}, teams, to);
  return to;
}
}  // namespace

// A sequence's kv head of which this team computed some chunks.
struct CutChunks {
  ChunkPlace place;
  int count = 0;  // of chunks
  int row, first_seen;
};

// Feed brings chunks to shared memory, for a team and called by all its threads:
//   begin(place, first, to, end)  these chunks of a kv head come next, of which positions before `end` are seen
//   keys(), values()              where the next ones lie, once they do
//   keys_read(), values_read()    this warp has read them
//   keys_free()                   all warps have
//   kJoinBatch                    chunks joined at a time
//   kRoomBytes                    of shared memory there are for joining
template <class Four, bool Shaped, class Feed>
struct Stretch {
  using T = typename Four::Number;
  static constexpr int D = Four::kDim;
  using Join = Joiner<D, Feed::kJoinBatch>;
  const DeviceStep& step;
  const Attention& attention;
  const KvView& kv;
  const View& q;
  const View& out;
  const ChunkList& work;
  const AttendPlan::Fresh& fresh;
  float* partials;
  unsigned* finished;
  unsigned* before;  // two counters as they were, in shared memory
  Four& team;
  const StretchStart& start;
  const ChunkShares& shares;
  int me, thread, group;

  __device__ float* written(const ChunkPlace& place, int chunk) const {
    return partials + (int64_t{place.first_item + chunk} * attention.heads + place.kv_head * group) * kWrittenPitch<D>;
  }
  __device__ int first_of(const ChunkPlace& place) const {
    return place.first_item * work.kv_heads + place.kv_head * place.chunks;
  }
  __device__ unsigned* counter(const ChunkPlace& place) const {
    return finished + place.sequence * kv.kv_heads + place.kv_head;
  }
  // The first chunk that is not joined by the team that has the first one seen.
  __device__ int joined_until(const ChunkPlace& place, int first_seen) const {
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
        *reinterpret_cast<float2*>(row + team.warp * Four::kNumbers + Four::column(n)) = Four::pair(sums, n, r);
    }
  }
  __device__ void put(const ChunkPlace& place, int row, const float (&base)[2], const float (&total)[2],
                      const float (&sums)[Four::kTiles][4]) const {
    char* to = static_cast<char*>(out.data) + row * out.stride;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = Four::lane() / 4 + 8 * r, number = place.kv_head * group + head;
      if (head >= group) continue;
      const float last = last_factor(base[r], total[r], attention.sinks, number);
#pragma unroll
      for (int n = 0; n < Four::kTiles; ++n) {
        const int col = number * D + team.warp * Four::kNumbers + Four::column(n);
        const float2 both = Four::pair(sums, n, r);
        const float x = both.x * last, y = both.y * last;
        if (out.form == Form::f32)
          *reinterpret_cast<float2*>(to + col * 4) = {x, y};
        else
          *reinterpret_cast<uint32_t*>(to + col * 2) =
              out.form == Form::f16 ? two<__half>(x, y) : two<__nv_bfloat16>(x, y);
      }
    }
  }

  // Says how many chunks have been written, of both ends of the stretch. True for those that this team joins alone.
  __device__ void publish(const CutChunks (&cuts)[2], bool (&joins)[2]) {
    team.sync();
    if (thread < 2) {  // what the others wrote before they met is seen by whoever sees this
      const CutChunks& cut = thread == 0 ? cuts[0] : cuts[1];
      if (cut.count > 0) before[thread] = add_to_counter(counter(cut.place), static_cast<unsigned>(cut.count));
    }
    team.sync();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      joins[i] = cuts[i].count > 0 &&
                 before[i] + static_cast<unsigned>(cuts[i].count) == static_cast<unsigned>(cuts[i].place.chunks);
    }
  }
  __device__ void finish(const CutChunks& cut, bool joins, const JoinRoom& room) const {
    if (cut.count == 0) return;
    const ChunkPlace& place = cut.place;
    const int until = joined_until(place, cut.first_seen), records = place.chunks - until + 1;
    const Written all = {written(place, until - 1), int64_t{attention.heads} * kWrittenPitch<D>, records,
                         place.kv_head * group};
    const JoinedRow to = {out, cut.row, attention.sinks};
    if (records <= kShareFrom) {
      if (!joins) return;
      join_alone<D>(all, group * D, to, room);
      if (thread == 0) *counter(place) = 0;
      return;
    }
    const int first = shares.owner(first_of(place)), last = shares.owner(first_of(place) + place.chunks - 1);
    const int part = me - first, of = last - first + 1, pieces = group * (D / 32), mine = (pieces - part + of - 1) / of;
    const unsigned chunks = static_cast<unsigned>(place.chunks);
    if (thread == 0) {
      while (read_counter(counter(place)) < chunks) __nanosleep(40);
    }
    team.sync();  // what thread 0 has seen is there for all
    if (mine <= kTeamWarps && mine * records * kPieceBytes <= room.bytes) {
      join_pieces<D>(all, part, of, pieces, to, room);
    } else {
      const uint32_t warps = static_cast<uint32_t>(team.warp * Join::kRooms * Join::kRoom);
      Join joiner = {all.from, all.stride, records, room.at + warps};
      joiner.run(part, of, group, attention, place.kv_head, cut.row, out);
      team.sync();
    }
    if (thread == 0 && atomicAdd(counter(place), 1u) == chunks + static_cast<unsigned>(of) - 1) *counter(place) = 0;
  }

  // room: shared memory for joining, once all chunks are done with; may be what they came through.
  __device__ void run(Feed& feed, uint32_t room) {
    const int first = start.first, last = start.last;
    if (first >= last) return wait_for_previous();
    const int g = Four::lane() / 4;
    CutChunks cuts[2] = {};
    ChunkPlace place = start.place;
    int sequence = place.sequence, row = start.row;
    Sight sight[2] = {};
    auto look = [&](int position, int visible) {
      sight[0] = {sight_begin(attention, position), visible, position, 0};
      sight[1] = sight[0];
    };
    look(start.position, start.visible);
    wait_for_previous();
    for (int number = first; number < last;) {  // one kv head of a sequence after the other
      const int from = place.chunk, to = min(place.chunks, from + (last - number));
      if (place.sequence != sequence) {
        sequence = place.sequence;
        row = step.first_row[sequence];
        look(step.positions[row], step.visible[row]);
      }
      if (Shaped && attention.slopes != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          sight[r].slope = g + 8 * r < group ? attention.slopes[place.kv_head * group + g + 8 * r] : 0.0f;
      }
      bring_queries<Four>(team.queries, q, row, group, place.kv_head, fresh, thread);
      const bool newest = Four::kPlain && fresh.table != nullptr && to == place.chunks;
      Newest<T, D> latest(thread);
      if (newest) latest.bring(step, kv, fresh, row, place.kv_head);
      team.sync();
      const int first_seen = sight[0].begin / kChunk;
      const bool joins = from <= first_seen;
      float base[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[Four::kTiles][4] = {};
      feed.begin(place, max(from, first_seen), to, sight[0].end);
      for (int chunk = max(from, first_seen); chunk < to; ++chunk) {
        const bool last_one = newest && chunk + 1 == place.chunks;
        const uint32_t keys = feed.keys();
        if (last_one) {
          latest.place(0, keys, sight[0].position - chunk * kChunk, team.run);
          team.sync();
        }
        team.multiply_keys(keys);
        feed.keys_read();
        team.weigh(chunk * kChunk, sight, attention, Shaped);
        feed.keys_free();
        const uint32_t values = feed.values();
        if (last_one) latest.place(1, values, sight[0].position - chunk * kChunk, team.run);
        if constexpr (Four::kPlain) {
          if ((chunk + 1) * kChunk > sight[0].end)
            clear_values<D>(values, sight[0].end - chunk * kChunk, team.run, thread);
          if (last_one || (chunk + 1) * kChunk > sight[0].end) team.sync();
        } else if (!sight[0].all(chunk * kChunk)) {
          team.clear_values(values, sight[0].begin - chunk * kChunk, sight[0].end - chunk * kChunk);
        }
        team.multiply_values(values);
        feed.values_read();
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
        const CutChunks cut = {place, to - from, row, first_seen};
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
    for (int i = 0; i < 2; ++i)
      finish(i == 0 ? cuts[0] : cuts[1], i == 0 ? joins[0] : joins[1], {room, Feed::kRoomBytes, team.name, thread});
  }
};

}  // namespace millrace::cuda

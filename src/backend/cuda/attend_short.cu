// Attention of sequences of one row. All their chunks, in the order of sequence, kv head, position, are shared out
// evenly: a thread group a multiprocessor takes a stretch of them. One warp asks for keys and values ahead, through a
// ring; four compute a chunk together, first a quarter of the positions each, then a quarter of the head's numbers.
// What begins with a sequence's first chunk is joined on the way; other chunks are written down, and joined in the end
// by the thread group that finishes last, or by all of them if there are many.
#include <algorithm>

#include "backend/cuda/attend_join.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = kJoiners;  // that compute
constexpr int kThreads = kWarps * 32 + 32;
constexpr int kName = 1;        // of the barrier among warps that compute
constexpr int kShareFrom = 48;  // written chunks from which on joining them is shared

template <int D>
struct Sizes {
  static constexpr int kEntryBytes = kChunk * D * 2;  // keys or values of a chunk
  static constexpr int kEntries = D == 128 ? 6 : 10;
  static constexpr int kShared = kEntries * kEntryBytes + 1024;
  static_assert(kWarps * Joiner<D>::kRooms * Joiner<D>::kRoom <= kEntries * kEntryBytes);
  static constexpr int kTiles = D / 32;  // of eight numbers, a warp's
};

struct Exchange {
  static constexpr int kPitch = kChunk * 2 + 16;
  __align__(16) char weights[16 * kPitch];
  float most[kWarps][16];
  float totals[kWarps][16][4];
  unsigned finished;
};

// ---- who computes what

struct Place {
  int sequence, kv_head, chunk;
  int chunks, first_item;  // of the sequence
};

struct Work {
  const int32_t* first_item;
  int sequences, kv_heads;

  __device__ int64_t all() const { return int64_t{first_item[sequences]} * kv_heads; }
  // The lanes of a warp look together.
  __device__ Place find(int64_t number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, item = static_cast<int>(number / kv_heads);
    int low = 0, span = sequences;
    while (span > 1) {
      const int step = (span + 31) / 32, probe = min(low + (lane + 1) * step, sequences);
      const bool beyond = probe >= low + span || first_item[probe] > item;
      low += (__ffs(static_cast<int>(__ballot_sync(~0u, beyond))) - 1) * step;
      span = step;
    }
    Place place = {low, 0, 0, first_item[low + 1] - first_item[low], first_item[low]};
    const int within = static_cast<int>(number - int64_t{place.first_item} * kv_heads);
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

// Where a thread group's stretch begins; those beyond the number of chunks have none.
__device__ inline int64_t share_begin(int64_t all, int64_t number) {
  const int64_t shares = min(all, int64_t{gridDim.x});
  return number < shares ? all * number / shares : all;
}
// The thread group that has an item.
__device__ inline int owner_of(int64_t all, int64_t item) {
  int64_t number = item * min(all, int64_t{gridDim.x}) / all;
  while (share_begin(all, number + 1) <= item) ++number;
  return static_cast<int>(number);
}

__device__ inline int row_begin(const DeviceStep& step, const Attention& attention, int row) {
  return attention.window > 0 ? max(0, step.positions[row] - attention.window + 1) : 0;
}

// ---- the warp that asks

template <int D>
__device__ void bring(const DeviceStep& step, const Attention& attention, const KvView& kv, const KvMaps& maps,
                      const Work& work, uint32_t ring, uint64_t* full, uint64_t* free) {
  using Size = Sizes<D>;
  const int lane = static_cast<int>(threadIdx.x) % 32, shift = 31 - __clz(kv.page_tokens);
  const int64_t all = work.all(), first = share_begin(all, blockIdx.x), last = share_begin(all, blockIdx.x + 1);
  bool waited = false;
  if (first < last) {
    Place place = work.find(first);
    Turn<Size::kEntries> turn;
    int sequence = -1, end = 0, known = 0, begin = 0;
    for (int64_t number = first; number < last; ++number, work.next(place)) {
      if (place.sequence != sequence) {
        sequence = place.sequence;
        const int row = step.first_row[sequence];
        end = step.visible[row], known = min(end, step.positions[row]), begin = row_begin(step, attention, row);
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

// ---- the warps that compute

template <class T>
__device__ void product(float (&sums)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, a, b0, b1);
  else
    multiply_add(sums, a, b0, b1);
}

// The queries of a kv head as operands: row i is head i of the group.
template <class T, int D>
__device__ void read_queries(uint4 (&q)[D / 16], const View& view, int64_t row, int group, int kv_head) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  auto pair = [&](int query, int dim) -> uint32_t {
    if (query >= group) return 0;
    const int col = (kv_head * group + query) * D + dim;
    return two<T>(read(view, row, col), read(view, row, col + 1));
  };
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const int dim = k * 16 + 2 * t;
    q[k] = {pair(g, dim), pair(g + 8, dim), pair(g, dim + 8), pair(g + 8, dim + 8)};
  }
}

// Where a position's first 64 numbers lie in an entry of boxes.
template <int D>
__device__ uint32_t position_at(int position, int run) {
  return static_cast<uint32_t>((position & ~(run - 1)) * D * 2 + (position & (run - 1)) * 128);
}

template <int D>
__device__ void clear_values(uint32_t values, int from, int run) {
  constexpr int kPieces = D / 8;
  for (int i = from * kPieces + static_cast<int>(threadIdx.x); i < kChunk * kPieces; i += kWarps * 32) {
    const uint32_t place =
        values + position_at<D>(i / kPieces, run) + static_cast<uint32_t>(i % kPieces / 8 * run * 128 + i % 8 * 16);
    asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(place), "r"(0) : "memory");
  }
  fence_copies();  // the next copy comes after
}

struct ChunkSums {
  float most[2], total[2];  // rows g and g + 8
};

template <class T, int D, bool Shaped>
struct Computer {
  using Size = Sizes<D>;
  const DeviceStep& step;
  const Attention& attention;
  Exchange& exchange;
  int run;
  float factor;
  uint4 q[D / 16];
  Sight sight[2];
  float sums[Size::kTiles][4];

  __device__ int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }

  // This warp's quarter of the positions: weights into shared memory. All warps have the same maxima and sums.
  __device__ ChunkSums weigh(uint32_t keys, uint64_t* free, int start) {
    const int g = lane() / 4, t = lane() % 4;
    float scores[kQuarter / 8][4] = {};
    uint32_t rows[kQuarter / 8];
#pragma unroll
    for (int j = 0; j < kQuarter / 8; ++j) rows[j] = keys + position_at<D>(warp() * kQuarter + j * 8 + lane() % 8, run);
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      const int piece = k * 4 + lane() / 8;
      const uint32_t to = static_cast<uint32_t>(piece / 8 * run * 128 + ((piece % 8) ^ (lane() % 8)) * 16);
      uint4 b[kQuarter / 8];
#pragma unroll
      for (int j = 0; j < kQuarter / 8; ++j) b[j] = load_matrices(rows[j] + to);
#pragma unroll
      for (int j = 0; j < kQuarter / 8; ++j) product<T>(scores[j], q[2 * k], b[j].x, b[j].y);
#pragma unroll
      for (int j = 0; j < kQuarter / 8; ++j) product<T>(scores[j], q[2 * k + 1], b[j].z, b[j].w);
    }
    __syncwarp();
    if (lane() == 0) barrier_arrive(shared_address(free));
    const int first = start + warp() * kQuarter + 2 * t;
    ChunkSums result;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float high = -INFINITY;
#pragma unroll
      for (int j = 0; j < kQuarter / 8; ++j) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          const int position = first + j * 8 + i % 2;
          if (Shaped) scores[j][i] = shaped(scores[j][i], attention, sight[r], position);
          if (position < sight[r].begin || position >= sight[r].end) scores[j][i] = -INFINITY;
          high = fmaxf(high, scores[j][i]);
        }
      }
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
      if (t == 0) exchange.most[warp()][g + 8 * r] = high;
    }
    group_sync(kName, kWarps * 32);
    float less[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = exchange.most[0][g + 8 * r];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) most = fmaxf(most, exchange.most[w][g + 8 * r]);
      result.most[r] = most * factor;
      less[r] = most == -INFINITY ? 0.0f : -result.most[r];
    }
    float lanes[4];
#pragma unroll
    for (int j = 0; j < kQuarter / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = power_of_two(fmaf(scores[j][i], factor, less[i / 2]));
        lanes[i] = j == 0 ? scores[j][i] : lanes[i] + scores[j][i];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        char* to = exchange.weights + (g + 8 * r) * Exchange::kPitch + (warp() * kQuarter + j * 8 + 2 * t) * 2;
        *reinterpret_cast<uint32_t*>(to) = two<T>(scores[j][2 * r], scores[j][2 * r + 1]);
      }
    }
    exchange.totals[warp()][g][t] = lanes[0] + lanes[1];
    exchange.totals[warp()][g + 8][t] = lanes[2] + lanes[3];
    group_sync(kName, kWarps * 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      auto quarter = [&](int w) { return exchange.totals[w][g + 8 * r][t]; };
      float total = (quarter(0) + quarter(1)) + (quarter(2) + quarter(3));
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      result.total[r] = total;
    }
    return result;
  }

  // This warp's quarter of the numbers.
  __device__ void multiply_values(uint32_t values) {
    const uint32_t weights =
        shared_address(exchange.weights) + static_cast<uint32_t>(lane() % 16 * Exchange::kPitch + lane() / 16 * 16);
#pragma unroll
    for (int n = 0; n < Size::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      const uint4 p = load_matrices(weights + static_cast<uint32_t>(k * 32));
      const uint32_t row = values + position_at<D>(k * 16 + lane() % 16, run);
#pragma unroll
      for (int n = 0; n < Size::kTiles / 2; ++n) {
        const int piece = warp() * Size::kTiles + n * 2 + lane() / 16;
        const uint4 b = load_matrices_turned(
            row + static_cast<uint32_t>(piece / 8 * run * 128 + ((piece % 8) ^ (lane() % 8)) * 16));
        product<T>(sums[2 * n], p, b.x, b.y);
        product<T>(sums[2 * n + 1], p, b.z, b.w);
      }
    }
  }
};

// This warp's numbers of the group's rows, at `to` for the first head.
template <int D>
__device__ void write_rows(float* to, int group, const float (&most)[2], const float (&total)[2],
                           const float (&sums)[Sizes<D>::kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int head = lane / 4 + 8 * r;
    if (head >= group) continue;
    float* row = to + head * kWrittenPitch<D>;
    if (t == 0 && warp == 0) *reinterpret_cast<float2*>(row + D) = {most[r], total[r]};
#pragma unroll
    for (int n = 0; n < Sizes<D>::kTiles; ++n)
      *reinterpret_cast<float2*>(row + warp * (D / 4) + n * 8 + 2 * t) = {sums[n][2 * r], sums[n][2 * r + 1]};
  }
}

// ---- joining what was written

// A sequence's kv head of which this thread group computed some chunks.
struct Cut {
  Place place;
  bool share;  // the joining
  bool joins;  // this thread group does, all of it
};

__device__ inline unsigned read_counter(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

template <class T, int D, bool Shaped>
struct Stretch {
  using Size = Sizes<D>;
  const DeviceStep& step;
  const Attention& attention;
  const KvView& kv;
  const View& q;
  const View& out;
  const Work& work;
  float* partials;
  unsigned* finished;
  Exchange& exchange;
  int64_t all;

  __device__ int group() const { return attention.heads / kv.kv_heads; }
  __device__ float* written(const Place& place, int chunk) const {
    return partials +
           (int64_t{place.first_item + chunk} * attention.heads + place.kv_head * group()) * kWrittenPitch<D>;
  }
  __device__ int64_t first_of(const Place& place) const {
    return int64_t{place.first_item} * work.kv_heads + int64_t{place.kv_head} * place.chunks;
  }
  // The first chunk that is not joined by the thread group that has the first one seen.
  __device__ int joined_until(const Place& place, int first_seen) const {
    const int64_t first = first_of(place);
    return static_cast<int>(
        min(share_begin(all, owner_of(all, first + first_seen) + 1) - first, int64_t{place.chunks}));
  }

  __device__ void put(const Place& place, int row, const float (&base)[2], const float (&total)[2],
                      const float (&sums)[Size::kTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = lane / 4 + 8 * r, number = place.kv_head * group() + head;
      if (head >= group()) continue;
      const float last = last_factor(base[r], total[r], attention.sinks, number);
#pragma unroll
      for (int n = 0; n < Size::kTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          write(out, row, number * D + warp * (D / 4) + n * 8 + lane % 4 * 2 + j, sums[n][2 * r + j] * last);
      }
    }
  }

  // Says that `count` chunks have been written.
  __device__ Cut publish(const Place& place, int count, int first_seen) {
    Cut cut = {place, place.chunks - joined_until(place, first_seen) > kShareFrom, false};
    unsigned* counter = finished + place.sequence * kv.kv_heads + place.kv_head;
    __threadfence();
    group_sync(kName, kWarps * 32);
    if (threadIdx.x == 0) exchange.finished = atomicAdd(counter, static_cast<unsigned>(count));
    group_sync(kName, kWarps * 32);
    cut.joins = !cut.share && exchange.finished + static_cast<unsigned>(count) == static_cast<unsigned>(place.chunks);
    if (cut.joins && threadIdx.x == 0) *counter = 0;
    return cut;
  }

  __device__ void finish(const Cut& cut, uint32_t ring, const char* seen_ring) const {
    if (!cut.share && !cut.joins) return;
    const Place& place = cut.place;
    int part = 0, of = 1;
    if (cut.share) {
      const int first = owner_of(all, first_of(place)), last = owner_of(all, first_of(place) + place.chunks - 1);
      part = static_cast<int>(blockIdx.x) - first, of = last - first + 1;
      unsigned* counter = finished + place.sequence * kv.kv_heads + place.kv_head;
      const unsigned chunks = static_cast<unsigned>(place.chunks);
      if (threadIdx.x == 0) {
        while (read_counter(counter) < chunks) __nanosleep(100);
        if (atomicAdd(counter, 1u) == chunks + static_cast<unsigned>(of) - 1) *counter = 0;
      }
    }
    __threadfence();
    group_sync(kName, kWarps * 32);
    const int row = step.first_row[place.sequence];
    const int until = joined_until(place, row_begin(step, attention, row) / kChunk);
    const uint32_t mine = static_cast<uint32_t>(threadIdx.x) / 32 * Joiner<D>::kRooms * Joiner<D>::kRoom;
    Joiner<D> joiner = {written(place, until - 1), int64_t{attention.heads} * kWrittenPitch<D>,
                        place.chunks - until + 1, ring + mine, seen_ring + mine};
    joiner.run(part, of, group(), attention, place.kv_head, row, out);
    group_sync(kName, kWarps * 32);
  }

  __device__ void run(int run_tokens, uint32_t ring, const char* seen_ring, uint64_t* full, uint64_t* free) {
    const int64_t first = share_begin(all, blockIdx.x), last = share_begin(all, blockIdx.x + 1);
    if (first >= last) return;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    Computer<T, D, Shaped> computer = {
        step, attention, exchange, run_tokens, Shaped ? kLog2e : attention.scale * kLog2e, {}, {}, {}};
    Turn<Size::kEntries> turn;
    Cut cuts[2] = {};
    Place place = work.find(first);
    for (int64_t number = first; number < last;) {  // one kv head of a sequence after the other
      const int from = place.chunk, to = static_cast<int>(min(int64_t{place.chunks}, from + (last - number)));
      const int row = step.first_row[place.sequence], end = step.visible[row];
      const int first_seen = row_begin(step, attention, row) / kChunk;
      const bool joins = from <= first_seen;
      read_queries<T, D>(computer.q, q, row, group(), place.kv_head);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        computer.sight[r] = sight_of(step, attention, g + 8 * r, group(), row, group(), place.kv_head);
      float base[2] = {-INFINITY, -INFINITY}, total[2] = {}, sums[Size::kTiles][4] = {};
      for (int chunk = max(from, first_seen); chunk < to; ++chunk) {
        barrier_wait(shared_address(&full[turn.stage]), turn.round);
        const ChunkSums one = computer.weigh(ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes),
                                             &free[turn.stage], chunk * kChunk);
        turn.next();
        const uint32_t values = ring + static_cast<uint32_t>(turn.stage * Size::kEntryBytes);
        barrier_wait(shared_address(&full[turn.stage]), turn.round);
        if ((chunk + 1) * kChunk > end) {
          clear_values<D>(values, end - chunk * kChunk, run_tokens);
          group_sync(kName, kWarps * 32);
        }
        computer.multiply_values(values);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&free[turn.stage]));
        turn.next();
        if (joins) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const Factors factors = join(base[r], total[r], one.most[r], one.total[r]);
#pragma unroll
            for (int n = 0; n < Size::kTiles; ++n) {
#pragma unroll
              for (int i = 2 * r; i < 2 * r + 2; ++i)
                sums[n][i] = fmaf(computer.sums[n][i], factors.of_chunk, sums[n][i] * factors.of_all);
            }
          }
        } else {
          write_rows<D>(written(place, chunk), group(), one.most, one.total, computer.sums);
        }
      }
      if (from == 0 && to == place.chunks) {
        put(place, row, base, total, sums);
      } else {
        if (joins && to > first_seen) write_rows<D>(written(place, to - 1), group(), base, total, sums);
        Cut& cut = cuts[number == first ? 0 : 1];
        cut = publish(place, to - from, first_seen);
      }
      number += to - from;
      place.chunk = place.chunks - 1;
      if (number < last) work.next(place);
    }
    for (const Cut& cut : cuts) finish(cut, ring, seen_ring);
  }
};

template <class T, int D, bool Shaped>
__global__ void __launch_bounds__(kThreads, 1)
    short_kernel(const __grid_constant__ DeviceStep step, const __grid_constant__ Attention attention,
                 const __grid_constant__ View q, const __grid_constant__ KvView kv, const __grid_constant__ View out,
                 const __grid_constant__ KvMaps maps, const int32_t* first_item, float* partials, unsigned* finished) {
  using Size = Sizes<D>;
  extern __shared__ char raw[];
  __shared__ uint64_t full[Size::kEntries], free[Size::kEntries];
  __shared__ Exchange exchange;
  const uint32_t ring = (shared_address(raw) + 1023) & ~1023u;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Size::kEntries; ++i) {
      barrier_begin(shared_address(&full[i]), 1);
      barrier_begin(shared_address(&free[i]), kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const Work work = {first_item, step.sequences, kv.kv_heads};
  if (threadIdx.x >= kWarps * 32) return bring<D>(step, attention, kv, maps, work, ring, full, free);
  wait_for_previous();
  Stretch<T, D, Shaped> stretch = {step, attention, kv, q, out, work, partials, finished, exchange, work.all()};
  stretch.run(maps.run, ring, raw + (ring - shared_address(raw)), full, free);
}

template <class T, int D, bool Shaped>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const KvMaps& maps, const AttendPlan& plan) {
  static const bool prepared = prepare(short_kernel<T, D, Shaped>, Sizes<D>::kShared);
  static_cast<void>(prepared);
  const int64_t most = std::max<int64_t>(1, plan.longest) * step.sequences * kv.kv_heads;
  launch(stream, short_kernel<T, D, Shaped>, count(std::min<int64_t>(multiprocessors(), most)), kThreads,
         Sizes<D>::kShared, step, attention, q, kv, out, maps, plan.first_item, plan.partials, plan.finished);
}

template <class T, int D>
void start(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q, const KvView& kv,
           const View& out, const KvMaps& maps, const AttendPlan& plan) {
  return shapes_scores(attention) ? start<T, D, true>(stream, step, attention, q, kv, out, maps, plan)
                                  : start<T, D, false>(stream, step, attention, q, kv, out, maps, plan);
}

}  // namespace

void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan) {
  if (kv.type == DType::f16) {
    return kv.k_dim == 64 ? start<__half, 64>(stream, step, attention, q, kv, out, maps, plan)
                          : start<__half, 128>(stream, step, attention, q, kv, out, maps, plan);
  }
  return kv.k_dim == 64 ? start<__nv_bfloat16, 64>(stream, step, attention, q, kv, out, maps, plan)
                        : start<__nv_bfloat16, 128>(stream, step, attention, q, kv, out, maps, plan);
}

}  // namespace millrace::cuda

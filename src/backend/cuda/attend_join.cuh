// Joining chunks that were written down by different thread blocks (attend_short.cu), in order: what they have for a
// piece of a row is brought to shared memory, much of it at a time, for memory is far away while others still read. The
// arithmetic is join()'s of attend.cuh. Device code.
#pragma once

#include "backend/cuda/attend.cuh"

namespace millrace::cuda {

inline constexpr int kJoiners = 4;  // warps of a team, which joins
inline constexpr int kJoinThreads = kJoiners * 32;
template <int D>
inline constexpr int kWrittenPitch = D + 4;  // floats of a written row: values, maximum, sum

// What is joined to rows of a kv head's queries, and where it goes.
struct Written {
  const float* from;  // the first chunk's
  int64_t stride;     // floats from chunk to chunk
  int records;
  int first_head;
};
struct JoinedRow {
  View out;
  int row;
  const float* sinks;
};
// Of a team: shared memory, its size, and the name of the barrier where it meets.
struct JoinRoom {
  uint32_t at;
  int bytes, name, thread;
};

__device__ inline float load_one(uint32_t shared) {
  float one;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(one) : "r"(shared) : "memory");
  return one;
}
__device__ inline float2 load_two(uint32_t shared) {
  float2 two;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(shared) : "memory");
  return two;
}
__device__ inline float4 load_four(uint32_t shared) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(shared)
               : "memory");
  return four;
}
__device__ inline void store_one(uint32_t shared, float one) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared), "f"(one) : "memory");
}

// sum = value * share + sum * rest
__device__ inline void add_share(float4& sum, float4 value, float share, float rest) {
  sum = {fmaf(value.x, share, sum.x * rest), fmaf(value.y, share, sum.y * rest), fmaf(value.z, share, sum.z * rest),
         fmaf(value.w, share, sum.w * rest)};
}

// Joins what value(i) and one(i), a chunk's maximum and sum, give: AtOnce at a time where none of them moves the base,
// for then nothing but additions waits for one another. Little code: it is gone through few times.
template <int AtOnce, class Value, class One>
__device__ __forceinline__ void join_all(int count, float& base, float& total, float4& sum, Value&& value, One&& one) {
#pragma unroll 1
  for (int first = 0; first < count;) {
    if (first + AtOnce <= count) {
      float2 ones[AtOnce];
      float4 values[AtOnce];
      float most = -INFINITY;
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) ones[i] = one(first + i), most = fmaxf(most, ones[i].x);
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) values[i] = value(first + i);
      if (!rebases(base, most)) {
#pragma unroll
        for (int i = 0; i < AtOnce; ++i) {
          const float share = ones[i].x == -INFINITY ? 0.0f : power_of_two(ones[i].x - base);
          total = fmaf(ones[i].y, share, total);
          add_share(sum, values[i], share, 1);
        }
        first += AtOnce;
        continue;
      }
    }
    const float2 next = one(first);
    const Factors factors = join(base, total, next.x, next.y);
    add_share(sum, value(first), factors.of_chunk, factors.of_all);
    ++first;
  }
}

// By a team alone: each thread joins four numbers. All chunks are on their way at once, or, if there is no room for
// that, the next ones while these are joined.
template <int D>
__device__ __noinline__ void join_alone(Written written, int numbers, JoinedRow to, JoinRoom room) {
  constexpr int kPass = kJoinThreads * 4, kAtOnce = 8;
  static_assert(kPass % D == 0);
  const int thread = room.thread;
#pragma unroll 1
  for (int begin = 0; begin < numbers; begin += kPass) {
    const int count = min(kPass, numbers - begin), fours = count / 4, heads = (count + D - 1) / D;
    const int bytes = count * 4 + heads * 16, half = room.bytes / 2 / bytes * bytes;
    const int batch = written.records * bytes <= room.bytes ? written.records : half / bytes;
    const float* from = written.from + begin / D * kWrittenPitch<D>;
    const float* mine = from + thread * 4 / D * kWrittenPitch<D> + thread * 4 % D;
    auto bring = [&](int first, uint32_t at) {
      const int here = min(batch, written.records - first);
      if (thread < fours) {
        const float* next = mine + first * written.stride;
        uint32_t to = at + static_cast<uint32_t>(thread * 16);
#pragma unroll 4
        for (int i = 0; i < here; ++i, next += written.stride, to += static_cast<uint32_t>(count * 4))
          copy_16(to, next, 16);
      }
#pragma unroll 1
      for (int head = thread / 32; head < heads; head += kJoiners) {
#pragma unroll 1
        for (int i = thread % 32; i < here; i += 32)
          copy_16(at + static_cast<uint32_t>(here * count * 4 + (i * heads + head) * 16),
                  from + (first + i) * written.stride + head * kWrittenPitch<D> + D, 16);
      }
      copies_end();
    };
    float base = -INFINITY, total = 0;
    float4 sum = {};
    bring(0, room.at);
#pragma unroll 1
    for (int first = 0, side = 0; first < written.records; first += batch, side ^= 1) {
      bring(first + batch, room.at + static_cast<uint32_t>((side ^ 1) * half));
      copies_wait<1>();
      group_sync(room.name, kJoinThreads);
      const int here = min(batch, written.records - first);
      if (thread < fours) {
        const uint32_t values = room.at + static_cast<uint32_t>(side * half + thread * 16);
        const uint32_t sums = room.at + static_cast<uint32_t>(side * half + here * count * 4 + thread * 4 / D * 16);
        join_all<kAtOnce>(
            here, base, total, sum, [&](int i) { return load_four(values + static_cast<uint32_t>(i * count * 4)); },
            [&](int i) { return load_two(sums + static_cast<uint32_t>(i * heads * 16)); });
      }
      group_sync(room.name, kJoinThreads);
    }
    copies_wait<0>();
    if (thread < fours) {
      const int number = begin + thread * 4, head = written.first_head + number / D;
      const float last = last_factor(base, total, to.sinks, head);
      write_four(to.out, to.row, head * D + number % D, {sum.x * last, sum.y * last, sum.z * last, sum.w * last}, 4);
    }
  }
}

// Joins chunks brought to shared memory to one number of a row, each lane its own: 32 maxima are looked at together,
// and overwritten by what is multiplied with. A chunk's numbers lie Pitch bytes behind those of the chunk before, its
// maximum and sum SumsPitch bytes.
template <int Pitch, int SumsPitch>
__device__ void join_brought(uint32_t values, uint32_t sums, int count, float& base, float& total, float& sum) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int first = 0; first < count; first += 32, values += 32 * Pitch, sums += 32 * SumsPitch) {
    const int here = min(32, count - first);
    const uint32_t column = values + static_cast<uint32_t>(lane * 4),
                   place = sums + static_cast<uint32_t>(lane * SumsPitch);
    float2 mine = {-INFINITY, 0};
    if (lane < here) mine = load_two(place);
    auto add = [&](int i) {
      const float2 one = load_two(sums + static_cast<uint32_t>(i * SumsPitch));
      total = fmaf(one.y, one.x, total);
      sum = fmaf(load_one(column + static_cast<uint32_t>(i * Pitch)), one.x, sum);
    };
#pragma unroll 1
    for (int i = 0; i < here;) {  // up to the next that moves the base
      const unsigned far = __ballot_sync(~0u, lane >= i && rebases(base, mine.x));
      const int next = far != 0 ? __ffs(static_cast<int>(far)) - 1 : here;
      __syncwarp();
      if (lane < here) store_one(place, mine.x == -INFINITY ? 0.0f : power_of_two(mine.x - base));
      __syncwarp();
      if (next - i == 32) {
#pragma unroll
        for (int j = 0; j < 32; ++j) add(j);
      } else {
#pragma unroll 4
        for (; i < next; ++i) add(i);
      }
      if (far == 0) break;
      const float most = __shfl_sync(~0u, mine.x, next), factor = power_of_two(base - most);
      base = most;
      total = fmaf(__shfl_sync(~0u, mine.y, next), 1.0f, total * factor);
      sum = fmaf(load_one(column + static_cast<uint32_t>(next * Pitch)), 1.0f, sum * factor);
      i = next + 1;
    }
  }
}

// Each warp joins a piece of 32 numbers, which all threads bring, all records at once: pieces `first` and every `of`-th
// behind it, so few that there is a warp and room for each.
inline constexpr int kPieceBytes = 144;  // of a record: 32 values, then maximum and sum
template <int D>
__device__ __noinline__ void join_pieces(Written written, int first, int of, int pieces, JoinedRow to, JoinRoom room) {
  const int thread = room.thread, lane = thread % 32, records = written.records, bytes = records * kPieceBytes;
  uint32_t at = room.at;
#pragma unroll 1
  for (int piece = first; piece < pieces; piece += of, at += static_cast<uint32_t>(bytes)) {
    const float* from = written.from + piece / (D / 32) * kWrittenPitch<D>;
    const float* mine = from + piece % (D / 32) * 32 + thread % 8 * 4 + thread / 8 * written.stride;
#pragma unroll 8
    for (int i = thread; i < records * 8; i += kJoinThreads, mine += kJoinThreads / 8 * written.stride)
      copy_16(at + static_cast<uint32_t>(i * 16), mine, 16);
#pragma unroll 1
    for (int i = thread; i < records; i += kJoinThreads)
      copy_16(at + static_cast<uint32_t>(records * 128 + i * 16), from + i * written.stride + D, 16);
  }
  copies_end();
  copies_wait<0>();
  group_sync(room.name, kJoinThreads);
  const int piece = first + thread / 32 * of;
  if (piece < pieces) {
    const uint32_t mine = room.at + static_cast<uint32_t>(thread / 32 * bytes);
    float base = -INFINITY, total = 0, sum = 0;
    join_brought<128, 16>(mine, mine + static_cast<uint32_t>(records * 128), records, base, total, sum);
    const int head = written.first_head + piece / (D / 32);
    write(to.out, to.row, head * D + piece % (D / 32) * 32 + lane, sum * last_factor(base, total, to.sinks, head));
  }
  group_sync(room.name, kJoinThreads);
}

// The same where there are more chunks than room, or more pieces than warps: a warp brings its own, a batch while the
// one before is joined.
template <int D, int Batch>
struct Joiner {
  static constexpr int kBatch = Batch;  // chunks brought at a time
  static constexpr int kRoom = kBatch * kPieceBytes, kRooms = 2;
  const float* from;  // the kv head's first row in the first chunk
  int64_t stride;     // floats from chunk to chunk
  int records;        // the first is what was joined already
  uint32_t rooms;     // of this warp

  __device__ void bring(int piece, int batch, int room) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, first = batch * kBatch, count = min(kBatch, records - first);
    const float* row = from + int64_t{piece / (D / 32)} * kWrittenPitch<D>;
    const uint32_t to = rooms + static_cast<uint32_t>(room * kRoom);
#pragma unroll 2
    for (int i = lane / 8; i < count; i += 4)
      copy_16(to + static_cast<uint32_t>(i * 128 + lane % 8 * 16),
              row + (first + i) * stride + piece % (D / 32) * 32 + lane % 8 * 4, 16);
#pragma unroll 1
    for (int i = lane; i < count; i += 32)
      copy_16(to + static_cast<uint32_t>(kBatch * 128 + i * 16), row + (first + i) * stride + D, 16);
  }

  // Every `of`-th piece of 32 numbers from `part` on, shared among the warps.
  __device__ void run(int part, int of, int group, const Attention& attention, int kv_head, int row, const View& out) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % kJoiners;
    const int pieces = group * (D / 32), batches = (records + kBatch - 1) / kBatch;
    const int mine = (pieces - part + of - 1) / of, jobs = (mine - warp + kJoiners - 1) / kJoiners * batches;
    auto piece_of = [&](int job) { return part + (warp + job / batches * kJoiners) * of; };
    float base = -INFINITY, total = 0, sum = 0;
#pragma unroll 1
    for (int job = -1; job < jobs; ++job) {  // one is brought ahead
      __syncwarp();
      if (job + 1 < jobs) bring(piece_of(job + 1), (job + 1) % batches, (job + 1) % kRooms);
      copies_end();
      if (job < 0) continue;
      copies_wait<1>();
      __syncwarp();
      const uint32_t room = rooms + static_cast<uint32_t>(job % kRooms * kRoom);
      join_brought<128, 16>(room, room + kBatch * 128, min(kBatch, records - job % batches * kBatch), base, total, sum);
      if ((job + 1) % batches != 0) continue;
      const int piece = piece_of(job), number = kv_head * group + piece / (D / 32);
      write(out, row, number * D + piece % (D / 32) * 32 + lane,
            sum * last_factor(base, total, attention.sinks, number));
      base = -INFINITY, total = 0, sum = 0;
    }
    copies_wait<0>();
  }
};

}  // namespace millrace::cuda

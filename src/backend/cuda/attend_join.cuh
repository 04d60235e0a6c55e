// Joining chunks that were written down by different thread groups (attend_short.cu): a warp takes 32 numbers of a row,
// brings what the chunks have for them to shared memory, many at a time, and joins them in order. The arithmetic is
// join()'s of attend.cuh. Device code.
#pragma once

#include "backend/cuda/attend.cuh"

namespace millrace::cuda {

inline constexpr int kJoiners = 4;  // warps of a thread group that join
template <int D>
inline constexpr int kWrittenPitch = D + 4;  // floats of a written row: values, maximum, sum

// Joins chunks brought to shared memory to one number of a row, each lane its own: 32 maxima are looked at together. A
// chunk's numbers lie Pitch bytes behind those of the chunk before, its maximum and sum SumsPitch bytes.
template <int Pitch, int SumsPitch>
__device__ void join_brought(const char* values, const char* sums, int count, float& base, float& total, float& sum) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = 0; first < count; first += 32) {
    const int here = min(32, count - first);
    float2 mine = {-INFINITY, 0};
    if (lane < here) mine = *reinterpret_cast<const float2*>(sums + (first + lane) * SumsPitch);
    const char* column = values + first * Pitch + lane * 4;
    auto value = [&](int i) { return *reinterpret_cast<const float*>(column + i * Pitch); };
    for (int done = 0; done < here;) {
      const unsigned far = __ballot_sync(~0u, lane >= done && rebases(base, mine.x));
      const int next = far != 0 ? __ffs(static_cast<int>(far)) - 1 : here;
      const float share = mine.x == -INFINITY ? 0.0f : power_of_two(mine.x - base);
#pragma unroll 8
      for (; done < next; ++done) {
        const float factor = __shfl_sync(~0u, share, done);
        total = fmaf(__shfl_sync(~0u, mine.y, done), factor, total);
        sum = fmaf(value(done), factor, sum);
      }
      if (far == 0) break;
      const float most = __shfl_sync(~0u, mine.x, next), factor = power_of_two(base - most);
      base = most;
      total = fmaf(__shfl_sync(~0u, mine.y, next), 1.0f, total * factor);
      sum = fmaf(value(next), 1.0f, sum * factor);
      done = next + 1;
    }
  }
}

template <int D, int Batch>
struct Joiner {
  static constexpr int kBatch = Batch;                    // chunks brought at a time
  static constexpr int kRoom = kBatch * 144, kRooms = 2;  // 32 values, then maximum and sum
  const float* from;                                      // the kv head's first row in the first chunk
  int64_t stride;                                         // floats from chunk to chunk
  int records;                                            // the first is what was joined already
  uint32_t rooms;                                         // of this warp
  const char* seen_rooms;

  __device__ void bring(int unit, int batch, int room) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, first = batch * kBatch, count = min(kBatch, records - first);
    const float* row = from + int64_t{unit / (D / 32)} * kWrittenPitch<D>;
    const uint32_t to = rooms + static_cast<uint32_t>(room * kRoom);
#pragma unroll 2
    for (int i = lane / 8; i < count; i += 4)
      copy_16(to + static_cast<uint32_t>(i * 128 + lane % 8 * 16),
              row + (first + i) * stride + unit % (D / 32) * 32 + lane % 8 * 4, 16);
#pragma unroll 1
    for (int i = lane; i < count; i += 32)
      copy_16(to + static_cast<uint32_t>(kBatch * 128 + i * 16), row + (first + i) * stride + D, 16);
  }

  // Every `of`-th unit of 32 numbers from `part` on, shared among the warps.
  __device__ void run(int part, int of, int group, const Attention& attention, int kv_head, int row, const View& out) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % kJoiners;
    const int units = group * (D / 32), batches = (records + kBatch - 1) / kBatch;
    const int mine = (units - part + of - 1) / of, jobs = (mine - warp + kJoiners - 1) / kJoiners * batches;
    auto unit_of = [&](int job) { return part + (warp + job / batches * kJoiners) * of; };
    float base = -INFINITY, total = 0, sum = 0;
#pragma unroll 1
    for (int job = -1; job < jobs; ++job) {  // one is brought ahead
      __syncwarp();
      if (job + 1 < jobs) bring(unit_of(job + 1), (job + 1) % batches, (job + 1) % kRooms);
      copies_end();
      if (job < 0) continue;
      copies_wait<1>();
      __syncwarp();
      const char* room = seen_rooms + job % kRooms * kRoom;
      join_brought<128, 16>(room, room + kBatch * 128, min(kBatch, records - job % batches * kBatch), base, total, sum);
      if ((job + 1) % batches != 0) continue;
      const int unit = unit_of(job), number = kv_head * group + unit / (D / 32);
      write(out, row, number * D + unit % (D / 32) * 32 + lane,
            sum * last_factor(base, total, attention.sinks, number));
      base = -INFINITY, total = 0, sum = 0;
    }
    copies_wait<0>();
  }
};

}  // namespace millrace::cuda

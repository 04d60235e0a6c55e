// What a team of four warps reads before its first chunk of a single row: queries, turned if they are not yet, and the
// newest key and value, which it puts into the cache and among those that were copied from there. Device code.
#pragma once

#include "backend/cuda/attend_team.cuh"
#include "backend/cuda/turn.cuh"

namespace millrace::cuda {

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

// Four numbers of sixteen bits to shared memory.
__device__ inline void put_four(uint32_t to, const uint2& numbers) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to), "r"(numbers.x), "r"(numbers.y) : "memory");
}

// Queries of a kv head: row i is head i of the group.
template <class Four>
__device__ void bring_queries(uint32_t to, const View& view, int row, int group, int kv_head,
                              const AttendPlan::Fresh& fresh, int thread) {
  using T = typename Four::Number;
  constexpr int D = Four::kDim;
  const auto* from = reinterpret_cast<const float*>(static_cast<const char*>(view.data) + row * view.stride);
#pragma unroll 1
  for (int i = thread * 4; i < group * D; i += kTeamThreads * 4) {
    const int col = kv_head * group * D + i;
    const uint32_t place = to + static_cast<uint32_t>(i / D * Four::kQueryPitch);
    if (is_form<T>(view.form)) {  // rounded already
      Four::put_query(place, i % D, reinterpret_cast<const uint2*>(from)[col / 4]);
      continue;
    }
    float4 four;
    if (fresh.table != nullptr) {
      four = turned_four(from + (col - i % D), i % D, fresh, row);
    } else if (view.form == Form::f32) {
      four = *reinterpret_cast<const float4*>(from + col);
    } else {
      four = {read(view, row, col), read(view, row, col + 1), read(view, row, col + 2), read(view, row, col + 3)};
    }
    Four::put_query(place, i % D, {two<T>(four.x, four.y), two<T>(four.z, four.w)});
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
    put_four(to, numbers);
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

}  // namespace millrace::cuda

// What the two attention kernels share: the arithmetic of a row, and where keys and values lie. A row's positions are
// cut into chunks of kChunk at fixed places. For each chunk: scores are one chain over the head's numbers; their
// maximum; 2^(score - maximum), rounded to 16 bits for the product with the values, which is one chain over the
// chunk's positions from zero; their sum, of quarters of the chunk. Chunks join one after the other (join below). Who
// computes a chunk, and beside what, does not change a bit. Device code and the host side of attend*.cu.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {

inline constexpr int kChunk = 128;
inline constexpr int kQuarter = kChunk / 4;
inline constexpr float kLog2e = 1.44269504f;
inline constexpr float kSlack = 8;  // maxima may grow by 2^kSlack before what was summed is scaled down

// How pages are copied to shared memory: boxes of `run` positions by 64 numbers, turned by 128 bytes.
struct KvMaps {
  CUtensorMap keys, values;
  int32_t run = 0;  // positions of a box
};

struct LongWork {
  unsigned* ticket = nullptr;  // zero before and after
  int32_t tiles = 0;           // of a kv head, at most
  bool singles = false;        // sequences of one row are tiles too
  bool boxes = false;          // queries are copied as boxes
};

void attend_long(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                 const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan);
void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan);
// The same for few sequences, all of one row, with few chunks; false if these are not.
bool attend_cluster(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                    const KvView& kv, const View& out, const KvMaps& maps, const AttendPlan& plan);

// Scores that are more than products times a factor.
__host__ __device__ inline bool shapes_scores(const Attention& attention) {
  return attention.softcap > 0 || attention.slopes != nullptr || !(attention.scale > 0);
}

// Calls start with the kind of heads there are: numbers of the cache, width, and whether scores are shaped.
template <class T, int D, bool Shaped>
struct HeadKind {};
template <class F>
void by_head(const Attention& attention, const KvView& kv, F&& start) {
  auto shaped = [&]<class T, int D>(HeadKind<T, D, false> plain) {
    if (shapes_scores(attention))
      start(HeadKind<T, D, true>{});
    else
      start(plain);
  };
  auto wide = [&]<class T>(HeadKind<T, 64, false> kind) {
    if (kv.k_dim == 64)
      shaped(kind);
    else
      shaped(HeadKind<T, 128, false>{});
  };
  if (kv.form.k == DType::f16)
    wide(HeadKind<__half, 64, false>{});
  else
    wide(HeadKind<__nv_bfloat16, 64, false>{});
}

__device__ inline float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Whether numbers lie as attention multiplies them.
template <class T>
__host__ __device__ constexpr bool is_form(Form form) {
  return form == (std::is_same_v<T, __half> ? Form::f16 : Form::bf16);
}

// What one query row may see.
struct Sight {
  int begin, end, position;
  float slope;

  __device__ bool all(int first) const { return begin <= first && first + kChunk <= end; }
};

__device__ inline Sight sight_of(const DeviceStep& step, const Attention& attention, int query, int queries,
                                 int first_row, int group, int kv_head) {
  Sight see = {0, 0, 0, 0};
  if (query >= queries) return see;
  const int row = first_row + query / group;
  see.position = step.positions[row];
  see.end = step.visible[row];
  see.begin = sight_begin(attention, see.position);
  if (attention.slopes != nullptr) see.slope = attention.slopes[kv_head * group + query % group];
  return see;
}

// A score in natural units, for models that do more with it than scale it.
__device__ inline float shaped(float score, const Attention& attention, const Sight& see, int position) {
  score = score * attention.scale;
  if (attention.softcap > 0) {
    const float power = power_of_two(score / attention.softcap * (2 * kLog2e));
    score = attention.softcap * (1 - __fdividef(2, 1 + power));  // softcap * tanh(score / softcap)
  }
  return score + see.slope * static_cast<float>(position - see.position);
}

// What has been summed of a row, and how a chunk joins it: everything is in units of 2^base. The base stays what it is
// until a chunk's maximum is far above it.
struct Factors {
  float of_all, of_chunk;
};
__device__ inline bool rebases(float base, float most) { return most > base + kSlack; }
__device__ inline Factors join(float& base, float& total, float most, float chunk_total) {
  Factors factors = {1, most == -INFINITY ? 0.0f : power_of_two(most - base)};
  if (rebases(base, most)) {
    factors = {power_of_two(base - most), 1};
    base = most;
  }
  total = fmaf(chunk_total, factors.of_chunk, total * factors.of_all);
  return factors;
}

// A sink takes part in the sum as a score without a value. Gives what sums are multiplied with in the end.
__device__ inline float last_factor(float base, float total, const float* sinks, int head) {
  float factor = 1;
  if (sinks != nullptr) {
    const Factors factors = join(base, total, sinks[head] * kLog2e, 1.0f);
    factor = factors.of_all;
  }
  return total > 0 ? factor / total : 0.0f;
}

// What weights are multiplied with before they meet values: nothing.
struct WeightsAsTheyAre {};

__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int col, int row, int half, int page,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(half), "r"(page), "r"(barrier)
      : "memory");
}
__device__ inline void copy_box(uint32_t to, const CUtensorMap& map, int col, int row, int half, int page,
                                uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(half), "r"(page), "r"(barrier), "l"(policy)
      : "memory");
}
// What was written to shared memory is written before the copy engine, where there is one, writes there.
__device__ inline void fence_copies() {
#if MILLRACE_HOPPER
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
__device__ inline void group_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

// A place in a ring of Stages, and how often it went round.
template <int Stages>
struct RingPlace {
  int stage = 0;
  uint32_t round = 0;
  __device__ void next() {
    if (++stage == Stages) stage = 0, round ^= 1;
  }
};

}  // namespace millrace::cuda

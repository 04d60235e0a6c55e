// Shortlisting rows of logits on the device: shortlist_group.h by thread blocks. Two kernels, the parts of all rows and
// then the rows; what is found goes straight into memory of the host, because it is little.
#include "backend/cuda/rows.cuh"
#include "backend/shortlist_group.h"

namespace millrace::cuda {
namespace {

using shortlisting::kThreads;
using shortlisting::PartFindings;
using shortlisting::State;

constexpr int kWarps = kThreads / 32;

// Reductions leave each warp's in one of two rooms by turns, so that one barrier is enough.
class ThreadGroup {
 public:
  struct Scratch {
    uint64_t warps[2][kWarps];
    int32_t listed;
  };
  __device__ explicit ThreadGroup(Scratch& room) : room_(room) {
    if (threadIdx.x == 0) room_.listed = 0;
    __syncthreads();
  }

  template <class F>
  __device__ __forceinline__ void each(F&& body) {
    body(static_cast<int>(threadIdx.x), state_);
    __syncthreads();
  }
  template <class F>
  __device__ __forceinline__ float least(F&& get) {
    return reduce(get(state_), [](float a, float b) { return b < a ? b : a; });
  }
  template <class F>
  __device__ __forceinline__ float most(F&& get) {
    return reduce(get(state_), [](float a, float b) { return b > a ? b : a; });
  }
  template <class F>
  __device__ __forceinline__ int32_t sum(F&& get) {
    return reduce(static_cast<int32_t>(get(state_)), [](int32_t a, int32_t b) { return a + b; });
  }
  template <class F>
  __device__ __forceinline__ uint64_t wide_sum(F&& get) {
    return reduce(static_cast<uint64_t>(get(state_)), [](uint64_t a, uint64_t b) { return a + b; });
  }
  template <class F>
  __device__ __forceinline__ double total(F&& get) {
    return reduce(static_cast<double>(get(state_)), [](double a, double b) { return a + b; });
  }
  template <class F>
  __device__ __forceinline__ int32_t threads(F&& is) {
    return __syncthreads_count(is(state_) ? 1 : 0);
  }
  __device__ __forceinline__ int32_t next() { return atomicAdd(&room_.listed, 1); }

 private:
  template <class T, class F>
  __device__ T reduce(T value, F&& join) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = join(value, __shfl_xor_sync(~0u, value, step));
    T* warps = reinterpret_cast<T*>(room_.warps[turn_]);
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) value = join(value, warps[warp]);
    return value;
  }

  Scratch& room_;
  State state_;
  int turn_ = 0;
};

__device__ bool wanted(const ShortlistAsk& ask) {
  return ask.kind == ShortlistKind::race || ask.kind == ShortlistKind::list;
}
__device__ const float* row_of(const View& logits, int64_t row) {
  return reinterpret_cast<const float*>(static_cast<const char*>(logits.data) + row * logits.stride);
}
__device__ bool finite(float value) { return value > -INFINITY && value < INFINITY; }

// Grid (parts, rows).
__global__ void __launch_bounds__(kThreads, 4) part_kernel(View logits, ShortlistRoom room) {
  __shared__ ThreadGroup::Scratch shared;
  wait_for_previous();
  const int64_t number = blockIdx.y;
  const ShortlistAsk ask = room.asks[number];
  const int32_t best = room.best[number];
  if (!wanted(ask) || best < 0) return;
  const float* row = row_of(logits, number);
  if (!finite(row[best])) return;
  ThreadGroup group(shared);
  const int64_t part = number * gridDim.x + blockIdx.x;
  const int32_t listed = shortlisting::listed_by_part(static_cast<int32_t>(gridDim.x));
  shortlisting::shortlist_part(group, ask, row, logits.cols, static_cast<int>(blockIdx.x), best,
                               static_cast<PartFindings*>(room.parts)[part],
                               room.listed + number * kShortlistListed + static_cast<int64_t>(blockIdx.x) * listed);
}

// Grid (rows).
__global__ void __launch_bounds__(kThreads) row_kernel(View logits, ShortlistRoom room) {
  __shared__ ThreadGroup::Scratch shared;
  wait_for_previous();
  const int64_t number = blockIdx.x;
  const ShortlistAsk ask = room.asks[number];
  const int32_t best = room.best[number];
  const float largest = best < 0 ? 0.0f : row_of(logits, number)[best];
  Shortlisted& found = room.found[number];
  if (threadIdx.x == 0) {
    found.best = best;
    found.largest = largest;
    found.fits = false;
    found.count = 0;
  }
  if (!wanted(ask) || best < 0 || !finite(largest)) return;
  __syncthreads();
  ThreadGroup group(shared);
  const int64_t first = number * shortlisting::parts_of(logits.cols);
  shortlisting::shortlist_row(group, ask, static_cast<const PartFindings*>(room.parts) + first,
                              room.listed + number * kShortlistListed, logits.cols, largest, found,
                              room.tokens + number * kShortlistTokens);
}

}  // namespace

int64_t shortlist_parts_bytes(int32_t rows) {
  return int64_t{rows} * kShortlistParts * static_cast<int64_t>(sizeof(PartFindings));
}

void shortlist_rows(cudaStream_t stream, View logits, const ShortlistRoom& room) {
  if (logits.rows == 0) return;
  const dim3 parts(count(shortlisting::parts_of(logits.cols)), count(logits.rows));
  launch(stream, part_kernel, parts, kThreads, 0, logits, room);
  launch(stream, row_kernel, count(logits.rows), kThreads, 0, logits, room);
}

cudaError_t load_shortlist() { return load_kernels(); }

}  // namespace millrace::cuda

// What adapters change (Ops::linear_delta): a product into a room of its own, then one onto the result.
// Sums run over inputs, or ranks, in an order that the shapes alone decide.
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kDownThreads = 256, kDownRanks = kDownThreads / 32;  // a warp for each rank

__device__ __forceinline__ float number_at(const float* from, int64_t at) { return from[at]; }
__device__ __forceinline__ float number_at(const __nv_bfloat16* from, int64_t at) { return __bfloat162float(from[at]); }
__device__ __forceinline__ float number_at(const __half* from, int64_t at) { return __half2float(from[at]); }

// Calls `work` with how the delta's numbers lie.
template <class Work>
__device__ __forceinline__ float with_numbers(const Delta& delta, const std::byte* from, Work work) {
  if (delta.numbers == DeltaNumbers::f32) return work(reinterpret_cast<const float*>(from));
  if (delta.numbers == DeltaNumbers::bf16) return work(reinterpret_cast<const __nv_bfloat16*>(from));
  return work(reinterpret_cast<const __half*>(from));
}

__global__ void __launch_bounds__(kDownThreads) delta_down_kernel(DeltaRows deltas, View in) {
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int adapter = deltas.adapters[row];
  if (adapter < 0) return;
  const Delta delta = deltas.changes[adapter];
  const int rank = static_cast<int>(blockIdx.y * kDownRanks + threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  if (rank >= delta.rank) return;
  float sum = 0;
  if (deltas.ids != nullptr) {
    const int64_t at = static_cast<int64_t>(deltas.ids[row]) * delta.rank + rank;
    sum = with_numbers(delta, delta.down, [&](const auto* down) { return number_at(down, at); });
  } else {
    sum = with_numbers(delta, delta.down, [&](const auto* down) {
      const auto* numbers = down + static_cast<int64_t>(rank) * in.cols;
      float part = 0;
      for (int i = lane; i < in.cols; i += 32) part += number_at(numbers, i) * read(in, row, i);
      return part;
    });
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  }
  if (lane == 0) deltas.low[row * deltas.rank + rank] = sum;
}

__global__ void delta_up_kernel(DeltaRows deltas, View inout) {
  wait_for_previous();
  const int64_t row = blockIdx.y;
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int adapter = deltas.adapters[row];
  if (adapter < 0 || col >= inout.cols) return;
  const Delta delta = deltas.changes[adapter];
  if (delta.rank == 0) return;
  const float* low = deltas.low + row * deltas.rank;
  const float sum = with_numbers(delta, delta.up, [&](const auto* up) {
    float part = 0;
    for (int rank = 0; rank < delta.rank; ++rank)
      part += number_at(up, static_cast<int64_t>(rank) * inout.cols + col) * low[rank];
    return part;
  });
  write(inout, row, col, read(inout, row, col) + deltas.strengths[row] * (delta.scale * sum));
}

}  // namespace

void linear_delta(cudaStream_t stream, const DeltaRows& deltas, View in, View inout) {
  if (inout.rows == 0 || deltas.rank == 0) return;
  // Rows of the second kernel are the grid's second size, which ends at 65,535; a step has fewer.
  launch(stream, delta_down_kernel, dim3(count(inout.rows), count((deltas.rank + kDownRanks - 1) / kDownRanks)),
         kDownThreads, 0, deltas, in);
  launch(stream, delta_up_kernel, dim3(count((inout.cols + 255) / 256), count(inout.rows)), 256, 0, deltas, inout);
}

cudaError_t load_delta() { return load_kernels(); }

}  // namespace millrace::cuda

// Products that no faster kernel takes: float32 weights, odd shapes. One warp for each result, inputs in float32.
#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

__global__ void any_rows_kernel(Weight weight, View in, View out) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t output = int64_t{blockIdx.y} * (blockDim.x / 32) + threadIdx.x / 32, row = blockIdx.x;
  if (output >= weight.rows) return;
  const std::byte* numbers = weight.data + output * (weight.bytes / weight.rows);
  float sum = 0;
  for (int i = lane; i < weight.cols; i += 32) sum = fmaf(stored_value(weight.type, numbers, i), read(in, row, i), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) write(out, row, output, weight.bias != nullptr ? sum + weight.bias[output] : sum);
}

}  // namespace

void any_rows(cudaStream_t stream, const Weight& weight, View in, View out) {
  const dim3 grid(static_cast<unsigned>(in.rows), static_cast<unsigned>((weight.rows + 7) / 8));
  launch(stream, any_rows_kernel, grid, 256, 0, weight, in, out);
}

cudaError_t load_any_rows() { return load_kernels(); }

}  // namespace millrace::cuda

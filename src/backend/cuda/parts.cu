#include "backend/cuda/parts.h"

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) round_kernel(Form form, View inout) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (col >= inout.cols) return;
  for (int64_t row = blockIdx.y; row < inout.rows; row += gridDim.y) {
    auto* number = reinterpret_cast<float*>(static_cast<char*>(inout.data) + row * inout.stride) + col;
    *number =
        form == Form::f16 ? __half2float(__float2half_rn(*number)) : __bfloat162float(__float2bfloat16_rn(*number));
  }
}

}  // namespace

void round_rows(cudaStream_t stream, Form form, View inout) {
  if (inout.rows == 0 || inout.cols == 0) return;
  const dim3 grid(count((inout.cols + kThreads - 1) / kThreads), count(inout.rows < 32768 ? inout.rows : 32768));
  launch(stream, round_kernel, grid, kThreads, 0, form, inout);
}

cudaError_t load_parts() { return load_kernels(); }

}  // namespace millrace::cuda

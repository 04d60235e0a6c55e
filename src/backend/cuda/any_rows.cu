// Products that no faster kernel takes: float32 weights (routers), odd shapes. One warp for each result, or for a few
// of them where both sides are float32; a lane's chain of inputs and the sum over lanes are the same either way.
#include <type_traits>

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

__device__ inline float number(float x) { return x; }
__device__ inline float number(__half x) { return __half2float(x); }
__device__ inline float number(__nv_bfloat16 x) { return __bfloat162float(x); }

// Weights in float32: a warp has the results of some rows and some outputs, and asks for several inputs at once.
template <class Input, int Rows, int Outputs, int Ahead>
__global__ void float_rows_kernel(Weight weight, View in, View out) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32, cols = static_cast<int>(weight.cols);
  const int64_t output = (int64_t{blockIdx.y} * (blockDim.x / 32) + threadIdx.x / 32) * Outputs;
  const int64_t row = int64_t{blockIdx.x} * Rows;
  if (output >= weight.rows) return;
  const float* numbers[Outputs];
  const Input* inputs[Rows];
#pragma unroll
  for (int o = 0; o < Outputs; ++o)
    numbers[o] =
        reinterpret_cast<const float*>(weight.data + min(output + o, weight.rows - 1) * (weight.bytes / weight.rows));
#pragma unroll
  for (int r = 0; r < Rows; ++r)
    inputs[r] = reinterpret_cast<const Input*>(static_cast<const char*>(in.data) +
                                               min(row + r, int64_t{in.rows} - 1) * in.stride);
  float sums[Rows][Outputs] = {};
  auto take = [&]<int Count>(int first, std::integral_constant<int, Count>) {
    float a[Outputs][Count], b[Rows][Count];
#pragma unroll
    for (int j = 0; j < Count; ++j) {
#pragma unroll
      for (int o = 0; o < Outputs; ++o) a[o][j] = numbers[o][first + 32 * j];
#pragma unroll
      for (int r = 0; r < Rows; ++r) b[r][j] = number(inputs[r][first + 32 * j]);
    }
#pragma unroll
    for (int j = 0; j < Count; ++j)
#pragma unroll
      for (int r = 0; r < Rows; ++r)
#pragma unroll
        for (int o = 0; o < Outputs; ++o) sums[r][o] = fmaf(a[o][j], b[r][j], sums[r][o]);
  };
  int i = lane;
  for (; i + 32 * (Ahead - 1) < cols; i += 32 * Ahead) take(i, std::integral_constant<int, Ahead>());
  for (; i < cols; i += 32) take(i, std::integral_constant<int, 1>());
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
#pragma unroll
    for (int o = 0; o < Outputs; ++o) {
      float sum = sums[r][o];
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane != 0 || row + r >= in.rows || output + o >= weight.rows) continue;
      write(out, row + r, output + o, weight.bias != nullptr ? sum + weight.bias[output + o] : sum);
    }
  }
}

template <class Input, int Rows, int Outputs, int Ahead>
void start(cudaStream_t stream, const Weight& weight, View in, View out) {
  constexpr int kWarps = 8;
  const dim3 grid(static_cast<unsigned>((in.rows + Rows - 1) / Rows),
                  static_cast<unsigned>((weight.rows + kWarps * Outputs - 1) / (kWarps * Outputs)));
  launch(stream, float_rows_kernel<Input, Rows, Outputs, Ahead>, grid, kWarps * 32, 0, weight, in, out);
}

template <class Input>
void float_rows(cudaStream_t stream, const Weight& weight, View in, View out) {
  in.rows < 16 ? start<Input, 1, 1, 16>(stream, weight, in, out) : start<Input, 4, 4, 4>(stream, weight, in, out);
}

}  // namespace

void any_rows(cudaStream_t stream, const Weight& weight, View in, View out) {
  if (weight.type == DType::f32) {
    if (in.form == Form::f32) return float_rows<float>(stream, weight, in, out);
    if (in.form == Form::bf16) return float_rows<__nv_bfloat16>(stream, weight, in, out);
    return float_rows<__half>(stream, weight, in, out);
  }
  const dim3 grid(static_cast<unsigned>(in.rows), static_cast<unsigned>((weight.rows + 7) / 8));
  launch(stream, any_rows_kernel, grid, 256, 0, weight, in, out);
}

cudaError_t load_any_rows() { return load_kernels(); }

}  // namespace millrace::cuda

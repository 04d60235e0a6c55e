// Rotation of a head's numbers and where a position has its keys and values, for the kernels that do either. Device
// code.
#pragma once

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {

// Which two numbers of a head are pair number `pair`.
struct Turn {
  int half;  // pairs of a head
  bool neighbours;
  __device__ int first(int pair) const { return neighbours ? 2 * pair : pair; }
  __device__ int second(int pair) const { return neighbours ? 2 * pair + 1 : pair + half; }
};

__device__ inline float2 turned(float2 angle, float a, float b) {
  return {a * angle.x - b * angle.y, a * angle.y + b * angle.x};
}

__device__ inline void keep(DType type, std::byte* at, int i, float value) {
  if (type == DType::f16) {
    reinterpret_cast<__half*>(at)[i] = __float2half_rn(value);
  } else {
    reinterpret_cast<__nv_bfloat16*>(at)[i] = __float2bfloat16_rn(value);
  }
}

// Where position p of a row's sequence has its keys and values, for one head.
__device__ inline std::byte* slot(const DeviceStep& step, const KvView& kv, int64_t row, int head, int64_t offset,
                                  int dim) {
  const int position = step.positions[row];
  const int64_t page = step.pages[int64_t{step.sequence[row]} * step.page_stride + position / kv.page_tokens];
  return kv.base + page * kv.page_stride + offset +
         (int64_t{head} * kv.page_tokens + position % kv.page_tokens) * dim * 2;
}

}  // namespace millrace::cuda

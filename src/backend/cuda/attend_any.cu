// Attention over any cache of 16-bit numbers: one warp for each row's head, 32 positions at a time, in order. Values
// may be the first numbers of keys.
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kMostDims = kWidestValue;

__device__ inline float kept(DType type, const std::byte* at, int i) {
  if (type == DType::f16) return __half2float(reinterpret_cast<const __half*>(at)[i]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(at)[i]);
}

// A query's head with a key: one chain over its numbers. eights: the key can be read sixteen bytes at a time.
__device__ float product(const View& q, int64_t row, int first, DType type, const std::byte* key, int dim,
                         bool eights) {
  float sum = 0;
  if (!eights) {
    for (int i = 0; i < dim; ++i) sum = fmaf(read(q, row, first + i), kept(type, key, i), sum);
    return sum;
  }
  for (int i = 0; i < dim; i += 8) {
    const uint4 eight = *reinterpret_cast<const uint4*>(key + i * 2);
    const auto* numbers = reinterpret_cast<const std::byte*>(&eight);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(read(q, row, first + i + j), kept(type, numbers, j), sum);
  }
  return sum;
}

__global__ void attend_any_kernel(DeviceStep step, Attention attention, View q, KvView kv, View out) {
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), kv_head = head / (attention.heads / kv.kv_heads);
  const int position = step.positions[row], end = sight_end(attention, position, step.visible[row]);
  const int begin = sight_begin(attention, position), width = kv.v_dim > 0 ? kv.v_dim : attention.value_dim;
  const bool eights = kv.k_dim % 8 == 0 && kv.k_offset % 16 == 0 && kv.page_stride % 16 == 0;
  const int32_t* pages = step.pages + int64_t{step.sequence[row]} * step.page_stride;
  auto at = [&](int p, int64_t offset, int dim) {
    return kv.base + int64_t{pages[p / kv.page_tokens]} * kv.page_stride + offset +
           (int64_t{kv_head} * kv.page_tokens + p % kv.page_tokens) * dim * 2;
  };
  float most = attention.sinks != nullptr ? attention.sinks[head] : -INFINITY;
  float total = attention.sinks != nullptr ? 1.0f : 0.0f;
  float sums[kMostDims / 32] = {};
  for (int first = begin; first < end; first += 32) {
    const int p = first + lane;
    float score = -INFINITY;
    if (p < end) {
      const std::byte* key = at(p, kv.k_offset, kv.k_dim);
      const float dot = product(q, row, head * kv.k_dim, kv.form.k, key, kv.k_dim, eights);
      score = dot * attention.scale;
      if (attention.softcap > 0) score = attention.softcap * tanhf(score / attention.softcap);
      if (attention.slopes != nullptr) score += attention.slopes[head] * static_cast<float>(p - position);
    }
    float higher = score;
#pragma unroll
    for (int s = 16; s > 0; s /= 2) higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, s));
    higher = fmaxf(higher, most);
    const float factor = most == -INFINITY ? 0.0f : expf(most - higher), weight = p < end ? expf(score - higher) : 0.0f;
    most = higher;
    float sum = weight;
#pragma unroll
    for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
    total = total * factor + sum;
    const int here = end - first < 32 ? end - first : 32;
#pragma unroll
    for (int d = 0; d < kMostDims / 32; ++d) {
      if (d * 32 >= width) break;
      sums[d] *= factor;
    }
    for (int j = 0; j < here; ++j) {
      const float share = __shfl_sync(~0u, weight, j);
      const std::byte* value =
          kv.v_dim > 0 ? at(first + j, kv.v_offset, kv.v_dim) : at(first + j, kv.k_offset, kv.k_dim);
#pragma unroll
      for (int d = 0; d < kMostDims / 32; ++d) {
        if (d * 32 >= width) break;
        if (d * 32 + lane < width) sums[d] = fmaf(share, kept(kv.form.k, value, d * 32 + lane), sums[d]);
      }
    }
  }
#pragma unroll
  for (int d = 0; d < kMostDims / 32; ++d) {
    if (d * 32 >= width) break;
    if (d * 32 + lane < width) write(out, row, head * width + d * 32 + lane, total > 0 ? sums[d] / total : 0.0f);
  }
}

}  // namespace

void attend_any(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                View out) {
  const dim3 grid(static_cast<unsigned>(q.rows), static_cast<unsigned>(attention.heads));
  launch(stream, attend_any_kernel, grid, 32, 0, step, attention, q, kv, out);
}

cudaError_t load_attend_any() { return load_kernels(); }

}  // namespace millrace::cuda

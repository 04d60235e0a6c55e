#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

__global__ void table_kernel(const float* frequencies, float magnitude, int half, const int32_t* positions, int rows,
                             float2* table) {
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{rows} * half) return;
  double sine, cosine;  // angles grow to a hundred thousand turns: float32 would lose them
  sincos(static_cast<double>(positions[i / half]) * frequencies[i % half], &sine, &cosine);
  table[i] = {static_cast<float>(cosine * magnitude), static_cast<float>(sine * magnitude)};
}

__global__ void rope_kernel(Turn turn, const float2* table, int heads, View inout) {
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= heads * turn.half) return;
  const int pair = i % turn.half, start = i / turn.half * (inout.cols / heads);
  const int x = start + turn.first(pair), y = start + turn.second(pair);
  const float2 to = turned(table[row * turn.half + pair], read(inout, row, x), read(inout, row, y));
  write(inout, row, x, to.x);
  write(inout, row, y, to.y);
}

__global__ void store_kernel(DeviceStep step, View k, View v, KvView kv) {
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  std::byte* key = slot(step, kv, row, head, kv.k_offset, kv.k_dim);
  for (int i = threadIdx.x; i < kv.k_dim; i += blockDim.x) keep(kv.type, key, i, read(k, row, head * kv.k_dim + i));
  if (kv.v_dim == 0) return;
  std::byte* value = slot(step, kv, row, head, kv.v_offset, kv.v_dim);
  for (int i = threadIdx.x; i < kv.v_dim; i += blockDim.x) keep(kv.type, value, i, read(v, row, head * kv.v_dim + i));
}

constexpr int kHeadsTogether = 8;

// A thread group for each row and kHeadsTogether heads, 32 threads a head: those of q, then of k, then of v.
__global__ void __launch_bounds__(32 * kHeadsTogether)
    finish_kernel(DeviceStep step, Turn turn, const float2* table, int heads, View q, View k, View v, KvView kv) {
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int head = static_cast<int>(blockIdx.y * kHeadsTogether + threadIdx.x / 32);
  wait_for_previous();
  auto angle = [&](int pair) { return table[row * turn.half + pair]; };
  if (head < heads) {
    const int start = head * kv.k_dim;
#pragma unroll 4
    for (int pair = lane; pair < turn.half; pair += 32) {
      const int x = start + turn.first(pair), y = start + turn.second(pair);
      const float2 to = turned(angle(pair), read(q, row, x), read(q, row, y));
      write(q, row, x, to.x);
      write(q, row, y, to.y);
    }
    return;
  }
  head -= heads;
  if (head < kv.kv_heads) {
    const int start = head * kv.k_dim;
    std::byte* key = slot(step, kv, row, head, kv.k_offset, kv.k_dim);
#pragma unroll 4
    for (int pair = lane; pair < turn.half; pair += 32) {
      const int x = turn.first(pair), y = turn.second(pair);
      const float2 to = turned(angle(pair), read(k, row, start + x), read(k, row, start + y));
      keep(kv.type, key, x, to.x);
      keep(kv.type, key, y, to.y);
    }
    for (int i = 2 * turn.half + lane; i < kv.k_dim; i += 32) keep(kv.type, key, i, read(k, row, start + i));
    return;
  }
  head -= kv.kv_heads;
  if (head >= kv.kv_heads) return;
  std::byte* value = slot(step, kv, row, head, kv.v_offset, kv.v_dim);
#pragma unroll 4
  for (int i = lane; i < kv.v_dim; i += 32) keep(kv.type, value, i, read(v, row, head * kv.v_dim + i));
}

}  // namespace

void rope_table(cudaStream_t stream, const Rope& rope, const int32_t* positions, int32_t rows, float* table) {
  const int half = rope.dims / 2;
  launch(stream, table_kernel, count((int64_t{rows} * half + 127) / 128), 128, 0, rope.frequencies, rope.magnitude,
         half, positions, rows, reinterpret_cast<float2*>(table));
}

void rope(cudaStream_t stream, const Rope& rope, const float* table, int32_t heads, View inout) {
  const int half = rope.dims / 2;
  launch(stream, rope_kernel, dim3(count(inout.rows), count((int64_t{heads} * half + 127) / 128)), 128, 0,
         Turn{half, rope.neighbours}, reinterpret_cast<const float2*>(table), heads, inout);
}

void kv_store(cudaStream_t stream, const DeviceStep& step, View k, View v, const KvView& kv) {
  launch(stream, store_kernel, dim3(count(k.rows), count(kv.kv_heads)), 64, 0, step, k, v, kv);
}

void finish_qkv(cudaStream_t stream, const DeviceStep& step, const Rope& rope, const float* table, int32_t heads,
                View q, View k, View v, const KvView& kv) {
  const int64_t all = heads + 2 * int64_t{kv.kv_heads};
  launch(stream, finish_kernel, dim3(count(q.rows), count((all + kHeadsTogether - 1) / kHeadsTogether)),
         32 * kHeadsTogether, 0, step, Turn{rope.dims / 2, rope.neighbours}, reinterpret_cast<const float2*>(table),
         heads, q, k, v, kv);
}

}  // namespace millrace::cuda

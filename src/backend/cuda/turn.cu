#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

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
  for (int i = threadIdx.x; i < kv.k_dim; i += blockDim.x) keep(kv.form.k, key, i, read(k, row, head * kv.k_dim + i));
  if (kv.v_dim == 0) return;
  std::byte* value = slot(step, kv, row, head, kv.v_offset, kv.v_dim);
  for (int i = threadIdx.x; i < kv.v_dim; i += blockDim.x) keep(kv.form.k, value, i, read(v, row, head * kv.v_dim + i));
}

constexpr int kHeadsTogether = 16, kHeadThreads = 16;

__device__ inline float4& four_at(const View& view, int64_t row, int col) {
  return *reinterpret_cast<float4*>(static_cast<char*>(view.data) + row * view.stride + int64_t{col} * 4);
}
__device__ inline void keep_four(Form form, std::byte* at, int i, const float4& four) {
  *reinterpret_cast<uint2*>(at + i * 2) = {two(form, four.x, four.y), two(form, four.z, four.w)};
}

// Four pairs of a head: the numbers from x on and those from y on.
struct FourPairs {
  int x, y;
  float4 first, second;

  __device__ FourPairs(const Turn& turn, int pair, const float2* angles, const View& view, int64_t row, int start)
      : x(turn.first(pair)), y(turn.neighbours ? x + 4 : turn.second(pair)) {
    const float4 near = four_at(view, row, start + x), far = four_at(view, row, start + y);
    const float4 one = *reinterpret_cast<const float4*>(angles + pair);
    const float4 other = *reinterpret_cast<const float4*>(angles + pair + 2);
    if (turn.neighbours) {
      const float2 a = turned({one.x, one.y}, near.x, near.y), b = turned({one.z, one.w}, near.z, near.w);
      const float2 c = turned({other.x, other.y}, far.x, far.y), d = turned({other.z, other.w}, far.z, far.w);
      first = {a.x, a.y, b.x, b.y}, second = {c.x, c.y, d.x, d.y};
    } else {
      const float2 a = turned({one.x, one.y}, near.x, far.x), b = turned({one.z, one.w}, near.y, far.y);
      const float2 c = turned({other.x, other.y}, near.z, far.z), d = turned({other.z, other.w}, near.w, far.w);
      first = {a.x, b.x, c.x, d.x}, second = {a.y, b.y, c.y, d.y};
    }
  }
};

// A thread block for each row and kHeadsTogether heads, kHeadThreads a head: those of q, then of k, then of v. All of
// them are float32, and fours of them lie on multiples of sixteen bytes.
__global__ void __launch_bounds__(kHeadThreads* kHeadsTogether)
    finish_kernel(DeviceStep step, Turn turn, const float2* table, int heads, View q, View k, View v, KvView kv) {
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kHeadThreads;
  int head = static_cast<int>(blockIdx.y * kHeadsTogether + threadIdx.x / kHeadThreads);
  const Form form = kv.form.k == DType::f16 ? Form::f16 : Form::bf16;
  wait_for_previous();
  const float2* angles = table + row * turn.half;
  if (head < heads) {
    const int start = head * kv.k_dim;
    for (int pair = lane * 4; pair < turn.half; pair += kHeadThreads * 4) {
      const FourPairs four(turn, pair, angles, q, row, start);
      four_at(q, row, start + four.x) = four.first;
      four_at(q, row, start + four.y) = four.second;
    }
    return;
  }
  head -= heads;
  if (head < kv.kv_heads) {
    const int start = head * kv.k_dim;
    std::byte* key = slot(step, kv, row, head, kv.k_offset, kv.k_dim);
    for (int pair = lane * 4; pair < turn.half; pair += kHeadThreads * 4) {
      const FourPairs four(turn, pair, angles, k, row, start);
      keep_four(form, key, four.x, four.first);
      keep_four(form, key, four.y, four.second);
    }
    for (int i = 2 * turn.half + lane * 4; i < kv.k_dim; i += kHeadThreads * 4)
      keep_four(form, key, i, four_at(k, row, start + i));
    return;
  }
  head -= kv.kv_heads;
  if (head >= kv.kv_heads) return;
  std::byte* value = slot(step, kv, row, head, kv.v_offset, kv.v_dim);
  for (int i = lane * 4; i < kv.v_dim; i += kHeadThreads * 4)
    keep_four(form, value, i, four_at(v, row, head * kv.v_dim + i));
}

bool in_fours(const View& view) {
  return view.form == Form::f32 && (reinterpret_cast<uintptr_t>(view.data) | view.stride) % 16 == 0;
}

}  // namespace

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
  const int64_t all = heads + 2 * int64_t{kv.kv_heads}, base = reinterpret_cast<intptr_t>(kv.base);
  const bool fours = in_fours(q) && in_fours(k) && in_fours(v) && rope.dims % 8 == 0 && kv.k_dim % 4 == 0 &&
                     kv.v_dim % 4 == 0 && (base | kv.k_offset | kv.v_offset | kv.page_stride) % 8 == 0;
  if (!fours) {
    cuda::rope(stream, rope, table, heads, q);
    cuda::rope(stream, rope, table, kv.kv_heads, k);
    return kv_store(stream, step, k, v, kv);
  }
  launch(stream, finish_kernel, dim3(count(q.rows), count((all + kHeadsTogether - 1) / kHeadsTogether)),
         kHeadThreads * kHeadsTogether, 0, step, Turn{rope.dims / 2, rope.neighbours},
         reinterpret_cast<const float2*>(table), heads, q, k, v, kv);
}

cudaError_t load_turn() { return load_kernels(); }

}  // namespace millrace::cuda

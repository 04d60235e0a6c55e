#include <type_traits>

#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

struct NormParts {
  NormKind kind;
  float epsilon;
  const float *weight, *bias;
  int width, parts;
  bool repeats;  // weight and bias are a part's, not the row's
};

template <int Each>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(NormParts norm, View in, View out) {
  __shared__ float room[8];
  const int64_t row = blockIdx.x / norm.parts;
  const int part = static_cast<int>(blockIdx.x % norm.parts), first = part * norm.width;
  const int shift = norm.repeats ? 0 : first;
  NormedRow<Each> numbers(norm.kind, norm.epsilon, norm.width, norm.weight != nullptr ? norm.weight + shift : nullptr);
  numbers.load_weights();
  let_next_start();
  wait_for_previous();
  numbers.load([&](int i, int left) { return read_four(in, row, first + i, left); });
  numbers.finish(norm.bias != nullptr ? norm.bias + shift : nullptr, room,
                 [&](int i, const float4& four, int left) { write_four(out, row, first + i, four, left); });
}

template <int Each>
__global__ void __launch_bounds__(kRowThreads)
    add_norm_kernel(View in, float scale, View rows, NormParts norm, View out) {
  __shared__ float room[8];
  const int64_t row = blockIdx.x;
  NormedRow<Each> numbers(norm.kind, norm.epsilon, norm.width, norm.weight);
  numbers.load_weights();
  let_next_start();
  wait_for_previous();
  numbers.load([&](int i, int left) {
    const float4 a = read_four(rows, row, i, left), b = read_four(in, row, i, left);
    const float4 sum = {a.x + scale * b.x, a.y + scale * b.y, a.z + scale * b.z, a.w + scale * b.w};
    write_four(rows, row, i, sum, left);
    return sum;
  });
  numbers.finish(norm.bias, room, [&](int i, const float4& four, int left) { write_four(out, row, i, four, left); });
}

// By how many times four numbers a thread has.
template <class F>
void by_width(int width, F&& start) {
  if (width <= 4 * kRowThreads) return start(std::integral_constant<int, 1>{});
  if (width <= 16 * kRowThreads) return start(std::integral_constant<int, 4>{});
  if (width <= 32 * kRowThreads) return start(std::integral_constant<int, 8>{});
  start(std::integral_constant<int, kWidestNorm / kRowThreads / 4>{});
}

// Numbers one by one: grid (columns / 256, rows).
template <class F>
__global__ void each_kernel(int32_t cols, F body) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int64_t row = blockIdx.y; row < body.rows(); row += gridDim.y) {
    if (col < cols) body(row, col);
  }
}

template <class F>
void each(cudaStream_t stream, const View& shape, F body) {
  if (shape.rows == 0 || shape.cols == 0) return;
  const dim3 grid(count((shape.cols + 255) / 256), count(shape.rows < 32768 ? shape.rows : 32768));
  launch(stream, each_kernel<F>, grid, 256, 0, shape.cols, body);
}

struct Activate {
  Activation activation;
  View in, out;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const {
    write(out, row, col, activated(activation, read(in, row, col)));
  }
};
struct Glu {
  Activation activation;
  View gate, up, out;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const {
    write(out, row, col, activated(activation, read(gate, row, col)) * read(up, row, col));
  }
};
struct Add {
  View in, out;
  float scale;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const {
    write(out, row, col, read(out, row, col) + scale * read(in, row, col));
  }
};
struct Clamp {
  View inout;
  float limit;
  __device__ int rows() const { return inout.rows; }
  __device__ void operator()(int64_t row, int col) const {
    write(inout, row, col, fminf(fmaxf(read(inout, row, col), -limit), limit));
  }
};
struct Gather {
  const int32_t* source;
  View in, out;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const { write(out, row, col, read(in, source[row], col)); }
};
struct OrderColumns {
  const int32_t* order;
  View in, out;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const { write(out, row, col, read(in, row, order[col])); }
};
struct FinishLogits {
  View inout;
  float scale, softcap;
  __device__ int rows() const { return inout.rows; }
  __device__ void operator()(int64_t row, int col) const {
    const float value = read(inout, row, col) * scale;
    write(inout, row, col, softcap > 0 ? softcap * tanhf(value / softcap) : value);
  }
};
struct Convert {
  View in, out;
  __device__ int rows() const { return out.rows; }
  __device__ void operator()(int64_t row, int col) const { write(out, row, col, read(in, row, col)); }
};
struct AddBias {
  const float* bias;
  View inout;
  __device__ int rows() const { return inout.rows; }
  __device__ void operator()(int64_t row, int col) const { write(inout, row, col, read(inout, row, col) + bias[col]); }
};

// A number and its place as one: the larger number, then the lower place, is the larger key. A NaN is above all, at -1.
__device__ uint64_t key_of(float value, int place) {
  if (isnan(value)) return uint64_t{0xFFFFFFFF} << 32;
  const uint32_t bits = __float_as_uint(value + 0.0f);  // both zeros are equal
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | ~static_cast<uint32_t>(place);
}
__device__ uint64_t largest_of_warp(uint64_t key) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(~0u, key, step);
    key = other > key ? other : key;
  }
  return key;
}

// The largest number of each part of a row and its place; the last part to be done with joins them. Grid (parts, rows).
constexpr int kArgmaxFours = 4;  // a thread's
__global__ void __launch_bounds__(kRowThreads)
    argmax_kernel(View logits, uint64_t* keys, unsigned* finished, int32_t* best, int32_t* host_best) {
  __shared__ uint64_t warps[kRowThreads / 32];
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * kRowThreads * kArgmaxFours * 4 + thread * 4;
  float4 fours[kArgmaxFours];
#pragma unroll
  for (int j = 0; j < kArgmaxFours; ++j) {
    const int i = first + j * kRowThreads * 4;
    if (i < logits.cols) fours[j] = read_four(logits, row, i, logits.cols - i);
  }
  uint64_t key = 0;
#pragma unroll
  for (int j = 0; j < kArgmaxFours; ++j) {
    const int i = first + j * kRowThreads * 4;
    const float values[4] = {fours[j].x, fours[j].y, fours[j].z, fours[j].w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint64_t other = i + c < logits.cols ? key_of(values[c], i + c) : 0;
      key = other > key ? other : key;
    }
  }
  key = largest_of_warp(key);
  if (thread % 32 == 0) warps[thread / 32] = key;
  __syncthreads();
  if (thread >= 32) return;
  key = largest_of_warp(thread < kRowThreads / 32 ? warps[thread] : 0);
  const int parts = static_cast<int>(gridDim.x);
  keys += int64_t{row} * parts;
  unsigned before = 0;
  if (thread == 0) {
    keys[blockIdx.x] = key;
    before = add_to_counter(finished + row, 1);
  }
  __syncwarp();
  if (__shfl_sync(~0u, before, 0) + 1 < gridDim.x) return;
  key = 0;
  for (int part = thread; part < parts; part += 32) {
    const uint64_t other = __ldcg(keys + part);
    key = other > key ? other : key;
  }
  key = largest_of_warp(key);
  if (thread > 0) return;
  best[row] = host_best[row] = static_cast<int32_t>(~static_cast<uint32_t>(key));
  finished[row] = 0;
}

NormParts parts_of(const Norm& norm, int32_t parts, int32_t cols) {
  const int width = cols / parts;
  return {norm.kind, norm.epsilon, norm.weight, norm.bias, width, parts, norm.width == width};
}

}  // namespace

void norm(cudaStream_t stream, const Norm& norm, int32_t parts, View in, View out) {
  const NormParts cut = parts_of(norm, parts, in.cols);
  by_width(cut.width, [&](auto each) {
    launch(stream, norm_kernel<each()>, count(int64_t{in.rows} * parts), kRowThreads, 0, cut, in, out);
  });
}

void add_norm(cudaStream_t stream, View in, float scale, View stream_rows, const Norm& norm, View out) {
  by_width(in.cols, [&](auto each) {
    launch(stream, add_norm_kernel<each()>, count(in.rows), kRowThreads, 0, in, scale, stream_rows,
           parts_of(norm, 1, in.cols), out);
  });
}

void activate(cudaStream_t stream, Activation activation, View in, View out) {
  each(stream, out, Activate{activation, in, out});
}
void glu(cudaStream_t stream, Activation activation, View gate, View up, View out) {
  each(stream, out, Glu{activation, gate, up, out});
}
void add(cudaStream_t stream, View in, float scale, View out) { each(stream, out, Add{in, out, scale}); }
void clamp(cudaStream_t stream, float limit, View inout) { each(stream, inout, Clamp{inout, limit}); }
void gather(cudaStream_t stream, const int32_t* rows, View in, View out) { each(stream, out, Gather{rows, in, out}); }
void finish_logits(cudaStream_t stream, float scale, float softcap, View inout) {
  each(stream, inout, FinishLogits{inout, scale, softcap});
}
void convert(cudaStream_t stream, View in, View out) { each(stream, out, Convert{in, out}); }
void order_columns(cudaStream_t stream, const int32_t* order, View in, View out) {
  each(stream, out, OrderColumns{order, in, out});
}
void add_bias(cudaStream_t stream, const float* bias, View inout) { each(stream, inout, AddBias{bias, inout}); }
void argmax(cudaStream_t stream, View logits, const ArgmaxRoom& room, int32_t* best, int32_t* host_best) {
  static_assert(kArgmaxPart == kRowThreads * kArgmaxFours * 4);
  const dim3 grid(count((logits.cols + kArgmaxPart - 1) / kArgmaxPart), count(logits.rows));
  launch(stream, argmax_kernel, grid, kRowThreads, 0, logits, room.keys, room.finished, best, host_best);
}

cudaError_t load_rows() { return load_kernels(); }

}  // namespace millrace::cuda

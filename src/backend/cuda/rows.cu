#include <type_traits>

#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

__global__ void embed_kernel(Weight table, const int32_t* ids, int32_t offset, float scale, bool add, View out) {
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int64_t number = int64_t{ids[row]} + offset, row_bytes = table.bytes / table.rows;
  for (int i = threadIdx.x; i < out.cols; i += blockDim.x) {
    float value = scale * (table.layout == kPanels ? packed_value(table, number, i)
                                                   : stored_value(table.type, table.data + number * row_bytes, i));
    if (add) value += read(out, row, i);
    write(out, row, i, value);
  }
}

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

// The largest number's place, the lowest of equals; one thread group a row.
__global__ void __launch_bounds__(1024) argmax_kernel(View logits, int32_t* best) {
  __shared__ float values[32];
  __shared__ int places[32];
  wait_for_previous();
  const float* row = reinterpret_cast<const float*>(static_cast<const char*>(logits.data) + blockIdx.x * logits.stride);
  float value = -INFINITY;
  int place = INT_MAX;
  for (int i = threadIdx.x; i < logits.cols; i += 1024) {
    if (isnan(row[i])) value = INFINITY, place = -1;  // no largest number: -1, the lowest of all places
    if (row[i] > value || place == INT_MAX) value = row[i], place = i;
  }
  auto better = [](float a, int i, float b, int j) { return b > a || (b == a && j < i); };
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, value, step);
    const int there = __shfl_xor_sync(~0u, place, step);
    if (better(value, place, other, there)) value = other, place = there;
  }
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value, places[threadIdx.x / 32] = place;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < 32; ++i) {
    if (better(value, place, values[i], places[i])) value = values[i], place = places[i];
  }
  best[blockIdx.x] = place;
}

NormParts parts_of(const Norm& norm, int32_t parts, int32_t cols) {
  const int width = cols / parts;
  return {norm.kind, norm.epsilon, norm.weight, norm.bias, width, parts, norm.width == width};
}

}  // namespace

void embed(cudaStream_t stream, const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add,
           View out) {
  launch(stream, embed_kernel, count(out.rows), 256, 0, table, ids, offset, scale, add, out);
}

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
void add_bias(cudaStream_t stream, const float* bias, View inout) { each(stream, inout, AddBias{bias, inout}); }
void argmax(cudaStream_t stream, View logits, int32_t* best) {
  launch(stream, argmax_kernel, count(logits.rows), 1024, 0, logits, best);
}

}  // namespace millrace::cuda

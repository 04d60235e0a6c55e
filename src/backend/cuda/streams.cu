// Operations on heads and on several streams side by side, as ops.h says: copying parts of heads, factors, mixing parts
// of rows, and scaling rows by what all their numbers come to.
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

template <class F>
__global__ void numbers_kernel(int64_t rows, int32_t cols, F body) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (col >= cols) return;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) body(row, col);
}
// Numbers one by one: grid (columns / 256, rows).
template <class F>
void each(cudaStream_t stream, int64_t rows, int32_t cols, F body) {
  if (rows == 0 || cols == 0) return;
  const dim3 grid(count((cols + 255) / 256), count(rows < 32768 ? rows : 32768));
  launch(stream, numbers_kernel<F>, grid, 256, 0, rows, cols, body);
}

struct CopyHeads {
  int32_t heads, width;
  View in, out;
  __device__ void operator()(int64_t row, int col) const {
    const int head = col / width, i = col % width;
    write(out, row, head * (out.cols / heads) + i, read(in, row, head * (in.cols / heads) + i));
  }
};
struct Scale {
  const float* factors;
  bool one;
  View inout;
  __device__ void operator()(int64_t row, int col) const {
    write(inout, row, col, read(inout, row, col) * factors[one ? 0 : col]);
  }
};
struct Mix {
  View factors;
  float more;
  int32_t ins, width;
  View in, out;
  __device__ void operator()(int64_t row, int col) const {
    const int part = col / width, i = col % width;
    float sum = read(out, row, col);
    for (int other = 0; other < ins; ++other)
      sum += (read(factors, row, part * ins + other) + more) * read(in, row, other * width + i);
    write(out, row, col, sum);
  }
};

// Row s of out: the rows of sequence s, ascending.
struct Pool {
  Pooling pooling;
  const int32_t* first_row;
  View in, out;
  __device__ void operator()(int64_t sequence, int col) const {
    const int first = first_row[sequence], end = first_row[sequence + 1];
    if (pooling == Pooling::first || pooling == Pooling::last)
      return write(out, sequence, col, read(in, pooling == Pooling::first ? first : end - 1, col));
    float sum = read(in, first, col);
    for (int row = first + 1; row < end; ++row) {
      const float value = read(in, row, col);
      if (pooling == Pooling::most) {
        sum = fmaxf(sum, value);
      } else {
        sum += pooling == Pooling::mean_weighted ? static_cast<float>(row - first + 1) * value : value;
      }
    }
    const auto rows = static_cast<float>(end - first);
    if (pooling == Pooling::mean) sum /= rows;
    if (pooling == Pooling::mean_root) sum /= sqrtf(rows);
    if (pooling == Pooling::mean_weighted) sum /= rows * (rows + 1) / 2;
    write(out, sequence, col, sum);
  }
};

constexpr float kLeastMeanSquare = 1e-5f;  // below, a mean square counts as this much

__device__ float row_sum_of_squares(const View& view, int64_t row, float less, float* room) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < view.cols; i += kRowThreads) {
    const float x = read(view, row, i) - less;
    sum += x * x;
  }
  return group_sum(sum, room);
}

__global__ void __launch_bounds__(kRowThreads) match_kernel(View like, View inout) {
  __shared__ float room[8];
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const float wanted = row_sum_of_squares(like, row, 0, room) / static_cast<float>(like.cols),
              now = fmaxf(row_sum_of_squares(inout, row, 0, room) / static_cast<float>(inout.cols), kLeastMeanSquare),
              factor = sqrtf(wanted / now);
  for (int i = static_cast<int>(threadIdx.x); i < inout.cols; i += kRowThreads)
    write(inout, row, i, read(inout, row, i) * factor);
}

__global__ void __launch_bounds__(kRowThreads) sparsify_kernel(float deviations, View inout) {
  __shared__ float room[8];
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const auto width = static_cast<float>(inout.cols);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < inout.cols; i += kRowThreads) sum += read(inout, row, i);
  const float mean = group_sum(sum, room) / width,
              deviation = sqrtf(row_sum_of_squares(inout, row, mean, room) / width),
              least = mean + deviations * deviation;
  for (int i = static_cast<int>(threadIdx.x); i < inout.cols; i += kRowThreads)
    write(inout, row, i, fmaxf(read(inout, row, i) - least, 0));
}

}  // namespace

void copy_heads(cudaStream_t stream, int32_t heads, int32_t width, View in, View out) {
  each(stream, in.rows, heads * width, CopyHeads{heads, width, in, out});
}
void scale(cudaStream_t stream, const float* factors, bool one, View inout) {
  each(stream, inout.rows, inout.cols, Scale{factors, one, inout});
}
void mix(cudaStream_t stream, View factors, float more, int32_t ins, int32_t outs, View in, View out) {
  const int32_t width = in.cols / ins;
  each(stream, in.rows, outs * width, Mix{factors, more, ins, width, in, out});
}
void match_rms(cudaStream_t stream, View like, View inout) {
  if (inout.rows > 0) launch(stream, match_kernel, count(inout.rows), kRowThreads, 0, like, inout);
}
void sparsify(cudaStream_t stream, float deviations, View inout) {
  if (inout.rows > 0) launch(stream, sparsify_kernel, count(inout.rows), kRowThreads, 0, deviations, inout);
}

void pool(cudaStream_t stream, Pooling pooling, const int32_t* first_row, View in, View out) {
  each(stream, out.rows, out.cols, Pool{pooling, first_row, in, out});
}

cudaError_t load_streams() { return load_kernels(); }

}  // namespace millrace::cuda

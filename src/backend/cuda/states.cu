// Convolutions and scans over states, as states.h says: a thread takes a column of one sequence through all its rows,
// so bits depend on neither the rows' number nor their neighbours. Plain: the state stays in memory (and its caches).
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kStateThreads = 64;
constexpr int kMostTaps = 8;

__device__ inline float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
__device__ inline float softplus_of(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Where a piece of a part of a sequence's state begins.
__device__ inline float* piece_of(const DeviceState& state, int part, int sequence, int piece) {
  const int64_t page = state.pages[piece][int64_t{sequence} * state.strides[piece]];
  return reinterpret_cast<float*>(state.base + page * state.page_stride + state.offsets[part]);
}

__global__ void __launch_bounds__(kStateThreads)
    convolve_kernel(DeviceStep step, DeviceConvolution conv, DeviceState state, View in, View out) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * kStateThreads + threadIdx.x), sequence = static_cast<int>(blockIdx.y);
  const int begin = step.first_row[sequence], end = step.first_row[sequence + 1];
  if (col >= in.cols || begin == end) return;
  const int each = in.cols / state.cuts, kept = conv.taps - 1;
  float* past = piece_of(state, StateView::kConvolution, sequence, col / each) + col % each;
  const bool empty = step.positions[begin] == 0;
  float window[kMostTaps];
  for (int j = 0; j < kept; ++j) window[j] = empty ? 0 : past[j * each];
  for (int row = begin; row < end; ++row) {
    window[kept] = read(in, row, col);
    for (int o = col; o < out.cols; o += in.cols) {
      float sum = conv.bias != nullptr ? conv.bias[o] : 0;
      if (conv.weight != nullptr) {
        for (int j = 0; j < conv.taps; ++j) sum += conv.weight[int64_t{j} * out.cols + o] * window[j];
      } else {
        const float share = conv.shares[o / in.cols][col];
        sum = window[1] * share + window[0] * (1 - share);
      }
      write(out, row, o, conv.silu ? sum * sigmoid_of(sum) : sum);
    }
    for (int j = 0; j < kept; ++j) window[j] = window[j + 1];
  }
  for (int j = 0; j < kept; ++j) past[j * each] = window[j];
}

// A thread has a column of a head's matrix; grid (columns of a head / 64, heads, sequences).
__global__ void __launch_bounds__(kStateThreads)
    scan_heads_kernel(DeviceStep step, HeadScan scan, DeviceState state, HeadScanViews in, View out) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * kStateThreads + threadIdx.x);
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  if (col >= scan.value_dim) return;
  const int each = scan.heads / state.cuts, keys = scan.key_dim, width = scan.value_dim;
  const int first_key = scan.key_head(head) * keys, at = head * width + col;
  float* matrix = piece_of(state, StateView::kScan, sequence, head / each) + int64_t{head % each} * keys * width + col;
  for (int row = step.first_row[sequence]; row < step.first_row[sequence + 1]; ++row) {
    const bool empty = step.positions[row] == 0;
    float t = 1;
    if (in.steps.data != nullptr) {
      t = softplus_of(read(in.steps, row, head) + (scan.step_bias != nullptr ? scan.step_bias[head] : 0));
      t = fminf(fmaxf(t, scan.least), scan.most);
    }
    const float decay = expf(scan.rate[head] * t), v = read(in.v, row, at);
    float u = v * t, sum = 0;
    if (scan.delta) {
      float answered = 0;
      for (int n = 0; n < keys && !empty; ++n)
        answered += matrix[int64_t{n} * width] * decay * (read(in.k, row, first_key + n) * scan.k_scale);
      u = sigmoid_of(read(in.beta, row, head)) * (v - answered);
    }
    for (int n = 0; n < keys; ++n) {
      const float key = read(in.k, row, first_key + n) * scan.k_scale;
      const float query = read(in.q, row, first_key + n) * scan.q_scale;
      const float now = (empty ? 0 : matrix[int64_t{n} * width] * decay) + key * u;
      matrix[int64_t{n} * width] = now;
      sum += now * query;
    }
    write(out, row, at, sum + (scan.skip != nullptr ? scan.skip[head] * v : 0));
  }
}

// One channel through one row; its numbers lie `apart`.
struct Channel {
  const DeviceChannels& scan;
  const ChannelScanViews& in;
  int64_t col, cols, apart;
  float* kept;

  __device__ float constant(int which, int n) const { return scan.constants[which][n * cols + col]; }
  __device__ float selective(int64_t row) const {
    const float a = read(in.a, row, col), t = softplus_of(read(in.b, row, col));
    float sum = constant(1, 0) * a;
    for (int n = 0; n < scan.states; ++n) {
      const float h = expf(t * constant(0, n)) * kept[n * apart] + t * a * read(in.c, row, n);
      kept[n * apart] = h;
      sum += h * read(in.d, row, n);
    }
    return sum;
  }
  __device__ float gated(int64_t row, bool empty) const {
    const float exponent = constant(0, 0) * sigmoid_of(read(in.b, row, col));
    const float taken = sigmoid_of(read(in.c, row, col)) * read(in.a, row, col);
    const float share = empty ? 1 : sqrtf(fmaxf(0, 1 - expf(2 * exponent)));
    return kept[0] = expf(exponent) * kept[0] + share * taken;
  }
  __device__ float wkv(int64_t row) const {
    const float key = read(in.a, row, col), value = read(in.b, row, col), decay = constant(0, 0), own = constant(1, 0);
    const float sum = kept[0], weight = kept[apart], most = kept[2 * apart];
    const float high = fmaxf(most, key + own), before = expf(most - high), now = expf(key + own - high);
    const float next = fmaxf(most + decay, key), keep = expf(most + decay - next), add = expf(key - next);
    kept[0] = keep * sum + add * value;
    kept[apart] = keep * weight + add;
    kept[2 * apart] = next;
    return (before * sum + now * value) / (before * weight + now);
  }
  __device__ float modal(int64_t row) const {
    const float a = read(in.a, row, col);
    float sum = constant(2, 0) * a;
    for (int n = 0; n < scan.states; n += 2) {
      const float re = kept[n * apart], im = kept[(n + 1) * apart];
      const float x = constant(0, n) * re - constant(0, n + 1) * im + a,
                  y = constant(0, n) * im + constant(0, n + 1) * re;
      kept[n * apart] = x;
      kept[(n + 1) * apart] = y;
      sum += constant(1, n) * x - constant(1, n + 1) * y;
    }
    return sum;
  }
};

__global__ void __launch_bounds__(kStateThreads)
    scan_channels_kernel(DeviceStep step, DeviceChannels scan, DeviceState state, ChannelScanViews in, View out) {
  wait_for_previous();
  const int col = static_cast<int>(blockIdx.x * kStateThreads + threadIdx.x), sequence = static_cast<int>(blockIdx.y);
  if (col >= in.a.cols) return;
  const int each = in.a.cols / state.cuts;
  const Channel channel = {scan,      in,   col,
                           in.a.cols, each, piece_of(state, StateView::kScan, sequence, col / each) + col % each};
  for (int row = step.first_row[sequence]; row < step.first_row[sequence + 1]; ++row) {
    const bool empty = step.positions[row] == 0;
    for (int n = 0; n < scan.states && empty; ++n)
      channel.kept[int64_t{n} * each] = scan.kind == ChannelScanKind::wkv && n == 2 ? -1e38f : 0;
    float result = 0;
    if (scan.kind == ChannelScanKind::selective) result = channel.selective(row);
    if (scan.kind == ChannelScanKind::gated) result = channel.gated(row, empty);
    if (scan.kind == ChannelScanKind::wkv) result = channel.wkv(row);
    if (scan.kind == ChannelScanKind::modal) result = channel.modal(row);
    write(out, row, col, result);
  }
}

unsigned parts_of(int32_t columns) { return count((columns + kStateThreads - 1) / kStateThreads); }

}  // namespace

void convolve(cudaStream_t stream, const DeviceStep& step, const DeviceConvolution& convolution,
              const DeviceState& state, View in, View out) {
  if (step.rows == 0) return;
  launch(stream, convolve_kernel, dim3(parts_of(in.cols), count(step.sequences)), kStateThreads, 0, step, convolution,
         state, in, out);
}

void scan_heads(cudaStream_t stream, const DeviceStep& step, const HeadScan& scan, const DeviceState& state,
                const HeadScanViews& in, View out) {
  if (step.rows == 0) return;
  launch(stream, scan_heads_kernel, dim3(parts_of(scan.value_dim), count(scan.heads), count(step.sequences)),
         kStateThreads, 0, step, scan, state, in, out);
}

void scan_channels(cudaStream_t stream, const DeviceStep& step, const DeviceChannels& scan, const DeviceState& state,
                   const ChannelScanViews& in, View out) {
  if (step.rows == 0) return;
  launch(stream, scan_channels_kernel, dim3(parts_of(in.a.cols), count(step.sequences)), kStateThreads, 0, step, scan,
         state, in, out);
}

cudaError_t load_states() { return load_kernels(); }

}  // namespace millrace::cuda

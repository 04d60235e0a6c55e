// Convolutions and scans over states, as states.h says: a column of one sequence goes through all its rows in one
// order, so bits depend on neither the rows' number nor their neighbours. States of the usual sizes stay in registers
// from the first row to the last; those of other sizes stay in memory (and its caches).
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

// ---- heads whose matrices fit into registers: four threads have a column, each a quarter of its numbers.
constexpr int kQuarters = 4, kHeldColumns = kStateThreads / kQuarters;
constexpr int kHeldRows = 16;  // that are brought together

// Rows of one head: keys, queries and values as they are multiplied.
template <int kEach>
struct alignas(16) HeldRows {
  // Quarters lie apart, so that four threads read from different banks.
  static constexpr int kApart = kEach + 4;
  float k[kHeldRows][kQuarters * kApart], q[kHeldRows][kQuarters * kApart];
  float v[kHeldRows][kHeldColumns];
  float decay[kHeldRows], t[kHeldRows], beta[kHeldRows];

  __device__ static int place(int n) { return n / kEach * kApart + n % kEach; }
  __device__ void bring(const HeadScan& scan, const HeadScanViews& in, int head, int first_col, int row, int rows) {
    const int keys = scan.key_dim, first_key = scan.key_head(head) * keys, thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < rows * kQuarters * kEach; i += kStateThreads) {
      const int r = i / (kQuarters * kEach), n = i % (kQuarters * kEach);
      k[r][place(n)] = n < keys ? read(in.k, row + r, first_key + n) * scan.k_scale : 0;
      q[r][place(n)] = n < keys ? read(in.q, row + r, first_key + n) * scan.q_scale : 0;
    }
    for (int i = thread; i < rows * kHeldColumns; i += kStateThreads) {
      const int r = i / kHeldColumns, col = first_col + i % kHeldColumns;
      v[r][i % kHeldColumns] = col < scan.value_dim ? read(in.v, row + r, head * scan.value_dim + col) : 0;
    }
    if (thread >= rows) return;
    float step = 1;
    if (in.steps.data != nullptr) {
      step = softplus_of(read(in.steps, row + thread, head) + (scan.step_bias != nullptr ? scan.step_bias[head] : 0));
      step = fminf(fmaxf(step, scan.least), scan.most);
    }
    t[thread] = step;
    decay[thread] = expf(scan.rate[head] * step);
    beta[thread] = scan.delta ? sigmoid_of(read(in.beta, row + thread, head)) : 0;
  }
};

// The sum of the four threads of a column, the same for all of them.
__device__ inline float sum_of_quarters(float a, float b, float c, float d) {
  float sum = (a + b) + (c + d);
  sum += __shfl_xor_sync(~0u, sum, 1);
  return sum + __shfl_xor_sync(~0u, sum, 2);
}

// Grid (columns of a head / 16, heads, sequences).
template <int kEach, bool kDelta>
__global__ void __launch_bounds__(kStateThreads)
    scan_held_kernel(DeviceStep step, HeadScan scan, DeviceState state, HeadScanViews in, View out) {
  wait_for_previous();
  __shared__ HeldRows<kEach> rows;
  const int quarter = static_cast<int>(threadIdx.x) % kQuarters, own = static_cast<int>(threadIdx.x) / kQuarters;
  const int first_col = static_cast<int>(blockIdx.x) * kHeldColumns, col = first_col + own;
  const int head = static_cast<int>(blockIdx.y), sequence = static_cast<int>(blockIdx.z);
  const int begin = step.first_row[sequence], end = step.first_row[sequence + 1];
  if (begin == end) return;
  const int each = scan.heads / state.cuts, keys = scan.key_dim, width = scan.value_dim;
  const bool there = col < width, empty = step.positions[begin] == 0;
  float* matrix = piece_of(state, StateView::kScan, sequence, head / each) + int64_t{head % each} * keys * width + col;
  float kept[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int n = quarter * kEach + i;
    kept[i] = there && !empty && n < keys ? matrix[int64_t{n} * width] : 0;
  }
  const float skip = scan.skip != nullptr ? scan.skip[head] : 0;
  for (int first = begin; first < end; first += kHeldRows) {
    const int some = min(kHeldRows, end - first);
    __syncthreads();
    rows.bring(scan, in, head, first_col, first, some);
    __syncthreads();
    for (int r = 0; r < some; ++r) {
      const auto* k = reinterpret_cast<const float4*>(&rows.k[r][quarter * HeldRows<kEach>::kApart]);
      const auto* q = reinterpret_cast<const float4*>(&rows.q[r][quarter * HeldRows<kEach>::kApart]);
      const float decay = rows.decay[r], v = rows.v[r][own];
      float u = v * rows.t[r], a = 0, b = 0, c = 0, d = 0;
#pragma unroll
      for (int i = 0; i < kEach; i += 4) {
        kept[i] *= decay, kept[i + 1] *= decay, kept[i + 2] *= decay, kept[i + 3] *= decay;
        if constexpr (kDelta) {
          const float4 key = k[i / 4];
          a = fmaf(kept[i], key.x, a), b = fmaf(kept[i + 1], key.y, b);
          c = fmaf(kept[i + 2], key.z, c), d = fmaf(kept[i + 3], key.w, d);
        }
      }
      if constexpr (kDelta) u = rows.beta[r] * (v - sum_of_quarters(a, b, c, d));
      a = b = c = d = 0;
#pragma unroll
      for (int i = 0; i < kEach; i += 4) {
        const float4 key = k[i / 4], query = q[i / 4];
        kept[i] = fmaf(key.x, u, kept[i]), a = fmaf(kept[i], query.x, a);
        kept[i + 1] = fmaf(key.y, u, kept[i + 1]), b = fmaf(kept[i + 1], query.y, b);
        kept[i + 2] = fmaf(key.z, u, kept[i + 2]), c = fmaf(kept[i + 2], query.z, c);
        kept[i + 3] = fmaf(key.w, u, kept[i + 3]), d = fmaf(kept[i + 3], query.w, d);
      }
      const float sum = fmaf(skip, v, sum_of_quarters(a, b, c, d));
      if (there && quarter == 0) write(out, first + r, head * width + col, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int n = quarter * kEach + i;
    if (there && n < keys) matrix[int64_t{n} * width] = kept[i];
  }
}

// ---- channels of sixteen numbers (Mamba 1): four threads have a channel, each four of its numbers.
constexpr int kSelectiveStates = 16, kSelectiveRows = 8;  // rows that are brought together

__global__ void __launch_bounds__(kStateThreads)
    scan_selective_kernel(DeviceStep step, DeviceChannels scan, DeviceState state, ChannelScanViews in, View out) {
  wait_for_previous();
  const int quarter = static_cast<int>(threadIdx.x) % kQuarters, sequence = static_cast<int>(blockIdx.y);
  const int col = static_cast<int>(blockIdx.x) * kHeldColumns + static_cast<int>(threadIdx.x) / kQuarters;
  const int begin = step.first_row[sequence], end = step.first_row[sequence + 1], cols = in.a.cols;
  if (begin == end) return;
  const int each = cols / state.cuts, at = min(col, cols - 1), first = quarter * kQuarters;
  const bool there = col < cols, empty = step.positions[begin] == 0;
  float* kept = piece_of(state, StateView::kScan, sequence, at / each) + at % each + int64_t{first} * each;
  float h[kQuarters], rate[kQuarters];
#pragma unroll
  for (int i = 0; i < kQuarters; ++i) {
    h[i] = empty ? 0 : kept[int64_t{i} * each];
    rate[i] = scan.constants[0][int64_t{first + i} * cols + at];
  }
  const float skip = scan.constants[1][at];
  for (int row = begin; row < end; row += kSelectiveRows) {
    float a[kSelectiveRows], t[kSelectiveRows], enters[kSelectiveRows][kQuarters], leaves[kSelectiveRows][kQuarters];
#pragma unroll
    for (int r = 0; r < kSelectiveRows; ++r) {
      const int from = min(row + r, end - 1);
      a[r] = read(in.a, from, at);
      t[r] = read(in.b, from, at);
#pragma unroll
      for (int i = 0; i < kQuarters; ++i) {
        enters[r][i] = read(in.c, from, first + i);
        leaves[r][i] = read(in.d, from, first + i);
      }
    }
#pragma unroll
    for (int r = 0; r < kSelectiveRows; ++r) {
      if (row + r >= end) break;
      const float step_size = softplus_of(t[r]), taken = step_size * a[r];
      float sum[kQuarters];
#pragma unroll
      for (int i = 0; i < kQuarters; ++i) {
        h[i] = fmaf(expf(step_size * rate[i]), h[i], taken * enters[r][i]);
        sum[i] = h[i] * leaves[r][i];
      }
      const float all = fmaf(skip, a[r], sum_of_quarters(sum[0], sum[1], sum[2], sum[3]));
      if (there && quarter == 0) write(out, row + r, col, all);
    }
  }
#pragma unroll
  for (int i = 0; i < kQuarters; ++i)
    if (there) kept[int64_t{i} * each] = h[i];
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
  const auto held = scan.key_dim <= 4 * 16   ? scan.delta ? scan_held_kernel<16, true> : scan_held_kernel<16, false>
                      : scan.key_dim <= 4 * 32 ? scan.delta ? scan_held_kernel<32, true> : scan_held_kernel<32, false>
                                               : nullptr;
  if (held != nullptr) {
    const dim3 grid(count((scan.value_dim + kHeldColumns - 1) / kHeldColumns), count(scan.heads),
                    count(step.sequences));
    return launch(stream, held, grid, kStateThreads, 0, step, scan, state, in, out);
  }
  launch(stream, scan_heads_kernel, dim3(parts_of(scan.value_dim), count(scan.heads), count(step.sequences)),
         kStateThreads, 0, step, scan, state, in, out);
}

void scan_channels(cudaStream_t stream, const DeviceStep& step, const DeviceChannels& scan, const DeviceState& state,
                   const ChannelScanViews& in, View out) {
  if (step.rows == 0) return;
  if (scan.kind == ChannelScanKind::selective && scan.states == kSelectiveStates) {
    const dim3 grid(count((in.a.cols + kHeldColumns - 1) / kHeldColumns), count(step.sequences));
    return launch(stream, scan_selective_kernel, grid, kStateThreads, 0, step, scan, state, in, out);
  }
  launch(stream, scan_channels_kernel, dim3(parts_of(in.a.cols), count(step.sequences)), kStateThreads, 0, step, scan,
         state, in, out);
}

cudaError_t load_states() { return load_kernels(); }

}  // namespace millrace::cuda

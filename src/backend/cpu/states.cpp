// States on the team. A worker takes some columns of one sequence's state through all rows of that sequence, so the
// state stays in its cache; a column needs nothing of the others, and inside one the order is fixed. Loops run over
// neighbouring columns without branches, so that the compiler makes vectors of them.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/ops.h"
#include "base/check.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kColumns = 64;  // at a time: their sums stay in registers or close by

// e^x, to about two units in the last place; below -87 nearly zero.
inline float exp_of(float x) {
  const float bounded = std::min(std::max(-87.0f, x), 88.0f);  // a number even if x is none
  x = std::min(std::max(x, -87.0f), 88.0f);
  const float n = std::floor(bounded * 1.44269504f + 0.5f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = p * (r * r) + r + 1.0f;
  return e * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

// log(1 + e^x): the part above zero, and log(1 + y) of y <= 1 as a series in y / (2 + y).
inline float softplus_of(float x) {
  const float y = exp_of(-std::abs(x)), s = y / (2.0f + y), z = s * s;
  float p = 1.0f / 15;
  p = p * z + 1.0f / 13;
  p = p * z + 1.0f / 11;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  p = p * z + 1.0f;
  return std::max(x, 0.0f) + 2.0f * s * p;
}

// One row of a convolution: where each tap's numbers begin, for the columns at hand.
void convolve_row(const Convolution& conv, const float* const* taps, int64_t outputs, int64_t first, int64_t count,
                  float* out) {
  float sum[kColumns];
  for (int64_t c = 0; c < count; ++c) sum[c] = conv.bias != nullptr ? conv.bias[first + c] : 0.0f;
  for (int32_t j = 0; j < conv.taps; ++j) {
    const float *w = conv.weight + j * outputs + first, *x = taps[j];
    for (int64_t c = 0; c < count; ++c) sum[c] += w[c] * x[c];
  }
  if (conv.silu) {
    for (int64_t c = 0; c < count; ++c) sum[c] *= sigmoid_of(sum[c]);
  }
  std::copy_n(sum, count, out);
}

// Of two taps, by the row's own share.
void share_row(const float* share, const float* before, const float* now, int64_t count, float* out) {
  for (int64_t c = 0; c < count; ++c) out[c] = now[c] * share[c] + before[c] * (1.0f - share[c]);
}

// Some columns of one head's matrix, through the rows of a sequence.
struct HeadColumns {
  const HeadScan& scan;
  const HeadScanRows& in;
  const Step& step;
  Tensor out;
  int32_t sequence;
  int64_t head, first;  // the first column
  float* matrix;        // from that column on; rows lie value_dim apart

  template <int kWidth>
  void take(int32_t r, float decay, float t) const {
    const int64_t keys = scan.key_dim, apart = scan.value_dim, shared = scan.heads / scan.key_heads;
    const float *q = in.q.row(r) + head / shared * keys, *k = in.k.row(r) + head / shared * keys;
    const float* v = in.v.row(r) + head * apart + first;
    float u[kWidth], sum[kWidth] = {};
    if (scan.delta) {
      for (int64_t n = 0; n < keys; ++n) {
        float* row = matrix + n * apart;
        const float key = k[n] * scan.k_scale;
        for (int p = 0; p < kWidth; ++p) {
          row[p] *= decay;
          sum[p] += row[p] * key;
        }
      }
      const float beta = sigmoid_of(in.beta.row(r)[head]);
      for (int p = 0; p < kWidth; ++p) u[p] = beta * (v[p] - sum[p]);
      for (int p = 0; p < kWidth; ++p) sum[p] = 0;
      decay = 1;
    } else {
      for (int p = 0; p < kWidth; ++p) u[p] = v[p] * t;
    }
    for (int64_t n = 0; n < keys; ++n) {
      float* row = matrix + n * apart;
      const float key = k[n] * scan.k_scale, query = q[n] * scan.q_scale;
      for (int p = 0; p < kWidth; ++p) {
        const float now = row[p] * decay + key * u[p];
        row[p] = now;
        sum[p] += now * query;
      }
    }
    const float skip = scan.skip != nullptr ? scan.skip[head] : 0.0f;
    float* to = out.row(r) + head * apart + first;
    for (int p = 0; p < kWidth; ++p) to[p] = sum[p] + skip * v[p];
  }

  template <int kWidth>
  void run() const {
    for (int32_t r = step.first_row[sequence]; r < step.first_row[sequence + 1]; ++r) {
      if (step.positions[r] == 0) {
        for (int64_t n = 0; n < scan.key_dim; ++n) std::fill_n(matrix + n * scan.value_dim, kWidth, 0.0f);
      }
      float t = 1;
      if (in.steps) {
        t = softplus_of(in.steps.row(r)[head] + (scan.step_bias != nullptr ? scan.step_bias[head] : 0.0f));
        t = std::min(std::max(t, scan.least), scan.most);
      }
      take<kWidth>(r, exp_of(scan.rate[head] * t), t);
    }
  }
};

// Some channels, through the rows of a sequence; their numbers lie `apart`.
struct ChannelColumns {
  const ChannelScan& scan;
  const ChannelScanRows& in;
  const Step& step;
  Tensor out;
  int64_t first, count, apart;
  float* kept;

  const float* constant(size_t which, int64_t n) const { return scan.constants[which] + n * in.a.cols + first; }

  void selective(int32_t r) const {
    const float *a = in.a.row(r) + first, *b = in.b.row(r) + first, *skip = constant(1, 0);
    float t[kColumns], taken[kColumns], sum[kColumns];
    for (int64_t c = 0; c < count; ++c) {
      t[c] = softplus_of(b[c]);
      taken[c] = t[c] * a[c];
      sum[c] = skip[c] * a[c];
    }
    for (int64_t n = 0; n < scan.states; ++n) {
      const float* rate = constant(0, n);
      float* h = kept + n * apart;
      const float enters = in.c.row(r)[n], leaves = in.d.row(r)[n];
      for (int64_t c = 0; c < count; ++c) {
        h[c] = exp_of(t[c] * rate[c]) * h[c] + taken[c] * enters;
        sum[c] += h[c] * leaves;
      }
    }
    std::copy_n(sum, count, out.row(r) + first);
  }

  void gated(int32_t r, bool empty) const {
    const float *a = in.a.row(r) + first, *b = in.b.row(r) + first, *gate = in.c.row(r) + first, *rate = constant(0, 0);
    float* to = out.row(r) + first;
    for (int64_t c = 0; c < count; ++c) {
      const float exponent = rate[c] * sigmoid_of(b[c]), keep = exp_of(exponent), taken = sigmoid_of(gate[c]) * a[c];
      const float share = empty ? 1.0f : std::sqrt(std::max(0.0f, 1.0f - exp_of(2.0f * exponent)));
      kept[c] = keep * kept[c] + share * taken;
      to[c] = kept[c];
    }
  }

  void wkv(int32_t r) const {
    const float *key = in.a.row(r) + first, *value = in.b.row(r) + first, *decay = constant(0, 0),
                *own = constant(1, 0);
    float *sum = kept, *weight = kept + apart, *most = kept + 2 * apart, *to = out.row(r) + first;
    for (int64_t c = 0; c < count; ++c) {
      const float high = std::max(most[c], key[c] + own[c]);
      const float before = exp_of(most[c] - high), now = exp_of(key[c] + own[c] - high);
      to[c] = (before * sum[c] + now * value[c]) / (before * weight[c] + now);
      const float next = std::max(most[c] + decay[c], key[c]);
      const float keep = exp_of(most[c] + decay[c] - next), add = exp_of(key[c] - next);
      sum[c] = keep * sum[c] + add * value[c];
      weight[c] = keep * weight[c] + add;
      most[c] = next;
    }
  }

  void modal(int32_t r) const {
    const float *a = in.a.row(r) + first, *skip = constant(2, 0);
    float sum[kColumns];
    for (int64_t c = 0; c < count; ++c) sum[c] = skip[c] * a[c];
    for (int64_t n = 0; n < scan.states; n += 2) {
      const float *pole = constant(0, n), *pole_im = constant(0, n + 1);
      const float *residue = constant(1, n), *residue_im = constant(1, n + 1);
      float *re = kept + n * apart, *im = re + apart;
      for (int64_t c = 0; c < count; ++c) {
        const float x = (pole[c] * re[c] - pole_im[c] * im[c]) + a[c], y = pole[c] * im[c] + pole_im[c] * re[c];
        re[c] = x;
        im[c] = y;
        sum[c] += residue[c] * x - residue_im[c] * y;
      }
    }
    std::copy_n(sum, count, out.row(r) + first);
  }

  void start() const {
    for (int64_t n = 0; n < scan.states; ++n)
      std::fill_n(kept + n * apart, count, scan.kind == ChannelScanKind::wkv && n == 2 ? -1e38f : 0.0f);
  }

  void row(int32_t r) const {
    const bool empty = step.positions[r] == 0;
    if (empty) start();
    switch (scan.kind) {
      case ChannelScanKind::selective:
        return selective(r);
      case ChannelScanKind::gated:
        return gated(r, empty);
      case ChannelScanKind::wkv:
        return wkv(r);
      case ChannelScanKind::modal:
        return modal(r);
    }
  }
};

}  // namespace

template <class F>
void CpuOps::each_column(const StateView& state, int64_t columns, int64_t values, F&& body) {
  const int64_t piece = columns / state.cuts, parts = (piece + kColumns - 1) / kColumns;
  const int64_t across = state.cuts * parts, tasks = step_->sequences * across;
  auto work = [&](int64_t task, int) {
    const int64_t cut = task % across / parts, part = task % parts;
    const int64_t first = cut * piece + part * kColumns, count = std::min(kColumns, piece - part * kColumns);
    body(static_cast<int32_t>(task / across), first, count, static_cast<int32_t>(cut));
  };
  if (team_.workers() == 1 || step_->rows * columns * values < kWorthForking) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
  } else {
    team_.each(tasks, work);
  }
}

void CpuOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  constexpr int32_t kMostTaps = 8;
  const int64_t kept = convolution.taps - 1, piece = in.cols / state.cuts;
  CHECK(convolution.taps >= 1 && convolution.taps <= kMostTaps && out.cols % in.cols == 0 && in.cols % state.cuts == 0,
        "{} taps from {} to {} columns in {} pieces", convolution.taps, in.cols, out.cols, state.cuts);
  each_column(state, in.cols, convolution.taps, [&](int32_t s, int64_t first, int64_t count, int32_t cut) {
    static constexpr float kZeros[kColumns] = {};
    const int32_t begin = step_->first_row[s], end = step_->first_row[s + 1];
    if (begin == end) return;
    float* past = state.piece(*step_, s, StateView::kConvolution, cut) + first % piece;
    const bool empty = step_->positions[begin] == 0;
    // What was put in `back` rows before row r.
    auto input = [&](int32_t r, int64_t back) -> const float* {
      if (r - back >= begin) return in.row(r - back) + first;
      return empty ? kZeros : past + (kept + (r - back - begin)) * piece;
    };
    const float* taps[kMostTaps];
    for (int32_t r = begin; r < end; ++r) {
      for (int64_t j = 0; j <= kept; ++j) taps[j] = input(r, kept - j);
      for (int64_t o = first; o < out.cols; o += in.cols) {
        if (convolution.weight != nullptr) {
          convolve_row(convolution, taps, out.cols, o, count, out.row(r) + o);
        } else {
          share_row(convolution.shares[static_cast<size_t>(o / in.cols)] + first, taps[0], taps[1], count,
                    out.row(r) + o);
        }
      }
    }
    // Ascending: what is still needed of the past lies after the place it goes to.
    for (int64_t n = 0; n < kept; ++n) {
      const float* from = input(end - 1, kept - 1 - n);
      std::copy_n(from, count, past + n * piece);
    }
  });
}

void CpuOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  CHECK(scan.heads % state.cuts == 0 && scan.heads % scan.key_heads == 0, "{} heads in {} pieces, {} with keys",
        scan.heads, state.cuts, scan.key_heads);
  constexpr int64_t kWide = 32;
  const int64_t each = scan.heads / state.cuts, size = int64_t{scan.key_dim} * scan.value_dim;
  const int64_t parts = (scan.value_dim + kWide - 1) / kWide, across = scan.heads * parts;
  auto work = [&](int64_t task, int) {
    const auto s = static_cast<int32_t>(task / across);
    const int64_t head = task % across / parts;
    int64_t first = task % parts * kWide;
    const int64_t end = std::min<int64_t>(first + kWide, scan.value_dim);
    float* matrix = state.piece(*step_, s, StateView::kScan, static_cast<int32_t>(head / each)) + head % each * size;
    while (first < end) {
      const HeadColumns some = {scan, in, *step_, out, s, head, first, matrix + first};
      const int64_t left = end - first;
      if (left >= 32) {
        some.run<32>(), first += 32;
      } else if (left >= 16) {
        some.run<16>(), first += 16;
      } else if (left >= 4) {
        some.run<4>(), first += 4;
      } else {
        some.run<1>(), first += 1;
      }
    }
  };
  const int64_t tasks = step_->sequences * across;
  if (team_.workers() == 1 || step_->rows * scan.heads * size < kWorthForking) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
  } else {
    team_.each(tasks, work);
  }
}

void CpuOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) {
  const int64_t piece = in.a.cols / state.cuts;
  each_column(state, in.a.cols, 8 * scan.states, [&](int32_t s, int64_t first, int64_t count, int32_t cut) {
    float* kept = state.piece(*step_, s, StateView::kScan, cut) + first % piece;
    const ChannelColumns some = {scan, in, *step_, out, first, count, piece, kept};
    for (int32_t r = step_->first_row[s]; r < step_->first_row[s + 1]; ++r) some.row(r);
  });
}

}  // namespace millrace::cpu

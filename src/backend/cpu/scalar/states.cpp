// States in plain C++. Loops run over neighbouring columns without branches, so that the compiler makes vectors of
// them.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cpu/scalar/scalar.h"
#include "backend/cpu/state_columns.h"

namespace millrace::cpu {
namespace {

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

void convolve_row(const Convolution& conv, const float* const* taps, int64_t outputs, int64_t first, int64_t count,
                  float* out) {
  float sum[kStateColumns];
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

// Some columns of a head, so many at a time.
struct Head {
  const HeadColumns& at;
  int64_t skipped;  // columns before these

  template <int kWidth>
  void take(int32_t r, float decay, float t) const {
    const HeadScan& scan = at.scan;
    const int64_t keys = scan.key_dim, apart = scan.value_dim, column = at.head * apart + at.first + skipped;
    const float *q = at.in.q.row(r) + at.key_first(), *k = at.in.k.row(r) + at.key_first();
    const float* v = at.in.v.row(r) + column;
    float* matrix = at.matrix + skipped;
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
      const float beta = sigmoid_of(at.in.beta.row(r)[at.head]);
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
    const float skip = scan.skip != nullptr ? scan.skip[at.head] : 0.0f;
    float* to = at.out.row(r) + column;
    for (int p = 0; p < kWidth; ++p) to[p] = sum[p] + skip * v[p];
  }

  template <int kWidth>
  void run() const {
    const HeadScan& scan = at.scan;
    float* matrix = at.matrix + skipped;
    for (int32_t r = at.begin(); r < at.end(); ++r) {
      if (at.step.positions[r] == 0) {
        for (int64_t n = 0; n < scan.key_dim; ++n) std::fill_n(matrix + n * scan.value_dim, kWidth, 0.0f);
      }
      float t = 1;
      if (at.in.steps) {
        t = softplus_of(at.in.steps.row(r)[at.head] + (scan.step_bias != nullptr ? scan.step_bias[at.head] : 0.0f));
        t = std::min(std::max(t, scan.least), scan.most);
      }
      take<kWidth>(r, exp_of(scan.rate[at.head] * t), t);
    }
  }
};

void scan_heads(const HeadColumns& columns) {
  int64_t done = 0;
  while (done < columns.count) {
    const Head some = {columns, done};
    const int64_t left = columns.count - done;
    if (left >= 32) {
      some.run<32>(), done += 32;
    } else if (left >= 16) {
      some.run<16>(), done += 16;
    } else if (left >= 4) {
      some.run<4>(), done += 4;
    } else {
      some.run<1>(), done += 1;
    }
  }
}

struct Channels {
  const ChannelColumns& at;

  void selective(int32_t r) const {
    const float *a = at.in.a.row(r) + at.first, *b = at.in.b.row(r) + at.first, *skip = at.constant(1, 0);
    float t[kStateColumns], taken[kStateColumns], sum[kStateColumns];
    for (int64_t c = 0; c < at.count; ++c) {
      t[c] = softplus_of(b[c]);
      taken[c] = t[c] * a[c];
      sum[c] = skip[c] * a[c];
    }
    for (int64_t n = 0; n < at.scan.states; ++n) {
      const float* rate = at.constant(0, n);
      float* h = at.kept + n * at.apart;
      const float enters = at.in.c.row(r)[n], leaves = at.in.d.row(r)[n];
      for (int64_t c = 0; c < at.count; ++c) {
        h[c] = exp_of(t[c] * rate[c]) * h[c] + taken[c] * enters;
        sum[c] += h[c] * leaves;
      }
    }
    std::copy_n(sum, at.count, at.out.row(r) + at.first);
  }

  void gated(int32_t r, bool empty) const {
    const float *a = at.in.a.row(r) + at.first, *b = at.in.b.row(r) + at.first, *gate = at.in.c.row(r) + at.first,
                *rate = at.constant(0, 0);
    float* to = at.out.row(r) + at.first;
    for (int64_t c = 0; c < at.count; ++c) {
      const float exponent = rate[c] * sigmoid_of(b[c]), keep = exp_of(exponent), taken = sigmoid_of(gate[c]) * a[c];
      const float share = empty ? 1.0f : std::sqrt(std::max(0.0f, 1.0f - exp_of(2.0f * exponent)));
      at.kept[c] = keep * at.kept[c] + share * taken;
      to[c] = at.kept[c];
    }
  }

  void wkv(int32_t r) const {
    const float *key = at.in.a.row(r) + at.first, *value = at.in.b.row(r) + at.first, *decay = at.constant(0, 0),
                *own = at.constant(1, 0);
    float *sum = at.kept, *weight = at.kept + at.apart, *most = at.kept + 2 * at.apart, *to = at.out.row(r) + at.first;
    for (int64_t c = 0; c < at.count; ++c) {
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
    const float *a = at.in.a.row(r) + at.first, *skip = at.constant(2, 0);
    float sum[kStateColumns];
    for (int64_t c = 0; c < at.count; ++c) sum[c] = skip[c] * a[c];
    for (int64_t n = 0; n < at.scan.states; n += 2) {
      const float *pole = at.constant(0, n), *pole_im = at.constant(0, n + 1);
      const float *residue = at.constant(1, n), *residue_im = at.constant(1, n + 1);
      float *re = at.kept + n * at.apart, *im = re + at.apart;
      for (int64_t c = 0; c < at.count; ++c) {
        const float x = (pole[c] * re[c] - pole_im[c] * im[c]) + a[c], y = pole[c] * im[c] + pole_im[c] * re[c];
        re[c] = x;
        im[c] = y;
        sum[c] += residue[c] * x - residue_im[c] * y;
      }
    }
    std::copy_n(sum, at.count, at.out.row(r) + at.first);
  }

  void start() const {
    for (int64_t n = 0; n < at.scan.states; ++n)
      std::fill_n(at.kept + n * at.apart, at.count, at.scan.kind == ChannelScanKind::wkv && n == 2 ? -1e38f : 0.0f);
  }

  void row(int32_t r) const {
    const bool empty = at.step.positions[r] == 0;
    if (empty) start();
    switch (at.scan.kind) {
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

void scan_channels(const ChannelColumns& columns) {
  const Channels some = {columns};
  for (int32_t r = columns.begin(); r < columns.end(); ++r) some.row(r);
}

}  // namespace

void add_scalar_states(Kernels& kernels) {
  kernels.convolve_row = convolve_row;
  kernels.scan_heads = scan_heads;
  kernels.scan_channels = scan_channels;
}

}  // namespace millrace::cpu

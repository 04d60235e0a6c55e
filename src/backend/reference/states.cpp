// States as the reference computes them: a token at a time, every sum in double precision, the state in float32.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/ops.h"
#include "base/check.h"

namespace millrace {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// The numbers of a part that a channel keeps, [states, channels] of each piece.
struct ChannelState {
  const StateView& view;
  const Step& step;
  StateView::Kind part;
  int64_t channels;

  float& at(int32_t sequence, int64_t number, int64_t channel) const {
    const int64_t each = channels / view.cuts;
    float* piece = view.piece(step, sequence, part, static_cast<int32_t>(channel / each));
    return piece[number * each + channel % each];
  }
};

// One channel of the kinds of ChannelScan: takes in a row, gives what comes out. `h` are its numbers.
double channel_step(const ChannelScan& scan, const ChannelScanRows& in, int64_t row, int64_t c, bool first,
                    std::vector<float>& h) {
  const int64_t channels = in.a.cols;
  const double a = in.a.row(row)[c];
  auto constant = [&](size_t which, int64_t n) { return static_cast<double>(scan.constants[which][n * channels + c]); };
  if (scan.kind == ChannelScanKind::selective) {
    const double t = softplus(in.b.row(row)[c]);
    double out = constant(1, 0) * a;
    for (int64_t n = 0; n < scan.states; ++n) {
      float& own = h[static_cast<size_t>(n)];
      own = static_cast<float>(std::exp(t * constant(0, n)) * own + t * a * in.c.row(row)[n]);
      out += static_cast<double>(own) * in.d.row(row)[n];
    }
    return out;
  }
  if (scan.kind == ChannelScanKind::gated) {
    const double kept = std::exp(constant(0, 0) * sigmoid(in.b.row(row)[c])), taken = sigmoid(in.c.row(row)[c]) * a;
    h[0] = static_cast<float>(first ? taken : kept * h[0] + std::sqrt(1 - kept * kept) * taken);
    return h[0];
  }
  if (scan.kind == ChannelScanKind::wkv) {
    const double key = a, value = in.b.row(row)[c], decay = constant(0, 0), own = constant(1, 0);
    if (first) h = {0, 0, -1e38f};
    const double most = std::max<double>(h[2], key + own);
    const double before = std::exp(h[2] - most), now = std::exp(key + own - most);
    const double out = (before * h[0] + now * value) / (before * h[1] + now);
    const double next = std::max<double>(h[2] + decay, key);
    const double kept = std::exp(h[2] + decay - next), added = std::exp(key - next);
    h = {static_cast<float>(kept * h[0] + added * value), static_cast<float>(kept * h[1] + added),
         static_cast<float>(next)};
    return out;
  }
  double out = constant(2, 0) * a;
  for (int64_t n = 0; n < scan.states; n += 2) {
    float &re = h[static_cast<size_t>(n)], &im = h[static_cast<size_t>(n + 1)];
    const double x = constant(0, n) * re - constant(0, n + 1) * im + a,
                 y = constant(0, n) * im + constant(0, n + 1) * re;
    re = static_cast<float>(x);
    im = static_cast<float>(y);
    out += constant(1, n) * re - constant(1, n + 1) * im;
  }
  return out;
}

double tap_weight(const Convolution& convolution, int64_t tap, int64_t output, int64_t inputs, int64_t outputs) {
  if (convolution.weight != nullptr) return convolution.weight[tap * outputs + output];
  const double share = convolution.shares[static_cast<size_t>(output / inputs)][output % inputs];
  return tap == 1 ? share : 1 - share;
}

}  // namespace

void ReferenceOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  const int64_t kept = convolution.taps - 1;
  const ChannelState past = {state, *step_, StateView::kConvolution, in.cols};
  for (int32_t s = 0; s < step_->sequences; ++s) {
    const int32_t first = step_->first_row[s], end = step_->first_row[s + 1];
    const bool empty = first < end && step_->positions[first] == 0;
    for (int64_t c = 0; c < in.cols && first < end; ++c) {
      std::vector<float> all;
      for (int64_t n = 0; n < kept; ++n) all.push_back(empty ? 0 : past.at(s, n, c));
      for (int32_t r = first; r < end; ++r) {
        all.push_back(in.row(r)[c]);
        for (int64_t o = c; o < out.cols; o += in.cols) {
          double sum = convolution.bias != nullptr ? convolution.bias[o] : 0;
          for (int64_t j = 0; j <= kept; ++j)
            sum += tap_weight(convolution, j, o, in.cols, out.cols) *
                   all[all.size() - static_cast<size_t>(convolution.taps - j)];
          out.row(r)[o] = static_cast<float>(convolution.silu ? sum * sigmoid(sum) : sum);
        }
      }
      for (int64_t n = 0; n < kept; ++n) past.at(s, n, c) = all[all.size() - static_cast<size_t>(kept - n)];
    }
  }
}

void ReferenceOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  const int64_t keys = scan.key_dim, width = scan.value_dim, each = scan.heads / state.cuts;
  std::vector<double> u(static_cast<size_t>(width));
  for (int32_t s = 0; s < step_->sequences; ++s) {
    for (int32_t head = 0; head < scan.heads; ++head) {
      float* matrix =
          state.piece(*step_, s, StateView::kScan, static_cast<int32_t>(head / each)) + head % each * keys * width;
      const int64_t key_head = scan.key_head(head);
      for (int32_t r = step_->first_row[s]; r < step_->first_row[s + 1]; ++r) {
        if (step_->positions[r] == 0) std::fill_n(matrix, keys * width, 0.0f);
        const float *q = in.q.row(r) + key_head * keys, *k = in.k.row(r) + key_head * keys;
        const float* v = in.v.row(r) + head * width;
        double t = 1;
        if (in.steps) {
          t = softplus(in.steps.row(r)[head] + (scan.step_bias != nullptr ? scan.step_bias[head] : 0.0));
          t = std::clamp<double>(t, scan.least, scan.most);
        }
        const double decay = std::exp(scan.rate[head] * t);
        for (int64_t p = 0; p < width; ++p) {
          double predicted = 0;
          for (int64_t n = 0; scan.delta && n < keys; ++n)
            predicted += decay * matrix[n * width + p] * k[n] * scan.k_scale;
          u[static_cast<size_t>(p)] = scan.delta ? sigmoid(in.beta.row(r)[head]) * (v[p] - predicted) : v[p] * t;
        }
        for (int64_t p = 0; p < width; ++p) {
          double sum = scan.skip != nullptr ? static_cast<double>(scan.skip[head]) * v[p] : 0;
          for (int64_t n = 0; n < keys; ++n) {
            float& own = matrix[n * width + p];
            own = static_cast<float>(decay * own + k[n] * scan.k_scale * u[static_cast<size_t>(p)]);
            sum += static_cast<double>(own) * q[n] * scan.q_scale;
          }
          out.row(r)[head * width + p] = static_cast<float>(sum);
        }
      }
    }
  }
}

void ReferenceOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state,
                                 Tensor out) {
  const ChannelState kept = {state, *step_, StateView::kScan, in.a.cols};
  std::vector<float> h(static_cast<size_t>(scan.states));
  for (int32_t s = 0; s < step_->sequences; ++s) {
    for (int64_t c = 0; c < in.a.cols; ++c) {
      for (int64_t n = 0; n < scan.states; ++n) h[static_cast<size_t>(n)] = kept.at(s, n, c);
      for (int32_t r = step_->first_row[s]; r < step_->first_row[s + 1]; ++r) {
        const bool first = step_->positions[r] == 0;
        if (first) std::fill(h.begin(), h.end(), 0.0f);
        out.row(r)[c] = static_cast<float>(channel_step(scan, in, r, c, first, h));
      }
      for (int64_t n = 0; n < scan.states; ++n) kept.at(s, n, c) = h[static_cast<size_t>(n)];
    }
  }
}

}  // namespace millrace

#include "tensor/formats/fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/half.h"

namespace millrace::fit {
namespace {

// Sums run in eight lanes, added in a fixed order at the end, so that a machine with vectors and one without agree. The
// compilers' own vector type says so directly; left alone, they keep these loops scalar.
using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));
constexpr int kLanes = 8;

Four load_four(const float* x) {
  Four four;
  std::memcpy(&four, x, sizeof(four));
  return four;
}

float total(Four a, Four b) {
  const Four four = a + b;
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// The code nearest to each number, as a float.
Four held_codes(Four value, float low, float high) {
  const Four least = {low, low, low, low}, most = {high, high, high, high};
  const Four above = value > least ? value : least;
  const Four held = above < most ? above : most;
  return __builtin_convertvector(__builtin_convertvector(held - low + 0.5f, FourInts), Four) + low;
}

struct Sums {
  float q = 0, q2 = 0, xq = 0;
};

// Of weights that count alike nothing is read.
struct Alike {
  Four at(int) const { return Four{1, 1, 1, 1}; }
  static Four times(Four value, Four) { return value; }
};
struct Weighed {
  const float* w;
  Four at(int i) const { return load_four(w + i); }
  static Four times(Four value, Four weight) { return value * weight; }
};

// The codes that `scale` and `offset` give, as the sums a least-squares fit needs. count is a multiple of 8.
template <class Weights>
Sums sums_of(const float* x, Weights w, int count, float scale, float offset, float low, float high) {
  Four q1[2] = {}, q2[2] = {}, xq[2] = {};
  const float factor = inverse(scale);
  for (int i = 0; i < count; i += kLanes) {
    for (int half = 0; half < 2; ++half) {
      const Four value = load_four(x + i + half * 4);
      const Four code = held_codes((value - offset) * factor, low, high);
      const Four weighed = w.times(code, w.at(i + half * 4));
      q1[half] += weighed;
      q2[half] += weighed * code;
      xq[half] += value * weighed;
    }
  }
  return {total(q1[0], q1[1]), total(q2[0], q2[1]), total(xq[0], xq[1])};
}

template <class Weights>
float sum_of(const float* x, Weights w, int count) {
  Four sums[2] = {};
  for (int i = 0; i < count; i += kLanes) {
    for (int half = 0; half < 2; ++half) {
      const int at = i + half * 4;
      sums[half] += w.times(load_four(x + at), w.at(at));
    }
  }
  return total(sums[0], sums[1]);
}

template <class Weights>
float error_of(const float* x, Weights w, int count, float scale, float offset, int low, int high) {
  Four sums[2] = {};
  const float factor = inverse(scale), bound_low = static_cast<float>(low), bound_high = static_cast<float>(high);
  for (int i = 0; i < count; i += kLanes) {
    for (int half = 0; half < 2; ++half) {
      const Four value = load_four(x + i + half * 4);
      const Four difference = value - (scale * held_codes((value - offset) * factor, bound_low, bound_high) + offset);
      sums[half] += w.times(difference * difference, w.at(i + half * 4));
    }
  }
  return total(sums[0], sums[1]);
}

template <class Weights>
float best_scale(const float* x, Weights w, int count, int low, int high) {
  float extreme = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  // Codes being fixed, the best scale is xq / q2 and takes xq^2 / q2 off the error. Try placing the extreme number on,
  // a little inside and a little outside of the last code on either side.
  const float bound_low = static_cast<float>(low), bound_high = static_cast<float>(high);
  float best = extreme / bound_low, best_gain = -1.0f;
  for (const float last : {bound_low, bound_high}) {
    const float outward = last < 0 ? -1.0f : 1.0f;
    for (int step = -12; step <= 8; ++step) {
      float candidate = extreme / (last + outward * 0.1f * static_cast<float>(step));
      for (int round = 0; round < 2; ++round) {
        const Sums sums = sums_of(x, w, count, candidate, 0.0f, bound_low, bound_high);
        if (!(sums.q2 > 0.0f)) break;
        const float gain = sums.xq / sums.q2 * sums.xq;
        if (!(gain > best_gain)) break;
        best_gain = gain;
        best = candidate = sums.xq / sums.q2;
      }
    }
  }
  return best;
}

template <class Weights>
Affine best_affine(const float* x, Weights w, int count, float n, int high, bool below_zero) {
  const auto [least, most] = std::minmax_element(x, x + count);
  const float bottom = below_zero ? std::min(*least, 0.0f) : *least, top = *most;
  if (!(top > bottom)) return {0.0f, bottom};
  const float bound = static_cast<float>(high), sum_x = sum_of(x, w, count);
  Affine best = {(top - bottom) / bound, bottom};
  float best_error = error_of(x, w, count, best.scale, best.offset, 0, high);
  // Start from ranges that reach a little beyond or fall short of the data, and let least squares and rounding take
  // turns.
  for (int step = -10; step <= 10; ++step) {
    Affine now = {(top - bottom) / (bound + 0.1f * static_cast<float>(step)), bottom};
    for (int round = 0; round < 3; ++round) {
      const Sums sums = sums_of(x, w, count, now.scale, now.offset, 0.0f, bound);
      const float determinant = n * sums.q2 - sums.q * sums.q;
      if (!(determinant > 0.0f)) break;
      now = {(n * sums.xq - sum_x * sums.q) / determinant, (sums.q2 * sum_x - sums.q * sums.xq) / determinant};
      if (below_zero && now.offset > 0.0f) now = {sums.xq / sums.q2, 0.0f};
      if (!(now.scale > 0.0f)) break;
      const float error_now = error_of(x, w, count, now.scale, now.offset, 0, high);
      if (!(error_now < best_error)) break;
      best = now;
      best_error = error_now;
    }
  }
  return best;
}

float total_weight(const float* w, int count) { return sum_of(w, Alike{}, count); }

}  // namespace

void load(const float* in, float* out, int count) {
  constexpr float kHuge = 1e9f;
  for (int i = 0; i < count; ++i) {
    const float value = in[i];
    const float number = value == value ? value : 0.0f;
    out[i] = number > kHuge ? kHuge : number < -kHuge ? -kHuge : number;
  }
}

bool weigh(const float* x, const float* importance, int count, float* out) {
  if (importance == nullptr) return false;
  constexpr float kMost = 1e18f;  // squares stay finite
  double squares = 0, sum = 0;
  for (int i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double floor = 2 * squares / count;
  for (int i = 0; i < count; ++i) {
    const float value = importance[i] > 0.0f ? std::min(importance[i], kMost) : 0.0f;  // NaN counts as 0
    const double weight =
        static_cast<double>(value) * std::sqrt(floor + static_cast<double>(x[i]) * static_cast<double>(x[i]));
    out[i] = static_cast<float>(std::min(weight, 1e30));
    sum += static_cast<double>(out[i]);
  }
  if (!(sum > 0)) return false;
  const double factor = count / sum;
  for (int i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<double>(out[i]) * factor);
  return true;
}

uint16_t to_f16(float value) { return f32_to_f16(value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value); }

float error(const float* x, const float* w, int count, float scale, float offset, int low, int high) {
  return w == nullptr ? error_of(x, Alike{}, count, scale, offset, low, high)
                      : error_of(x, Weighed{w}, count, scale, offset, low, high);
}

void codes(const float* x, int count, float scale, float offset, int low, int high, int8_t* out) {
  const float factor = inverse(scale);
  for (int i = 0; i < count; ++i) out[i] = static_cast<int8_t>(nearest((x[i] - offset) * factor, low, high));
}

float scale(const float* x, const float* w, int count, int low, int high) {
  return w == nullptr ? best_scale(x, Alike{}, count, low, high) : best_scale(x, Weighed{w}, count, low, high);
}

Affine affine(const float* x, const float* w, int count, int high, bool below_zero) {
  return w == nullptr ? best_affine(x, Alike{}, count, static_cast<float>(count), high, below_zero)
                      : best_affine(x, Weighed{w}, count, total_weight(w, count), high, below_zero);
}

uint16_t common_unit(const float* wanted, int count, int high) {
  float most = 0.0f;
  for (int i = 0; i < count; ++i) most = std::max(most, wanted[i]);
  return to_f16(most / static_cast<float>(high));
}

}  // namespace millrace::fit

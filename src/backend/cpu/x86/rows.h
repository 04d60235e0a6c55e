// Everything that works on one row at a time, sixteen values at once.
#pragma once

#include <cmath>

#include "backend/cpu/delta_rows.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

// Sums term(sum, i, how many of [i, i + 16) exist): vector j in accumulator j % 4, then by halving.
template <class Term>
float vector_sum(int64_t count, Term term) {
  Floats sum[4] = {splat(0), splat(0), splat(0), splat(0)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] = term(sum[j], i + kLanes * j, kLanes);
  }
  for (int j = 0; i + kLanes * j < count; ++j) sum[j] = term(sum[j], i + kLanes * j, count - i - kLanes * j);
  return sum_lanes((sum[0] + sum[2]) + (sum[1] + sum[3]));
}

inline void norm_row(const Norm& norm, const float* weight, const float* bias, const float* in, float* out,
                     int64_t width) {
  float mean = 0;
  if (norm.kind == NormKind::layer) {
    float sum = vector_sum(
        width, [in](Floats s, int64_t i, int64_t left) { return s + load_some(in + i, least(left, kLanes)); });
    mean = sum / static_cast<float>(width);
  }
  const float steps[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float square = vector_sum(width, [&](Floats s, int64_t i, int64_t left) {
    Floats x = load_some(in + i, least(left, kLanes)) - splat(mean);
    // What does not exist must not count as 0 - mean.
    if (left < kLanes) x = where_less(load(steps), splat(static_cast<float>(left)), x, splat(0));
    return fma(x, x, s);
  });
  float factor = 1 / std::sqrt(square / static_cast<float>(width) + norm.epsilon);
  map_floats(width, in, out, [=](Floats x, int64_t i, int64_t left) {
    x = (x - splat(mean)) * splat(factor);
    if (weight != nullptr) x = x * load_some(weight + i, left);
    if (bias != nullptr) x = x + load_some(bias + i, left);
    return x;
  });
}

template <Activation kind>
Floats activated(Floats x) {
  const Floats one = splat(1), half = splat(0.5f);
  if constexpr (kind == Activation::silu) return x / (one + exp_f32(splat(0) - x));
  if constexpr (kind == Activation::gelu) return (half * x) * (one + erf_f32(x * splat(0.70710678f)));
  if constexpr (kind == Activation::gelu_tanh) {
    Floats inner = fma(x * x * x, splat(0.044715f), x) * splat(0.79788456f);  // sqrt(2 / pi)
    return (half * x) * (one + tanh_f32(inner));
  }
  if constexpr (kind == Activation::sigmoid) return one / (one + exp_f32(splat(0) - x));
  Floats positive = larger(splat(0), x);
  if constexpr (kind == Activation::relu) return positive;
  return positive * positive;
}

// Calls f(activation as a function of vectors).
template <class F>
void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::silu:
      return f([](Floats x) { return activated<Activation::silu>(x); });
    case Activation::gelu:
      return f([](Floats x) { return activated<Activation::gelu>(x); });
    case Activation::gelu_tanh:
      return f([](Floats x) { return activated<Activation::gelu_tanh>(x); });
    case Activation::relu:
      return f([](Floats x) { return activated<Activation::relu>(x); });
    case Activation::relu_squared:
      return f([](Floats x) { return activated<Activation::relu_squared>(x); });
    case Activation::sigmoid:
      return f([](Floats x) { return activated<Activation::sigmoid>(x); });
    case Activation::none:
      return f([](Floats x) { return x; });
  }
}

inline void activate_row(Activation activation, const float* in, float* out, int64_t count) {
  with_activation(activation, [=](auto function) {
    map_floats(count, in, out, [=](Floats x, int64_t, int64_t) { return function(x); });
  });
}

inline void glu_row(Activation activation, const float* gate, const float* up, float* out, int64_t count) {
  with_activation(activation, [=](auto function) {
    map_floats(count, gate, out,
               [=](Floats x, int64_t i, int64_t left) { return function(x) * load_some(up + i, left); });
  });
}

inline void add_row(const float* in, float scale, float* out, int64_t count) {
  map_floats(count, in, out,
             [=](Floats x, int64_t i, int64_t left) { return fma(x, splat(scale), load_some(out + i, left)); });
}

inline void clamp_row(float limit, float* inout, int64_t count) {
  map_floats(count, inout, inout,
             [=](Floats x, int64_t, int64_t) { return smaller(splat(limit), larger(splat(-limit), x)); });
}

inline void finish_logits_row(float scale, float softcap, float* inout, int64_t count) {
  map_floats(count, inout, inout, [=](Floats x, int64_t, int64_t) {
    x = x * splat(scale);
    return softcap > 0 ? tanh_f32(x / splat(softcap)) * splat(softcap) : x;
  });
}

// Pairs lie half the dimensions apart, or side by side; then they are brought into vectors first.
inline void rotate_head(const float* cos, const float* sin, int64_t dims, bool neighbours, float* head) {
  int64_t half = dims / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    int64_t count = least(kLanes, half - i);
    float first[kLanes] = {}, second[kLanes] = {};
    for (int64_t j = 0; neighbours && j < count; ++j) {
      first[j] = head[2 * (i + j)];
      second[j] = head[2 * (i + j) + 1];
    }
    Floats a = neighbours ? load(first) : load_some(head + i, count);
    Floats b = neighbours ? load(second) : load_some(head + half + i, count);
    Floats c = load_some(cos + i, count), s = load_some(sin + i, count);
    Floats turned = fnma(b, s, a * c), other = fma(a, s, b * c);
    if (!neighbours) {
      store_some(head + i, turned, count);
      store_some(head + half + i, other, count);
      continue;
    }
    store(first, turned);
    store(second, other);
    for (int64_t j = 0; j < count; ++j) {
      head[2 * (i + j)] = first[j];
      head[2 * (i + j) + 1] = second[j];
    }
  }
}

inline void add_row_entries(Kernels& kernels) {
  kernels.norm = norm_row;
  kernels.activate = activate_row;
  kernels.glu = glu_row;
  kernels.add = add_row;
  kernels.clamp = clamp_row;
  kernels.finish_logits = finish_logits_row;
  kernels.rotate = rotate_head;
  kernels.delta_down = delta_down;
  kernels.delta_up = delta_up;
}

}  // namespace
}  // namespace millrace::cpu

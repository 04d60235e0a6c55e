// Everything that works on one row at a time, sixteen values at once.
#pragma once

#include <cmath>
#include <type_traits>

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

// As delta_down and delta_up (delta_rows.h), whose orders of sums they have. Some rows of `down` at once share what is
// read of the input; sums of outputs stay in registers over all ranks.
template <class Lies>
inline Floats load_numbers(const typename Lies::Stored* from) {
  if constexpr (std::is_same_v<Lies, DeltaF32>) return load(from);
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  if constexpr (std::is_same_v<Lies, DeltaBf16>) return load_bf16(bytes);
  if constexpr (std::is_same_v<Lies, DeltaF16>) return load_f16(bytes);
}
template <class Lies>
inline Floats load_some_numbers(const typename Lies::Stored* from, int64_t count) {
  if (count >= kLanes) return load_numbers<Lies>(from);
  typename Lies::Stored some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return load_numbers<Lies>(some);
}

template <class Lies, int kRows>
inline void delta_sums(const float* in, const typename Lies::Stored* down, int64_t ins, float* low) {
  Floats sums[kRows];
  for (Floats& sum : sums) sum = splat(0);
  int64_t i = 0;
  for (; i + kLanes <= ins; i += kLanes) {
    const Floats x = load(in + i);
    for (int row = 0; row < kRows; ++row) sums[row] = fma(x, load_numbers<Lies>(down + row * ins + i), sums[row]);
  }
  if (i < ins) {
    const Floats x = load_some(in + i, ins - i);
    for (int row = 0; row < kRows; ++row)
      sums[row] = fma(x, load_some_numbers<Lies>(down + row * ins + i, ins - i), sums[row]);
  }
  for (int row = 0; row < kRows; ++row) low[row] = sum_lanes(sums[row]);
}

inline void delta_down_vectors(const Delta& delta, const float* in, int64_t ins, float* low) {
  with_numbers(delta, [&]<class Lies>(Lies) {
    const auto* down = numbers_at<Lies>(delta.down);
    int32_t j = 0;
    for (; j + 4 <= delta.rank; j += 4) delta_sums<Lies, 4>(in, down + j * ins, ins, low + j);
    for (; j < delta.rank; ++j) delta_sums<Lies, 1>(in, down + j * ins, ins, low + j);
  });
}

template <class Lies, int kParts>
inline void delta_outputs(const Delta& delta, const float* low, int64_t outs, int64_t first, int64_t count,
                          float strength, float* out) {
  const auto* up = numbers_at<Lies>(delta.up) + first;
  Floats sums[kParts];
  for (Floats& sum : sums) sum = splat(0);
  for (int32_t j = 0; j < delta.rank; ++j) {
    const Floats factor = splat(low[j]);
    for (int part = 0; part < kParts; ++part)
      sums[part] =
          fma(factor, load_some_numbers<Lies>(up + j * outs + part * kLanes, count - part * kLanes), sums[part]);
  }
  for (int part = 0; part < kParts; ++part) {
    float* place = out + first + part * kLanes;
    const int64_t left = count - part * kLanes;
    store_some(place, load_some(place, left) + splat(strength) * (splat(delta.scale) * sums[part]), left);
  }
}

inline void delta_up_vectors(const Delta& delta, const float* low, int64_t outs, float strength, float* out) {
  with_numbers(delta, [&]<class Lies>(Lies) {
    constexpr int kParts = 4, kOutputs = kParts * kLanes;
    int64_t o = 0;
    for (; o + kOutputs <= outs; o += kOutputs)
      delta_outputs<Lies, kParts>(delta, low, outs, o, kOutputs, strength, out);
    for (; o < outs; o += kLanes) delta_outputs<Lies, 1>(delta, low, outs, o, least(kLanes, outs - o), strength, out);
  });
}

inline void add_row_entries(Kernels& kernels) {
  kernels.norm = norm_row;
  kernels.activate = activate_row;
  kernels.glu = glu_row;
  kernels.add = add_row;
  kernels.clamp = clamp_row;
  kernels.finish_logits = finish_logits_row;
  kernels.rotate = rotate_head;
  kernels.delta_down = delta_down_vectors;
  kernels.delta_up = delta_up_vectors;
}

}  // namespace
}  // namespace millrace::cpu

// Everything that works on one row at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/cpu/delta_rows.h"
#include "backend/cpu/scalar/scalar.h"
#include "tensor/half.h"

namespace millrace::cpu {
namespace {

constexpr int kLanes = 16;

// Sums term(i) over [0, count): value i in lane i % 16, lanes summed by halving.
template <class Term>
float lane_sum(int64_t count, Term term) {
  float sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < count; ++lane) sum[lane] += term(i + lane);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
  }
  return sum[0];
}

void norm(const Norm& norm, const float* weight, const float* bias, const float* in, float* out, int64_t width) {
  float mean = 0;
  if (norm.kind == NormKind::layer)
    mean = lane_sum(width, [in](int64_t i) { return in[i]; }) / static_cast<float>(width);
  float square = lane_sum(width, [in, mean](int64_t i) { return (in[i] - mean) * (in[i] - mean); });
  float factor = 1 / std::sqrt(square / static_cast<float>(width) + norm.epsilon);
  for (int64_t i = 0; i < width; ++i) {
    float value = (in[i] - mean) * factor;
    if (weight != nullptr) value *= weight[i];
    if (bias != nullptr) value += bias[i];
    out[i] = value;
  }
}

template <Activation kind>
float activated(float x) {
  if constexpr (kind == Activation::silu) return x / (1 + std::exp(-x));
  if constexpr (kind == Activation::gelu) return 0.5f * x * (1 + std::erf(x * std::numbers::sqrt2_v<float> * 0.5f));
  if constexpr (kind == Activation::gelu_tanh) {
    constexpr float kRoot = 0.79788456080286536f;  // sqrt(2 / pi)
    return 0.5f * x * (1 + std::tanh(kRoot * (x + 0.044715f * x * x * x)));
  }
  if constexpr (kind == Activation::relu) return x > 0 ? x : 0;
  if constexpr (kind == Activation::sigmoid) return 1 / (1 + std::exp(-x));
  if constexpr (kind == Activation::none) return x;
  return x > 0 ? x * x : 0;
}

// Calls f(activation as a constant).
template <class F>
void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::silu:
      return f([](float x) { return activated<Activation::silu>(x); });
    case Activation::gelu:
      return f([](float x) { return activated<Activation::gelu>(x); });
    case Activation::gelu_tanh:
      return f([](float x) { return activated<Activation::gelu_tanh>(x); });
    case Activation::relu:
      return f([](float x) { return activated<Activation::relu>(x); });
    case Activation::relu_squared:
      return f([](float x) { return activated<Activation::relu_squared>(x); });
    case Activation::sigmoid:
      return f([](float x) { return activated<Activation::sigmoid>(x); });
    case Activation::none:
      return f([](float x) { return x; });
  }
}

void activate(Activation activation, const float* in, float* out, int64_t count) {
  with_activation(activation, [=](auto function) {
    for (int64_t i = 0; i < count; ++i) out[i] = function(in[i]);
  });
}

void glu(Activation activation, const float* gate, const float* up, float* out, int64_t count) {
  with_activation(activation, [=](auto function) {
    for (int64_t i = 0; i < count; ++i) out[i] = function(gate[i]) * up[i];
  });
}

void add(const float* in, float scale, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] += scale * in[i];
}

void clamp(float limit, float* inout, int64_t count) {
  for (int64_t i = 0; i < count; ++i) inout[i] = std::clamp(inout[i], -limit, limit);
}

void finish_logits(float scale, float softcap, float* inout, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    float value = inout[i] * scale;
    inout[i] = softcap > 0 ? softcap * std::tanh(value / softcap) : value;
  }
}

void rotate(const float* cos, const float* sin, int64_t dims, bool neighbours, float* head) {
  int64_t half = dims / 2;
  for (int64_t i = 0; i < half; ++i) {
    float* x = neighbours ? head + 2 * i : head + i;
    float* y = neighbours ? x + 1 : x + half;
    float a = *x, b = *y;
    *x = a * cos[i] - b * sin[i];
    *y = a * sin[i] + b * cos[i];
  }
}

void round_f32(const float* in, std::byte* out, int64_t count) {
  std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
}

void round_f16(const float* in, std::byte* out, int64_t count) {
  uint16_t* place = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) place[i] = f32_to_f16(in[i]);
}

void round_bf16(const float* in, std::byte* out, int64_t count) {
  uint16_t* place = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; ++i) place[i] = f32_to_bf16(in[i]);
}

// Token after token.
template <auto round, int64_t bytes>
void store(const KvPlace& place, const float* k, const float* v) {
  round(k, place.keys + place.within * place.kv->k_dim * bytes, place.kv->k_dim);
  round(v, place.values + place.within * place.kv->v_dim * bytes, place.kv->v_dim);
}

void store_any(const KvPlace& place, const float* k, const float* v) {
  const KvView& kv = *place.kv;
  auto write = [&](DType type, std::byte* part, int64_t dim, const float* in) {
    kv_write(type, in, dim, part + kv_codes_at(type, dim, place.within),
             part + kv_factor_at(type, dim, kv.page_tokens, place.within));
  };
  if (kv.form.turns_keys()) {
    float turned[kHeadDim];
    std::copy_n(k, kv.k_dim, turned);
    kv_turn(turned, kv.k_dim);
    write(kv.form.k, place.keys, kv.k_dim, turned);
  } else {
    write(kv.form.k, place.keys, kv.k_dim, k);
  }
  if (kv.v_dim > 0) write(kv.form.v, place.values, kv.v_dim, v);
}

}  // namespace

void add_scalar_rows(Kernels& kernels) {
  kernels.norm = norm;
  kernels.activate = activate;
  kernels.glu = glu;
  kernels.add = add;
  kernels.clamp = clamp;
  kernels.finish_logits = finish_logits;
  kernels.rotate = rotate;
  kernels.delta_down = delta_down;
  kernels.delta_up = delta_up;
  for (auto& mode : kernels.store) mode = {store<round_f32, 4>, store<round_f16, 2>, store<round_bf16, 2>, store_any};
}

void add_scalar(Kernels& kernels) {
  add_scalar_linear(kernels);
  add_scalar_rows(kernels);
  add_scalar_states(kernels);
  add_scalar_attend(kernels);
  add_scalar_peak(kernels);
}

}  // namespace millrace::cpu

// Everything that works on one row at a time, four values at once.
#include <algorithm>
#include <cmath>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/simd.h"
#include "backend/cpu/delta_rows.h"

namespace millrace::cpu {
namespace {

// Sums term(vector of values [i, i + 4), how many of them exist): vector j in accumulator j % 4, then by halving.
template <class Term>
float vector_sum(int64_t count, Term term) {
  float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int j = 0; j < 4; ++j) sum[j] = term(sum[j], i + 4 * j, 4);
  }
  for (int j = 0; i + 4 * j < count; ++j) sum[j] = term(sum[j], i + 4 * j, count - i - 4 * j);
  return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3])));
}

void norm(const Norm& norm, const float* weight, const float* bias, const float* in, float* out, int64_t width) {
  float mean = 0;
  if (norm.kind == NormKind::layer) {
    float sum = vector_sum(
        width, [in](float32x4_t s, int64_t i, int64_t left) { return vaddq_f32(s, load_some(in + i, left)); });
    mean = sum / static_cast<float>(width);
  }
  float square = vector_sum(width, [in, mean](float32x4_t s, int64_t i, int64_t left) {
    float32x4_t x = vsubq_f32(load_some(in + i, left), vdupq_n_f32(mean));
    if (left < 4) {  // what does not exist must not count as 0 - mean
      const float exists[7] = {1, 1, 1, 0, 0, 0, 0};
      x = vmulq_f32(x, vld1q_f32(exists + 3 - left));
    }
    return vfmaq_f32(s, x, x);
  });
  float factor = 1 / std::sqrt(square / static_cast<float>(width) + norm.epsilon);
  map_floats(width, in, out, [=](float32x4_t x, int64_t i) {
    x = vmulq_n_f32(vsubq_f32(x, vdupq_n_f32(mean)), factor);
    if (weight != nullptr) x = vmulq_f32(x, load_some(weight + i, width - i));
    if (bias != nullptr) x = vaddq_f32(x, load_some(bias + i, width - i));
    return x;
  });
}

template <Activation kind>
float32x4_t activated(float32x4_t x) {
  const float32x4_t zero = vdupq_n_f32(0), one = vdupq_n_f32(1), half = vdupq_n_f32(0.5f);
  if constexpr (kind == Activation::silu) return vdivq_f32(x, vaddq_f32(one, exp_f32(vnegq_f32(x))));
  if constexpr (kind == Activation::gelu) {
    return vmulq_f32(vmulq_f32(half, x), vaddq_f32(one, erf_f32(vmulq_n_f32(x, 0.70710678f))));
  }
  if constexpr (kind == Activation::gelu_tanh) {
    float32x4_t cube = vmulq_f32(vmulq_f32(x, x), x);
    float32x4_t inner = vmulq_n_f32(vfmaq_f32(x, cube, vdupq_n_f32(0.044715f)), 0.79788456f);  // sqrt(2 / pi)
    return vmulq_f32(vmulq_f32(half, x), vaddq_f32(one, tanh_f32(inner)));
  }
  if constexpr (kind == Activation::sigmoid) return vdivq_f32(one, vaddq_f32(one, exp_f32(vnegq_f32(x))));
  float32x4_t positive = vmaxq_f32(x, zero);
  if constexpr (kind == Activation::relu) return positive;
  return vmulq_f32(positive, positive);
}

// Calls f(activation as a function of vectors).
template <class F>
void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::silu:
      return f([](float32x4_t x) { return activated<Activation::silu>(x); });
    case Activation::gelu:
      return f([](float32x4_t x) { return activated<Activation::gelu>(x); });
    case Activation::gelu_tanh:
      return f([](float32x4_t x) { return activated<Activation::gelu_tanh>(x); });
    case Activation::relu:
      return f([](float32x4_t x) { return activated<Activation::relu>(x); });
    case Activation::relu_squared:
      return f([](float32x4_t x) { return activated<Activation::relu_squared>(x); });
    case Activation::sigmoid:
      return f([](float32x4_t x) { return activated<Activation::sigmoid>(x); });
    case Activation::none:
      return f([](float32x4_t x) { return x; });
  }
}

void activate(Activation activation, const float* in, float* out, int64_t count) {
  with_activation(activation, [=](auto function) {
    map_floats(count, in, out, [=](float32x4_t x, int64_t) { return function(x); });
  });
}

// 1 + e^-x of several vectors step by step, as in exp_f32: one after another, each step would wait for the last.
constexpr int kTogether = 4;
[[gnu::always_inline]] inline void below_silu(const float32x4_t (&x)[kTogether], float32x4_t (&out)[kTogether]) {
  const float32x4_t one = vdupq_n_f32(1), magic = vdupq_n_f32(12582912.0f);  // adding it leaves an integer below
  float32x4_t n[kTogether], r[kTogether], p[kTogether];
#define MILLRACE_EACH _Pragma("GCC unroll 4") for (int i = 0; i < kTogether; ++i)
  MILLRACE_EACH r[i] = vminq_f32(vmaxq_f32(vnegq_f32(x[i]), vdupq_n_f32(-87.3f)), vdupq_n_f32(88.0f));
  MILLRACE_EACH n[i] = vfmaq_f32(magic, r[i], vdupq_n_f32(1.44269504f));
  MILLRACE_EACH r[i] = vfmsq_f32(r[i], vsubq_f32(n[i], magic), vdupq_n_f32(0.693145752f));
  MILLRACE_EACH r[i] = vfmsq_f32(r[i], vsubq_f32(n[i], magic), vdupq_n_f32(1.42860677e-6f));
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(8.37312452e-3f), vdupq_n_f32(1.37805939e-3f), r[i]);
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(4.16695364e-2f), p[i], r[i]);
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(1.66664720e-1f), p[i], r[i]);
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(4.99999851e-1f), p[i], r[i]);
  MILLRACE_EACH p[i] = vaddq_f32(vfmaq_f32(r[i], p[i], vmulq_f32(r[i], r[i])), one);
  MILLRACE_EACH {
    int32x4_t e = vaddq_s32(vreinterpretq_s32_f32(p[i]), vshlq_n_s32(vreinterpretq_s32_f32(n[i]), 23));
    out[i] = vaddq_f32(one, vreinterpretq_f32_s32(e));
  }
#undef MILLRACE_EACH
}

// Divisions take long and other units than the rest, so they go with the exponentials of the values after them.
void silu_glu(const float* gate, const float* up, float* out, int64_t count) {
  constexpr int64_t kValues = 4 * kTogether;
  float32x4_t x[kTogether], below[kTogether];
  auto begin = [&](int64_t at) {
    int64_t left = count - at;
#pragma GCC unroll 4
    for (int j = 0; j < kTogether; ++j) {
      x[j] = left >= kValues ? vld1q_f32(gate + at + 4 * j)
                             : load_some(gate + at + 4 * j, std::clamp<int64_t>(left - 4 * j, 0, 4));
    }
  };
  if (count <= 0) return;
  begin(0);
  below_silu(x, below);
  for (int64_t i = 0; i < count; i += kValues) {
    float32x4_t silu[kTogether];
#pragma GCC unroll 4
    for (int j = 0; j < kTogether; ++j) silu[j] = vdivq_f32(x[j], below[j]);
    if (i + kValues < count) {
      begin(i + kValues);
      below_silu(x, below);
    }
    if (count - i >= kValues) {
#pragma GCC unroll 4
      for (int j = 0; j < kTogether; ++j) vst1q_f32(out + i + 4 * j, vmulq_f32(silu[j], vld1q_f32(up + i + 4 * j)));
      continue;
    }
    float tail[kValues];
    for (int j = 0; j < kTogether; ++j) vst1q_f32(tail + 4 * j, silu[j]);
    for (int64_t j = 0; j < count - i; ++j) out[i + j] = tail[j] * up[i + j];
  }
}

void glu(Activation activation, const float* gate, const float* up, float* out, int64_t count) {
  if (activation == Activation::silu) return silu_glu(gate, up, out, count);
  with_activation(activation, [=](auto function) {
    map_floats(count, gate, out,
               [=](float32x4_t x, int64_t i) { return vmulq_f32(function(x), load_some(up + i, count - i)); });
  });
}

void add(const float* in, float scale, float* out, int64_t count) {
  map_floats(count, in, out,
             [=](float32x4_t x, int64_t i) { return vfmaq_n_f32(load_some(out + i, count - i), x, scale); });
}

void clamp(float limit, float* inout, int64_t count) {
  map_floats(count, inout, inout,
             [=](float32x4_t x, int64_t) { return vminq_f32(vmaxq_f32(x, vdupq_n_f32(-limit)), vdupq_n_f32(limit)); });
}

void finish_logits(float scale, float softcap, float* inout, int64_t count) {
  map_floats(count, inout, inout, [=](float32x4_t x, int64_t) {
    x = vmulq_n_f32(x, scale);
    return softcap > 0 ? vmulq_n_f32(tanh_f32(vdivq_f32(x, vdupq_n_f32(softcap))), softcap) : x;
  });
}

void rotate_neighbours(const float* cos, const float* sin, int64_t half, float* head) {
  for (int64_t i = 0; i < half; i += 4) {
    if (i + 4 <= half) {
      float32x4x2_t x = vld2q_f32(head + 2 * i);
      float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
      float32x4x2_t turned = {
          {vfmsq_f32(vmulq_f32(x.val[0], c), x.val[1], s), vfmaq_f32(vmulq_f32(x.val[1], c), x.val[0], s)}};
      vst2q_f32(head + 2 * i, turned);
      continue;
    }
    for (int64_t j = i; j < half; ++j) {
      float a = head[2 * j], b = head[2 * j + 1];
      head[2 * j] = std::fma(-b, sin[j], a * cos[j]);
      head[2 * j + 1] = std::fma(a, sin[j], b * cos[j]);
    }
  }
}

void rotate(const float* cos, const float* sin, int64_t dims, bool neighbours, float* head) {
  int64_t half = dims / 2, i = 0;
  if (neighbours) return rotate_neighbours(cos, sin, half, head);
  for (; i + 4 <= half; i += 4) {
    float32x4_t a = vld1q_f32(head + i), b = vld1q_f32(head + half + i), c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
    vst1q_f32(head + i, vfmsq_f32(vmulq_f32(a, c), b, s));
    vst1q_f32(head + half + i, vfmaq_f32(vmulq_f32(b, c), a, s));
  }
  for (; i < half; ++i) {
    float a = head[i], b = head[half + i];
    head[i] = std::fma(-b, sin[i], a * cos[i]);
    head[half + i] = std::fma(a, sin[i], b * cos[i]);
  }
}

template <class Lies>
float32x4_t load_numbers(const typename Lies::Stored* from) {
  if constexpr (std::is_same_v<Lies, DeltaF32>) return vld1q_f32(from);
  if constexpr (std::is_same_v<Lies, DeltaBf16>) return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16));
  if constexpr (std::is_same_v<Lies, DeltaF16>) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}
template <class Lies>
float32x4_t load_some_numbers(const typename Lies::Stored* from, int64_t count) {
  if (count >= 4) return load_numbers<Lies>(from);
  typename Lies::Stored some[4] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return load_numbers<Lies>(some);
}

// As delta_dots: input i in lane i % 16 of each sum, lanes summed by halving.
template <class Lies, int kRanks>
void delta_sums(const float* in, const typename Lies::Stored* down, int64_t ins, float* low) {
  float32x4_t sums[kRanks][4];
  for (auto& one : sums)
    for (float32x4_t& part : one) part = vdupq_n_f32(0);
  int64_t i = 0;
  for (; i + 16 <= ins; i += 16) {
    for (int part = 0; part < 4; ++part) {
      const float32x4_t x = vld1q_f32(in + i + 4 * part);
      for (int j = 0; j < kRanks; ++j)
        sums[j][part] = vfmaq_f32(sums[j][part], x, load_numbers<Lies>(down + j * ins + i + 4 * part));
    }
  }
  for (int part = 0; i + 4 * part < ins; ++part) {
    const int64_t at = i + 4 * part;
    const float32x4_t x = load_some(in + at, ins - at);
    for (int j = 0; j < kRanks; ++j)
      sums[j][part] = vfmaq_f32(sums[j][part], x, load_some_numbers<Lies>(down + j * ins + at, ins - at));
  }
  for (int j = 0; j < kRanks; ++j) {
    const float32x4_t four = vaddq_f32(vaddq_f32(sums[j][0], sums[j][2]), vaddq_f32(sums[j][1], sums[j][3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    low[j] = vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
}

void delta_down_vectors(const Delta& delta, const float* in, int64_t ins, float* low) {
  with_numbers(delta, [&]<class Lies>(Lies) {
    const auto* down = numbers_at<Lies>(delta.down);
    int32_t j = 0;
    for (; j + 4 <= delta.rank; j += 4) delta_sums<Lies, 4>(in, down + j * ins, ins, low + j);
    for (; j < delta.rank; ++j) delta_sums<Lies, 1>(in, down + j * ins, ins, low + j);
  });
}

void round_f16(const float* in, std::byte* out, int64_t count) {
  float16_t* place = reinterpret_cast<float16_t*>(out);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) vst1_f16(place + i, vcvt_f16_f32(vld1q_f32(in + i)));
  for (; i < count; ++i) place[i] = static_cast<float16_t>(in[i]);
}

}  // namespace

void neon_store_f16(const KvPlace& place, const float* k, const float* v) {
  round_f16(k, place.keys + place.within * place.kv->k_dim * 2, place.kv->k_dim);
  round_f16(v, place.values + place.within * place.kv->v_dim * 2, place.kv->v_dim);
}

void add_neon_rows(Kernels& kernels) {
  kernels.norm = norm;
  kernels.activate = activate;
  kernels.glu = glu;
  kernels.add = add;
  kernels.clamp = clamp;
  kernels.finish_logits = finish_logits;
  kernels.rotate = rotate;
  kernels.delta_down = delta_down_vectors;
  kernels.delta_up = delta_up;
  for (auto& mode : kernels.store) mode[kKvF16] = neon_store_f16;
}

}  // namespace millrace::cpu

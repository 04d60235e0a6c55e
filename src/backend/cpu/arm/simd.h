// Vector helpers of the Arm rows. Everything is in an unnamed namespace: each folder compiles its own copy with its own
// flags, so that code for a newer machine can never stand in for code for an older one.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::cpu {
namespace {

// Value i of `count` goes through function(vector); the last few are padded with zeros. Each value's result depends on
// itself only, so where a tail begins cannot show.
template <class F>
inline void map_floats(int64_t count, const float* in, float* out, F function) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) vst1q_f32(out + i, function(vld1q_f32(in + i), i));
  if (i < count) {
    float tail[4] = {};
    for (int64_t j = i; j < count; ++j) tail[j - i] = in[j];
    vst1q_f32(tail, function(vld1q_f32(tail), i));
    for (int64_t j = i; j < count; ++j) out[j] = tail[j - i];
  }
}

#ifdef __ARM_FEATURE_FP16_FML
// sum += low or high half of w times lane of a. The instruction reaches registers 0 to 15 for `a`, which clang 14 does
// not know of its own intrinsics: it names any register, and the assembler drops a bit of it.
template <int lane>
[[gnu::always_inline]] inline float32x4_t widening_low(float32x4_t sum, float16x8_t w, float16x8_t a) {
#ifdef __clang__
  asm("fmlal %0.4s, %1.4h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(a), "i"(lane));
  return sum;
#else
  return vfmlalq_laneq_low_f16(sum, w, a, lane);
#endif
}
template <int lane>
[[gnu::always_inline]] inline float32x4_t widening_high(float32x4_t sum, float16x8_t w, float16x8_t a) {
#ifdef __clang__
  asm("fmlal2 %0.4s, %1.4h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(a), "i"(lane));
  return sum;
#else
  return vfmlalq_laneq_high_f16(sum, w, a, lane);
#endif
}
#endif

// Four floats from `in`, of which only `count` exist.
inline float32x4_t load_some(const float* in, int64_t count) {
  if (count >= 4) return vld1q_f32(in);
  float some[4] = {};
  for (int64_t j = 0; j < count; ++j) some[j] = in[j];
  return vld1q_f32(some);
}

// e^x to about one unit in the last place; 0 below -87.3, e^88.7 from there on; NaN stays NaN.
inline float32x4_t exp_f32(float32x4_t x) {
  const float32x4_t log2e = vdupq_n_f32(1.44269504f);
  const float32x4_t ln2_high = vdupq_n_f32(0.693145752f), ln2_low = vdupq_n_f32(1.42860677e-6f);
  uint32x4_t gone = vcltq_f32(x, vdupq_n_f32(-87.3f));
  x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-87.3f)), vdupq_n_f32(88.7f));
  float32x4_t n = vrndnq_f32(vmulq_f32(x, log2e));
  float32x4_t r = vfmsq_f32(vfmsq_f32(x, n, ln2_high), n, ln2_low);
  // Minimax of (e^r - 1 - r) / r^2 on [-ln2/2, ln2/2].
  float32x4_t p = vdupq_n_f32(1.37805939e-3f);
  p = vfmaq_f32(vdupq_n_f32(8.37312452e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.16695364e-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.66664720e-1f), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.99999851e-1f), p, r);
  float32x4_t r2 = vmulq_f32(r, r);
  float32x4_t e = vaddq_f32(vfmaq_f32(r, p, r2), vdupq_n_f32(1.0f));
  int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(e), vshlq_n_s32(vcvtq_s32_f32(n), 23));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(bits), gone));
}

inline float exp_f32(float x) { return vgetq_lane_f32(exp_f32(vdupq_n_f32(x)), 0); }

// Near zero, where 1 - 2 / (e^2x + 1) would cancel, x and an odd polynomial (Cephes).
inline float32x4_t tanh_f32(float32x4_t x) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  float32x4_t e = exp_f32(vaddq_f32(x, x));
  float32x4_t far = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, one)));
  float32x4_t square = vmulq_f32(x, x);
  float32x4_t p = vdupq_n_f32(-5.70498872745e-3f);
  p = vfmaq_f32(vdupq_n_f32(2.06390887954e-2f), p, square);
  p = vfmaq_f32(vdupq_n_f32(-5.37397155531e-2f), p, square);
  p = vfmaq_f32(vdupq_n_f32(1.33314422036e-1f), p, square);
  p = vfmaq_f32(vdupq_n_f32(-3.33332819422e-1f), p, square);
  float32x4_t near = vfmaq_f32(x, vmulq_f32(p, square), x);
  return vbslq_f32(vcaltq_f32(x, vdupq_n_f32(0.625f)), near, far);
}

// Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline float32x4_t erf_f32(float32x4_t x) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  float32x4_t size = vabsq_f32(x);
  float32x4_t t = vdivq_f32(one, vfmaq_f32(one, size, vdupq_n_f32(0.3275911f)));
  float32x4_t p = vdupq_n_f32(1.061405429f);
  p = vfmaq_f32(vdupq_n_f32(-1.453152027f), p, t);
  p = vfmaq_f32(vdupq_n_f32(1.421413741f), p, t);
  p = vfmaq_f32(vdupq_n_f32(-0.284496736f), p, t);
  p = vfmaq_f32(vdupq_n_f32(0.254829592f), p, t);
  float32x4_t tail = vmulq_f32(vmulq_f32(p, t), exp_f32(vnegq_f32(vmulq_f32(x, x))));
  float32x4_t positive = vsubq_f32(one, tail);
  return vbslq_f32(vdupq_n_u32(0x80000000u), x, positive);
}

inline float32x4_t load_f16_as_f32(const std::byte* in) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(in))));
}

inline float32x4_t bf16_low(uint16x8_t x) { return vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(x), 16)); }
inline float32x4_t bf16_high(uint16x8_t x) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u16(vtrn2q_u16(x, x)), 16));
}

}  // namespace
}  // namespace millrace::cpu

// What the loops over states (state_loops.inc) are made of on Arm: four columns at once, so that sixteen numbers a
// channel stay in registers. Included by the kernels of each instruction set.
#pragma once

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/state_columns.h"

namespace millrace::cpu {
namespace {

constexpr int kLanes = 4;
struct Floats {
  float32x4_t v;
  Floats() = default;
  Floats(float32x4_t x) : v(x) {}  // what simd.h gives
};

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline Floats splat(float x) { return {vdupq_n_f32(x)}; }
inline Floats load(const float* in) { return {vld1q_f32(in)}; }
inline void store(float* out, Floats x) { vst1q_f32(out, x.v); }
inline Floats operator+(Floats a, Floats b) { return {vaddq_f32(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {vsubq_f32(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {vmulq_f32(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {vdivq_f32(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {vfmaq_f32(c.v, a.v, b.v)}; }   // a * b + c
inline Floats fnma(Floats a, Floats b, Floats c) { return {vfmsq_f32(c.v, a.v, b.v)}; }  // c - a * b
// The second where either is not a number, as on x86.
inline Floats larger(Floats a, Floats b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
inline Floats smaller(Floats a, Floats b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
inline Floats magnitude(Floats a) { return {vabsq_f32(a.v)}; }
inline Floats rounded(Floats a) { return {vrndnq_f32(a.v)}; }
inline Floats root_f32(Floats x) { return {vsqrtq_f32(x.v)}; }
inline Floats exp_f32(Floats x) { return {exp_f32(x.v)}; }

inline void store_some(float* out, Floats x, int64_t count) {
  if (count >= kLanes) return store(out, x);
  float some[kLanes];
  store(some, x);
  for (int64_t i = 0; i < count; ++i) out[i] = some[i];
}

// x * 2^n of a whole n from -126 to 127, for x from 1/2 to 2.
inline Floats times_power_of_two(Floats x, Floats n) {
  const int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(x.v), vshlq_n_s32(vcvtnq_s32_f32(n.v), 23));
  return {vreinterpretq_f32_s32(bits)};
}

#include "backend/cpu/state_loops.inc"

}  // namespace
}  // namespace millrace::cpu

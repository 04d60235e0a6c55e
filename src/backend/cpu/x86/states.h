// What the loops over states (state_loops.inc) are made of on x86: sixteen columns at once. Included by the kernels of
// each instruction set.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/state_columns.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

// x * 2^n of a whole n from -126 to 127, for x from 1/2 to 2.
inline Floats times_power_of_two(Floats x, Floats n) {
#ifdef __AVX512F__
  return {_mm512_scalef_ps(x.v, n.v)};
#else
  return as_floats(bits_of(x) + shift_left(nearest(n), 23));
#endif
}

inline Floats root_f32(Floats x) {
#ifdef __AVX512F__
  return {_mm512_sqrt_ps(x.v)};
#else
  return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
#endif
}

#include "backend/cpu/state_loops.inc"

}  // namespace
}  // namespace millrace::cpu

// What packing weights of 16 bits takes: which float16 numbers are bfloat16 numbers too, and turning eight by eight.
#pragma once

#include <algorithm>
#include <cstring>

#include "backend/cpu/arm/simd.h"

namespace millrace::cpu {
namespace {

// Eight float16 numbers as bfloat16, and what of them that loses: nothing if they are bfloat16 numbers too, and finite.
inline uint16x8_t f16_to_bf16(uint16x8_t x, uint16x8_t* lost) {
  float16x8_t halves = vreinterpretq_f16_u16(x);
  uint32x4_t low = vreinterpretq_u32_f32(vcvt_f32_f16(vget_low_f16(halves)));
  uint32x4_t high = vreinterpretq_u32_f32(vcvt_high_f32_f16(halves));
  uint16x8_t below = vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
  *lost = vorrq_u16(below, vcgeq_u16(vshlq_n_u16(x, 1), vdupq_n_u16(0xf800)));
  return vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}
inline bool all_bf16(const std::byte* numbers, int64_t count) {
  for (int64_t i = 0; i < count; i += 8) {
    uint16_t eight[8] = {};
    const int64_t here = std::min<int64_t>(8, count - i);
    std::memcpy(eight, numbers + i * 2, here == 8 ? sizeof eight : static_cast<size_t>(here) * 2);
    uint16x8_t lost;
    f16_to_bf16(vld1q_u16(eight), &lost);
    if (vmaxvq_u16(lost) != 0) return false;
  }
  return true;
}

// Eight inputs of eight outputs, [8][8], become [inputs][outputs].
inline void turn_eight(uint16x8_t (&x)[8]) {
  for (int round = 0; round < 3; ++round) {
    uint16x8_t y[8];
    for (int i = 0; i < 4; ++i) y[2 * i] = vzip1q_u16(x[i], x[i + 4]), y[2 * i + 1] = vzip2q_u16(x[i], x[i + 4]);
    std::copy_n(y, 8, x);
  }
}

// What is not finite becomes the largest number: products take exponents apart in several ways, and this one they all
// take alike.
inline uint16x8_t finite_f16(uint16x8_t x) {
  const uint16x8_t size = vminq_u16(vandq_u16(x, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x7bff));
  return vbslq_u16(vdupq_n_u16(0x8000), x, size);
}

}  // namespace
}  // namespace millrace::cpu

// The arithmetic of sampling that the host and a device must do alike: weights to the bit, random numbers to the bit,
// arrivals in a race to a known margin. No contraction of products and sums on either side. Any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/both.h"
#include "base/philox.h"

namespace millrace {

MILLRACE_BOTH uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
MILLRACE_BOTH float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// exp(x) for x <= 0 to 2e-7, zero at -87 and below, also for -infinity. Branch-free, and choices are made on bits:
// compilers turn those into vector instructions, but keep a branch where a comparison of floats might trap.
MILLRACE_BOTH float exp_below(float x) {
  constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  constexpr float kLeast = -87.0f;
  const uint32_t bits = bits_of(x), least = bits_of(kLeast);
  const float bounded = float_of(bits < least ? bits : least);
  const float shifted = bounded * kLog2e + kRound;
  const float whole = shifted - kRound;
  float r = bounded - whole * kLn2High;
  r = r - whole * kLn2Low;
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t power = (bits_of(shifted) - bits_of(kRound) + 127u) << 23;
  const uint32_t value = bits_of(sum * float_of(power));
  const uint32_t keep = 0u - static_cast<uint32_t>(bits <= least);
  return float_of(value & keep);
}

MILLRACE_BOTH float rough_log2(float x) {
#ifdef __CUDA_ARCH__
  return __log2f(x);
#else
  return std::log2(x);
#endif
}

MILLRACE_BOTH float rough_exp2(float x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#else
  return std::exp2(x);
#endif
}

// The binary logarithm of -log(1 - u) / w, u being the random number of these words and w = 2^scaled, scaled <= 0.
// Whoever arrives first is not after the likeliest token, at 2^5.3 at the latest, and no E but zero is below 2^-53; so
// what matters has |scaled| < 59, and there this is off by less than 2^-13: 2^-17 of u or 1 - u, 2^-15 where 1 - u is
// near one, 2^-22 of a logarithm below 2^6, a few 2^-24 of 59.
inline constexpr float kRaceMargin = 1.0f / 256;  // between two such: the other one is certainly later
MILLRACE_BOTH float race_key(uint32_t high, uint32_t low, float scaled) {
  float u, rest;  // rest: 1 - u
  if (high - 0x10000u < 0xFFFE0000u) {
    u = (static_cast<float>(high) + 0.5f) * 0x1p-32f;
    rest = (static_cast<float>(~high) + 0.5f) * 0x1p-32f;
  } else {
    const uint64_t number = (static_cast<uint64_t>(high) << 32 | low) >> 11;
    u = static_cast<float>(number) * 0x1p-53f;
    rest = static_cast<float>((uint64_t{1} << 53) - number) * 0x1p-53f;
  }
  const float small = u * (1.0f + u * (0.5f + u * 0.33333334f));
  const float exponential = u < 0.015625f ? small : rough_log2(rest) * -0.69314718f;
  return rough_log2(exponential) - scaled;
}

// False: such a key is above the bar, with a margin between them. Much quicker, from high * 2^-32 <= u <= -log(1 - u).
MILLRACE_BOTH bool race_may_reach(float bar, uint32_t high, float scaled) {
  return static_cast<float>(high) <= rough_exp2(scaled + (bar + (32 + kRaceMargin)));
}

}  // namespace millrace

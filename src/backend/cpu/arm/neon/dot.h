// What the products of quantised weights share where SDOT by element multiplies: a vector of weights is four inputs of
// four outputs (planes.h), four inputs of a row are an element of a vector of its integers, and a sum is four outputs
// of one row. Rows come in tiles of four, outputs in panels of eight (two quads). Integer sums are exact, and where
// they turn into float32 the arithmetic is the same as with matrix products (i8mm), so both give the same bits.
#pragma once

#include <utility>

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int kQuads = kPanel / 4;

// Sums of integers that start from these bits are, read as float32, this number plus the sum (below 2^22 either way).
constexpr float kFloatStart = 12582912.0f;  // 1.5 x 2^23
constexpr int32_t kFloatStartBits = 0x4b400000;

// f(0), f(1), ... with numbers that are constants.
template <class F, int... numbers>
[[gnu::always_inline]] inline void each_of(F&& f, std::integer_sequence<int, numbers...>) {
  (f(std::integral_constant<int, numbers>()), ...);
}
template <int count, class F>
[[gnu::always_inline]] inline void each(F&& f) {
  each_of(f, std::make_integer_sequence<int, count>());
}

// How often at most the body of a loop over a group of 256 inputs is written out: always, so that places and branches
// are constants. Where sanitizers check every address it stays a loop, for a function of hundreds of checks takes clang
// many seconds.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define MILLRACE_CHECKED_ADDRESSES
#endif
#endif
#ifdef MILLRACE_CHECKED_ADDRESSES
constexpr int kWrittenOut = 1;
#else
constexpr int kWrittenOut = 32;
#endif

}  // namespace
}  // namespace millrace::cpu

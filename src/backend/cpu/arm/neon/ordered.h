// Single instructions that stay in the order they are written in. A core that issues two vector instructions a cycle
// and sees little further than one group of weights is quick only if products, loads and float arithmetic come in the
// right order; compilers put them into another and then run out of registers. Registers remain their business.
#pragma once

#include <arm_neon.h>

#include <cstddef>

namespace millrace::cpu {
namespace {

// 16 bytes, as any kind of vector.
template <class Vector>
[[gnu::always_inline]] inline Vector ordered_load(const std::byte* at) {
  Vector value;
  asm volatile("ldr %q0, %1" : "=w"(value) : "m"(*reinterpret_cast<const int8x16_t*>(at)));
  return value;
}

// sum += weights x inputs [4 lane, 4 lane + 4) of a row's sixteen.
template <int lane>
[[gnu::always_inline]] inline int32x4_t ordered_dot(int32x4_t sum, int8x16_t weights, int8x16_t row) {
  asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(weights), "w"(row), "i"(lane));
  return sum;
}

[[gnu::always_inline]] inline int8x16_t ordered_and(int8x16_t a, int8x16_t b) {
  int8x16_t both;
  asm volatile("and %0.16b, %1.16b, %2.16b" : "=w"(both) : "w"(a), "w"(b));
  return both;
}

// The bits of bytes `count` places up; with `below`, that number of its lowest bits stays.
template <int count>
[[gnu::always_inline]] inline int8x16_t ordered_up(int8x16_t a) {
  int8x16_t up;
  asm volatile("shl %0.16b, %1.16b, %2" : "=w"(up) : "w"(a), "i"(count));
  return up;
}
template <int count>
[[gnu::always_inline]] inline int8x16_t ordered_up(int8x16_t a, int8x16_t below) {
  asm volatile("sli %0.16b, %1.16b, %2" : "+w"(below) : "w"(a), "i"(count));
  return below;
}

// The same the other way, without signs: with `above`, that number of its uppermost bits stays.
template <int count>
[[gnu::always_inline]] inline int8x16_t ordered_down(int8x16_t a) {
  int8x16_t down;
  asm volatile("ushr %0.16b, %1.16b, %2" : "=w"(down) : "w"(a), "i"(count));
  return down;
}
template <int count>
[[gnu::always_inline]] inline int8x16_t ordered_down(int8x16_t a, int8x16_t above) {
  asm volatile("sri %0.16b, %1.16b, %2" : "+w"(above) : "w"(a), "i"(count));
  return above;
}

// Bytes of `table`, by their numbers; zeros where there is none.
[[gnu::always_inline]] inline int32x4_t ordered_bytes(int8x16_t table, int8x16_t numbers) {
  int32x4_t out;
  asm volatile("tbl %0.16b, {%1.16b}, %2.16b" : "=w"(out) : "w"(table), "w"(numbers));
  return out;
}

// The first or the last half of a vector's integers, twice as wide.
template <int half>
[[gnu::always_inline]] inline int16x8_t ordered_wide(int8x16_t a) {
  int16x8_t wide;
  if constexpr (half == 0) asm volatile("sxtl %0.8h, %1.8b" : "=w"(wide) : "w"(a));
  if constexpr (half == 1) asm volatile("sxtl2 %0.8h, %1.16b" : "=w"(wide) : "w"(a));
  return wide;
}
template <int half>
[[gnu::always_inline]] inline int32x4_t ordered_wide(int16x8_t a) {
  int32x4_t wide;
  if constexpr (half == 0) asm volatile("sxtl %0.4s, %1.4h" : "=w"(wide) : "w"(a));
  if constexpr (half == 1) asm volatile("sxtl2 %0.4s, %1.8h" : "=w"(wide) : "w"(a));
  return wide;
}

[[gnu::always_inline]] inline int32x4_t ordered_less(int32x4_t a, int32x4_t b) {
  int32x4_t less;
  asm volatile("sub %0.4s, %1.4s, %2.4s" : "=w"(less) : "w"(a), "w"(b));
  return less;
}

[[gnu::always_inline]] inline float32x4_t ordered_less(float32x4_t a, float32x4_t b) {
  float32x4_t less;
  asm volatile("fsub %0.4s, %1.4s, %2.4s" : "=w"(less) : "w"(a), "w"(b));
  return less;
}

template <int lane>
[[gnu::always_inline]] inline float32x4_t ordered_multiply(float32x4_t a, float32x4_t b) {
  float32x4_t product;
  asm volatile("fmul %0.4s, %1.4s, %2.s[%3]" : "=w"(product) : "w"(a), "w"(b), "i"(lane));
  return product;
}

[[gnu::always_inline]] inline float32x4_t ordered_add(float32x4_t sum, float32x4_t a, float32x4_t b) {
  asm volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
}

template <int lane>
[[gnu::always_inline]] inline float32x4_t ordered_add(float32x4_t sum, float32x4_t a, float32x4_t b) {
  asm volatile("fmla %0.4s, %1.4s, %2.s[%3]" : "+w"(sum) : "w"(a), "w"(b), "i"(lane));
  return sum;
}

}  // namespace
}  // namespace millrace::cpu

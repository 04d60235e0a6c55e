// One row of Ops::linear_delta, for the folders of instruction sets: each compiles its own copy with its own flags, and
// the compiler makes vectors of the loops. Input i of a sum goes to lane i % 16, lanes are summed by halving; outputs
// are summed by ascending rank. So the order follows from the shapes alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "backend/delta.h"
#include "tensor/half.h"

namespace millrace::cpu {
namespace {

inline float delta_add(float a, float b, float sum) {
#if defined(__ARM_NEON) || defined(__FMA__)
  return std::fma(a, b, sum);
#else
  return a * b + sum;
#endif
}

// Numbers as they lie, one or (on some machines) several at a time.
struct DeltaF32 {
  using Stored = float;
  static float wide(float number) { return number; }
};
struct DeltaBf16 {
  using Stored = uint16_t;
  static float wide(uint16_t number) { return bf16_to_f32(number); }
};
struct DeltaF16 {
  using Stored = uint16_t;
  static float wide(uint16_t number) { return f16_to_f32(number); }
};

// Calls `work` with how the delta's numbers lie.
template <class Work>
inline void with_numbers(const Delta& delta, Work work) {
  switch (delta.numbers) {
    case DeltaNumbers::f32:
      return work(DeltaF32());
    case DeltaNumbers::bf16:
      return work(DeltaBf16());
    case DeltaNumbers::f16:
      return work(DeltaF16());
  }
}
template <class Lies>
inline const typename Lies::Stored* numbers_at(const std::byte* from) {
  return reinterpret_cast<const typename Lies::Stored*>(from);
}

// The products of one row with some rows of `down`.
template <class Lies, int kRows>
inline void delta_dots(const float* in, const typename Lies::Stored* down, int64_t ins, float* out) {
  constexpr int kLanes = 16;
  float sums[kRows][kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= ins; i += kLanes) {
    for (int row = 0; row < kRows; ++row) {
      const typename Lies::Stored* numbers = down + row * ins + i;
      for (int lane = 0; lane < kLanes; ++lane)
        sums[row][lane] = delta_add(in[i + lane], Lies::wide(numbers[lane]), sums[row][lane]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; i + lane < ins; ++lane)
      sums[row][lane] = delta_add(in[i + lane], Lies::wide(down[row * ins + i + lane]), sums[row][lane]);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sums[row][lane] += sums[row][lane + width];
    out[row] = sums[row][0];
  }
}

inline void delta_down(const Delta& delta, const float* in, int64_t ins, float* low) {
  with_numbers(delta, [&]<class Lies>(Lies) {
    const auto* down = numbers_at<Lies>(delta.down);
    int32_t j = 0;
    for (; j + 4 <= delta.rank; j += 4) delta_dots<Lies, 4>(in, down + j * ins, ins, low + j);
    for (; j < delta.rank; ++j) delta_dots<Lies, 1>(in, down + j * ins, ins, low + j);
  });
}

// Some outputs at a time, four ranks of them in one pass: what is read lies in long stretches, and sums stay near.
template <class Lies>
inline void delta_outputs_of(const Delta& delta, const float* low, int64_t outs, float strength, float* out) {
  constexpr int64_t kOutputs = 512;
  const auto* up = numbers_at<Lies>(delta.up);
  float sums[kOutputs];
  for (int64_t o = 0; o < outs; o += kOutputs) {
    const int64_t count = std::min(kOutputs, outs - o);
    std::fill_n(sums, count, 0.0f);
    int32_t j = 0;
    for (; j + 4 <= delta.rank; j += 4) {
      const typename Lies::Stored *a = up + j * outs + o, *b = a + outs, *c = b + outs, *d = c + outs;
      const float x = low[j], y = low[j + 1], z = low[j + 2], w = low[j + 3];
      for (int64_t i = 0; i < count; ++i)
        sums[i] = delta_add(
            w, Lies::wide(d[i]),
            delta_add(z, Lies::wide(c[i]), delta_add(y, Lies::wide(b[i]), delta_add(x, Lies::wide(a[i]), sums[i]))));
    }
    for (; j < delta.rank; ++j) {
      const typename Lies::Stored* a = up + j * outs + o;
      for (int64_t i = 0; i < count; ++i) sums[i] = delta_add(low[j], Lies::wide(a[i]), sums[i]);
    }
    for (int64_t i = 0; i < count; ++i) out[o + i] += strength * (delta.scale * sums[i]);
  }
}

inline void delta_up(const Delta& delta, const float* low, int64_t outs, float strength, float* out) {
  with_numbers(delta, [&]<class Lies>(Lies) { delta_outputs_of<Lies>(delta, low, outs, strength, out); });
}

}  // namespace
}  // namespace millrace::cpu

// One row of Ops::linear_delta, for the folders of instruction sets: each compiles its own copy with its own flags, and
// the compiler makes vectors of the loops. Input i of a sum goes to lane i % 16, lanes are summed by halving; outputs
// are summed by ascending rank. So the order follows from the shapes alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace millrace::cpu {
namespace {

inline float delta_add(float a, float b, float sum) {
#if defined(__ARM_NEON) || defined(__FMA__)
  return std::fma(a, b, sum);
#else
  return a * b + sum;
#endif
}

// The products of one row with some rows of `down`.
template <int kRows>
inline void delta_dots(const float* in, const float* down, int64_t ins, float* out) {
  constexpr int kLanes = 16;
  float sums[kRows][kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= ins; i += kLanes) {
    for (int row = 0; row < kRows; ++row) {
      const float* numbers = down + row * ins + i;
      for (int lane = 0; lane < kLanes; ++lane)
        sums[row][lane] = delta_add(in[i + lane], numbers[lane], sums[row][lane]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; i + lane < ins; ++lane)
      sums[row][lane] = delta_add(in[i + lane], down[row * ins + i + lane], sums[row][lane]);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sums[row][lane] += sums[row][lane + width];
    out[row] = sums[row][0];
  }
}

inline void delta_down(const float* in, const float* down, int64_t ins, int32_t rank, float* narrow) {
  int32_t j = 0;
  for (; j + 4 <= rank; j += 4) delta_dots<4>(in, down + j * ins, ins, narrow + j);
  for (; j < rank; ++j) delta_dots<1>(in, down + j * ins, ins, narrow + j);
}

// Some outputs at a time, four ranks of them in one pass: what is read lies in long stretches, and sums stay near.
inline void delta_up(const float* narrow, const float* up, int32_t rank, int64_t outs, float scale, float strength,
                     float* out) {
  constexpr int64_t kOutputs = 512;
  float sums[kOutputs];
  for (int64_t o = 0; o < outs; o += kOutputs) {
    const int64_t count = std::min(kOutputs, outs - o);
    std::fill_n(sums, count, 0.0f);
    int32_t j = 0;
    for (; j + 4 <= rank; j += 4) {
      const float *a = up + j * outs + o, *b = a + outs, *c = b + outs, *d = c + outs;
      const float x = narrow[j], y = narrow[j + 1], z = narrow[j + 2], w = narrow[j + 3];
      for (int64_t i = 0; i < count; ++i)
        sums[i] = delta_add(w, d[i], delta_add(z, c[i], delta_add(y, b[i], delta_add(x, a[i], sums[i]))));
    }
    for (; j < rank; ++j) {
      const float* a = up + j * outs + o;
      for (int64_t i = 0; i < count; ++i) sums[i] = delta_add(narrow[j], a[i], sums[i]);
    }
    for (int64_t i = 0; i < count; ++i) out[o + i] += strength * (scale * sums[i]);
  }
}

}  // namespace
}  // namespace millrace::cpu

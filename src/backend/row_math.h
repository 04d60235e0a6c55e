// Arithmetic on one row, as the primitives of streams mean it (Ops::copy_heads, scale, mix, match_rms, sparsify), on
// queries of kept positions (Attention::turn), and on the rows of a text (Ops::pool): shared by the backends whose rows
// the host reads. Pure; any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/ops.h"
#include "tensor/half.h"

namespace millrace {

// The first numbers of one of a tensor's heads.
inline Tensor head_of(Tensor all, int64_t head, int64_t heads, int64_t width) {
  return columns(all, head * (all.cols / heads), width);
}

inline void copy_row_heads(int64_t heads, int64_t width, const float* in, int64_t in_apart, float* out,
                           int64_t out_apart) {
  for (int64_t head = 0; head < heads; ++head)
    std::memcpy(out + head * out_apart, in + head * in_apart, static_cast<size_t>(width) * sizeof(float));
}

// Cosines and sines of a turn by so many positions (back, if fewer than none), rope.dims / 2 of each.
inline void turn_angles(const Rope& rope, int64_t positions, double* cosines, double* sines) {
  for (int64_t pair = 0; pair < rope.dims / 2; ++pair) {
    const double angle = static_cast<double>(positions) * rope.frequencies[pair];
    cosines[pair] = std::cos(angle), sines[pair] = std::sin(angle);
  }
}

// A head's numbers turned by them, as Ops::rope turns: what had its magnitude keeps it.
inline void turn_head(const Rope& rope, const double* cosines, const double* sines, int64_t width, const float* in,
                      float* out) {
  std::memcpy(out, in, static_cast<size_t>(width) * sizeof(float));
  const int64_t half = rope.dims / 2;
  for (int64_t pair = 0; pair < half; ++pair) {
    const int64_t x = rope.neighbours ? 2 * pair : pair, y = rope.neighbours ? x + 1 : x + half;
    const double a = in[x], b = in[y], c = cosines[pair], s = sines[pair];
    out[x] = static_cast<float>(a * c - b * s);
    out[y] = static_cast<float>(a * s + b * c);
  }
}

inline void scale_row(const float* factors, int64_t count, float* row, int64_t cols) {
  for (int64_t i = 0; i < cols; ++i) row[i] *= factors[count == 1 ? 0 : i];
}

// Part j of `out` takes in the parts of `in` in order, each times its factor plus `more`.
inline void mix_row(const float* factors, float more, int64_t ins, int64_t outs, int64_t width, const float* in,
                    float* out) {
  for (int64_t j = 0; j < outs; ++j) {
    for (int64_t i = 0; i < ins; ++i) {
      const float factor = factors[j * ins + i] + more;
      for (int64_t c = 0; c < width; ++c) out[j * width + c] += factor * in[i * width + c];
    }
  }
}

inline double mean_square(const float* row, int64_t cols) {
  double sum = 0;
  for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(row[i]) * row[i];
  return sum / static_cast<double>(cols);
}

// Below this a mean square counts as this much.
inline constexpr double kLeastMeanSquare = 1e-5;

inline void match_row(const float* like, int64_t like_cols, float* row, int64_t cols) {
  const double now = std::max(mean_square(row, cols), kLeastMeanSquare);
  const auto factor = static_cast<float>(std::sqrt(mean_square(like, like_cols) / now));
  for (int64_t i = 0; i < cols; ++i) row[i] *= factor;
}

inline void sparsify_row(float deviations, float* row, int64_t cols) {
  double mean = 0, square = 0;
  for (int64_t i = 0; i < cols; ++i) mean += row[i];
  mean /= static_cast<double>(cols);
  for (int64_t i = 0; i < cols; ++i) square += (row[i] - mean) * (row[i] - mean);
  const double deviation = std::sqrt(square / static_cast<double>(cols));
  const auto least = static_cast<float>(mean + deviations * deviation);
  for (int64_t i = 0; i < cols; ++i) row[i] = std::max(row[i] - least, 0.0f);
}

// Rows [first, end) as one, summed in ascending order.
inline void pool_rows(Pooling pooling, Tensor in, int64_t first, int64_t end, float* out) {
  if (pooling == Pooling::first || pooling == Pooling::last) {
    const int64_t row = pooling == Pooling::first ? first : end - 1;
    std::memcpy(out, in.row(row), static_cast<size_t>(in.cols) * sizeof(float));
    return;
  }
  const auto rows = static_cast<float>(end - first);
  const float divisor = pooling == Pooling::mean            ? rows
                        : pooling == Pooling::mean_root     ? std::sqrt(rows)
                        : pooling == Pooling::mean_weighted ? rows * (rows + 1) / 2
                                                            : 1;
  std::memcpy(out, in.row(first), static_cast<size_t>(in.cols) * sizeof(float));
  for (int64_t r = first + 1; r < end; ++r) {
    const float weight = pooling == Pooling::mean_weighted ? static_cast<float>(r - first + 1) : 1;
    for (int64_t c = 0; c < in.cols; ++c)
      out[c] = pooling == Pooling::most ? std::max(out[c], in.row(r)[c]) : out[c] + weight * in.row(r)[c];
  }
  for (int64_t c = 0; c < in.cols; ++c) out[c] /= divisor;
}

inline float delta_number(DeltaNumbers numbers, const std::byte* from, int64_t at) {
  if (numbers == DeltaNumbers::f32) return reinterpret_cast<const float*>(from)[at];
  const uint16_t half = reinterpret_cast<const uint16_t*>(from)[at];
  return numbers == DeltaNumbers::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

// One row of Ops::linear_delta. Sums in double, inputs and ranks ascending. `id`: a row of a table, or negative.
inline void add_delta_row(const Delta& delta, float strength, int64_t id, const float* in, int64_t ins, float* out,
                          int64_t outs) {
  float low[kMostAdapterRank];
  const auto down = [&](int64_t at) { return delta_number(delta.numbers, delta.down, at); };
  const auto up = [&](int64_t at) { return delta_number(delta.numbers, delta.up, at); };
  for (int32_t j = 0; j < delta.rank; ++j) {
    if (id >= 0) {
      low[j] = down(id * delta.rank + j);
      continue;
    }
    double sum = 0;
    for (int64_t i = 0; i < ins; ++i) sum += static_cast<double>(down(j * ins + i)) * in[i];
    low[j] = static_cast<float>(sum);
  }
  for (int64_t o = 0; o < outs; ++o) {
    double sum = 0;
    for (int32_t j = 0; j < delta.rank; ++j) sum += static_cast<double>(up(j * outs + o)) * low[j];
    out[o] += strength * (delta.scale * static_cast<float>(sum));
  }
}

}  // namespace millrace

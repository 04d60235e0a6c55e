// What tests of shrinking need: small models out of the goldens, texts of tokens for them, and plain double references.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "eval/perplexity.h"
#include "model/rig.h"
#include "shrink/student.h"

namespace millrace::test {

inline double draw(uint64_t seed, uint32_t a, uint32_t b) {
  return uniform({.seed = seed, .choice = 0, .position = a, .draw = b});
}

inline std::vector<ScoredText> token_texts(size_t count, size_t length, int32_t vocab, uint64_t seed = 5) {
  std::vector<ScoredText> texts(count);
  for (size_t t = 0; t < count; ++t) {
    for (size_t i = 0; i < length; ++i)
      texts[t].tokens.push_back(static_cast<Token>(draw(seed, static_cast<uint32_t>(t), static_cast<uint32_t>(i)) *
                                                   static_cast<double>(vocab)));
  }
  return texts;
}

// Columns that have something in common: a few hidden numbers mixed, and noise.
inline std::vector<float> related_rows(int64_t rows, int64_t cols, uint64_t seed) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      double sum = 0.3 * (draw(seed, static_cast<uint32_t>(r), static_cast<uint32_t>(c)) - 0.5);
      for (uint32_t k = 0; k < 6; ++k)
        sum +=
            (draw(seed + 1, static_cast<uint32_t>(r), k) - 0.5) * (draw(seed + 2, static_cast<uint32_t>(c), k) - 0.5);
      out[static_cast<size_t>(r * cols + c)] = static_cast<float>(sum * (1 + static_cast<double>(c % 7)));
    }
  }
  return out;
}

inline std::vector<double> products_of(const std::vector<float>& x, int64_t rows, int64_t cols) {
  const auto n = static_cast<size_t>(cols);
  std::vector<double> out(n * n);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j)
        out[i * n + j] += static_cast<double>(x[r * n + i]) * static_cast<double>(x[r * n + j]);
    }
  }
  return out;
}

// The inverse by elimination, pivots in order.
inline std::vector<double> inverse_of(std::vector<double> a, int64_t size) {
  const auto n = static_cast<size_t>(size);
  std::vector<double> out(n * n);
  for (size_t i = 0; i < n; ++i) out[i * n + i] = 1;
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p * n + p];
    for (size_t j = 0; j < n; ++j) a[p * n + j] /= pivot, out[p * n + j] /= pivot;
    for (size_t i = 0; i < n; ++i) {
      if (i == p) continue;
      const double factor = a[i * n + p];
      for (size_t j = 0; j < n; ++j) a[i * n + j] -= factor * a[p * n + j], out[i * n + j] -= factor * out[p * n + j];
    }
  }
  return out;
}

}  // namespace millrace::test

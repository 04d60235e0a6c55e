#include "shrink/solve.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kBand = 64;  // columns factored together

using Two = double __attribute__((vector_size(16)));

// Eight sums side by side, added in a fixed order at the end.
double dot(const double* a, const double* b, int64_t count) {
  Two sums[4] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 4; ++k) {
      Two x, y;
      std::memcpy(&x, a + i + k * 2, sizeof(x));
      std::memcpy(&y, b + i + k * 2, sizeof(y));
      sums[k] += x * y;
    }
  }
  const Two all = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  double rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return (all[0] + all[1]) + rest;
}

}  // namespace

bool cholesky(Team& team, double* a, int64_t n) {
  for (int64_t first = 0; first < n; first += kBand) {
    const int64_t end = std::min(n, first + kBand);
    // What the columns before this band take off it.
    team.each(n - first, [&](int64_t task, int) {
      double* row = a + (first + task) * n;
      for (int64_t j = first; j < std::min(end, first + task + 1); ++j) row[j] -= dot(row, a + j * n, first);
    });
    for (int64_t j = first; j < end; ++j) {
      double* row = a + j * n;
      for (int64_t k = first; k < j; ++k)
        row[k] = (row[k] - dot(row + first, a + k * n + first, k - first)) / a[k * n + k];
      const double left = row[j] - dot(row + first, row + first, j - first);
      if (!(left > 0) || !std::isfinite(left)) return false;
      row[j] = std::sqrt(left);
    }
    team.each(n - end, [&](int64_t task, int) {
      double* row = a + (end + task) * n;
      for (int64_t k = first; k < end; ++k)
        row[k] = (row[k] - dot(row + first, a + k * n + first, k - first)) / a[k * n + k];
    });
  }
  return true;
}

void invert_lower(Team& team, const double* lower, int64_t n, double* out) {
  // A column of the inverse is contiguous while it is made.
  team.each(n, [&](int64_t column, int) {
    std::vector<double> x(static_cast<size_t>(n - column));
    x[0] = 1 / lower[column * n + column];
    for (int64_t i = column + 1; i < n; ++i)
      x[static_cast<size_t>(i - column)] = -dot(lower + i * n + column, x.data(), i - column) / lower[i * n + i];
    for (int64_t i = 0; i < n; ++i) out[i * n + column] = i < column ? 0 : x[static_cast<size_t>(i - column)];
  });
}

void solve_rows(Team& team, const double* lower, int64_t n, double* rows, int64_t count) {
  // Columns of L as rows, for the way back.
  std::vector<double> turned(static_cast<size_t>(n * n));
  team.each(n, [&](int64_t i, int) {
    for (int64_t k = i; k < n; ++k) turned[static_cast<size_t>(i * n + k)] = lower[k * n + i];
  });
  team.each(count, [&](int64_t task, int) {
    double* x = rows + task * n;
    for (int64_t i = 0; i < n; ++i) x[i] = (x[i] - dot(lower + i * n, x, i)) / lower[i * n + i];
    for (int64_t i = n; i-- > 0;)
      x[i] = (x[i] - dot(&turned[static_cast<size_t>(i * n + i)] + 1, x + i + 1, n - i - 1)) / lower[i * n + i];
  });
}

}  // namespace millrace

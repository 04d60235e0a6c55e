#include "shrink/solve.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "shrink/tiles.h"

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
  constexpr int64_t kAcross = kTileCols<double>;
  std::vector<double> turned;  // rows of this band as columns: [columns before it, kBand]
  for (int64_t first = 0; first < n; first += kBand) {
    const int64_t end = std::min(n, first + kBand);
    turned.assign(static_cast<size_t>(first * kBand), 0);
    team.each(end - first, [&](int64_t j, int) {
      for (int64_t k = 0; k < first; ++k) turned[static_cast<size_t>(k * kBand + j)] = a[(first + j) * n + k];
    });
    // What the columns before this band take off it. The first has none.
    const int64_t tasks = first == 0 ? 0 : (n - first + kTileRows - 1) / kTileRows;
    team.each(tasks, [&](int64_t task, int) {
      const int64_t i = first + task * kTileRows, tall = std::min(kTileRows, n - i);
      double tile[kTileRows * kAcross];
      for (int64_t j = first; j < std::min(end, i + tall); j += kAcross) {
        std::fill_n(tile, kTileRows * kAcross, 0.0);
        add_tile<double>({a + i * n, n, 1, turned.data() + (j - first), kBand, first}, tall, kAcross, tile);
        for (int64_t t = 0; t < tall; ++t) {
          for (int64_t w = 0; w < kAcross && j + w <= std::min(end - 1, i + t); ++w)
            a[(i + t) * n + j + w] -= tile[t * kAcross + w];
        }
      }
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
  constexpr int64_t kAcross = kTileCols<double>;
  std::fill_n(out, n * n, 0.0);
  for (int64_t first = 0; first < n; first += kBand) {
    const int64_t end = std::min(n, first + kBand);
    // Columns of the band's rows: what the rows above give, then this band's own triangle.
    team.each((end + kAcross - 1) / kAcross, [&](int64_t task, int) {
      const int64_t j = task * kAcross, wide = std::min(kAcross, end - j);
      double tile[kTileRows * kAcross];
      for (int64_t i = first; i < end && j < first; i += kTileRows) {
        const int64_t tall = std::min(kTileRows, end - i);
        std::fill_n(tile, kTileRows * kAcross, 0.0);
        add_tile<double>({lower + i * n + j, n, 1, out + j * n + j, n, first - j}, tall, wide, tile);
        for (int64_t t = 0; t < tall; ++t) {
          for (int64_t w = 0; w < wide; ++w) out[(i + t) * n + j + w] = -tile[t * kAcross + w];
        }
      }
      for (int64_t i = first; i < end; ++i) {
        double* const row = out + i * n;
        for (int64_t w = 0; w < wide; ++w) row[j + w] += i == j + w ? 1.0 : 0.0;
        for (int64_t k = first; k < i; ++k) {
          for (int64_t w = 0; w < wide; ++w) row[j + w] -= lower[i * n + k] * out[k * n + j + w];
        }
        for (int64_t w = 0; w < wide; ++w) row[j + w] = j + w > i ? 0.0 : row[j + w] / lower[i * n + i];
      }
    });
  }
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

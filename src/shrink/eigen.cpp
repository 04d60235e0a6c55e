#include "shrink/eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace {
namespace {

double dot(const double* a, const double* b, int64_t count) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int64_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  }
  double rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + rest;
}

// The matrix as Q T Q^T: T's diagonals, and the reflections I - v v^T that Q is a product of.
struct Tridiagonal {
  std::vector<double> diagonal, beside;      // [n], [n - 1]
  std::vector<std::vector<double>> reflect;  // of step k: v of length n - k - 1, scaled so that |v|^2 = 2, or empty
};

// v with (I - v v^T) x = (alpha, 0, ...); empty if x is that already.
std::vector<double> reflection(std::vector<double> x, double& alpha) {
  const double length = std::sqrt(dot(x.data(), x.data(), static_cast<int64_t>(x.size())));
  alpha = x[0];
  if (x.size() < 2 || length == 0 || length == std::abs(x[0])) return {};
  alpha = x[0] > 0 ? -length : length;
  x[0] -= alpha;
  const double scale = std::sqrt(2 / dot(x.data(), x.data(), static_cast<int64_t>(x.size())));
  for (double& each : x) each *= scale;
  return x;
}

Tridiagonal reduce(Team& team, std::vector<double>& a, int64_t n) {
  Tridiagonal out;
  std::vector<double> p(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    out.diagonal.push_back(a[static_cast<size_t>(k * n + k)]);
    if (k + 1 == n) break;
    const int64_t rest = n - k - 1;
    const double* row = &a[static_cast<size_t>(k * n + k + 1)];  // symmetric: the column below the diagonal too
    double alpha = 0;
    std::vector<double> v = reflection({row, row + rest}, alpha);
    out.beside.push_back(alpha);
    if (!v.empty()) {
      auto inner = [&](int64_t i) { return &a[static_cast<size_t>((k + 1 + i) * n + k + 1)]; };
      team.each(rest, [&](int64_t i, int) { p[static_cast<size_t>(i)] = dot(inner(i), v.data(), rest); });
      const double half = dot(p.data(), v.data(), rest) / 2;
      for (int64_t i = 0; i < rest; ++i) p[static_cast<size_t>(i)] -= half * v[static_cast<size_t>(i)];
      team.each(rest, [&](int64_t i, int) {
        double* to = inner(i);
        const double vi = v[static_cast<size_t>(i)], pi = p[static_cast<size_t>(i)];
        for (int64_t j = 0; j < rest; ++j) to[j] -= vi * p[static_cast<size_t>(j)] + pi * v[static_cast<size_t>(j)];
      });
    }
    out.reflect.push_back(std::move(v));
  }
  return out;
}

struct Turn {
  int64_t row;
  double c, s;
};

// One sweep over the unreduced part [lo, hi]: a shift near its last eigenvalue, and the bulge that follows chased down.
void sweep(Tridiagonal& t, int64_t lo, int64_t hi, std::vector<Turn>& turns) {
  auto d = [&](int64_t i) -> double& { return t.diagonal[static_cast<size_t>(i)]; };
  auto e = [&](int64_t i) -> double& { return t.beside[static_cast<size_t>(i)]; };
  const double half = (d(hi - 1) - d(hi)) / 2, off = e(hi - 1);
  const double root = std::hypot(half, off);
  const double shift = d(hi) - off * off / (half + (half < 0 ? -root : root));
  double x = d(lo) - shift, z = e(lo);
  for (int64_t k = lo; k < hi; ++k) {
    const double r = std::hypot(x, z);
    const double c = r > 0 ? x / r : 1, s = r > 0 ? z / r : 0;
    if (k > lo) e(k - 1) = r;
    const double a = d(k), b = e(k), g = d(k + 1);
    d(k) = c * c * a + 2 * c * s * b + s * s * g;
    d(k + 1) = s * s * a - 2 * c * s * b + c * c * g;
    e(k) = c * s * (g - a) + (c * c - s * s) * b;
    x = e(k);
    if (k + 1 < hi) {
      z = s * e(k + 1);
      e(k + 1) *= c;
    }
    turns.push_back({k, c, s});
  }
}

// Turns rows of the eigenvectors, strips of columns apart.
void apply(Team& team, const std::vector<Turn>& turns, std::vector<double>& rows, int64_t n) {
  constexpr int64_t kStrip = 64;
  team.each((n + kStrip - 1) / kStrip, [&](int64_t strip, int) {
    const int64_t from = strip * kStrip, to = std::min(n, from + kStrip);
    for (const Turn& turn : turns) {
      double* one = &rows[static_cast<size_t>(turn.row * n)];
      double* two = one + n;
      for (int64_t j = from; j < to; ++j) {
        const double a = one[j], b = two[j];
        one[j] = turn.c * a + turn.s * b;
        two[j] = turn.c * b - turn.s * a;
      }
    }
  });
}

Result<void> diagonalise(Team& team, Tridiagonal& t, std::vector<double>& rows, int64_t n) {
  const double tiny = std::numeric_limits<double>::epsilon();
  std::vector<Turn> turns;
  int64_t hi = n - 1;
  for (int64_t rounds = 0; hi > 0; ++rounds) {
    if (rounds > 100 * n) return error(Code::corrupt, "eigenvectors of {} numbers were not found", n);
    auto negligible = [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      return std::abs(t.beside[at]) <= tiny * (std::abs(t.diagonal[at]) + std::abs(t.diagonal[at + 1])) + 1e-300;
    };
    if (negligible(hi - 1)) {
      t.beside[static_cast<size_t>(--hi)] = 0;
      continue;
    }
    int64_t lo = hi - 1;
    while (lo > 0 && !negligible(lo - 1)) --lo;
    sweep(t, lo, hi, turns);
    if (static_cast<int64_t>(turns.size()) > 8 * n) apply(team, turns, rows, n), turns.clear();
  }
  apply(team, turns, rows, n);
  return {};
}

}  // namespace

Result<Eigen> eigen(Team& team, std::vector<double> matrix, int64_t n) {
  for (double each : matrix) {
    if (!std::isfinite(each)) return error(Code::corrupt, "a matrix of {} by {} has numbers that are not finite", n, n);
  }
  Tridiagonal t = reduce(team, matrix, n);
  std::vector<double>& rows = matrix;  // no longer needed
  std::fill(rows.begin(), rows.end(), 0.0);
  for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i * n + i)] = 1;
  TRY_VOID(diagonalise(team, t, rows, n));
  team.each(n, [&](int64_t i, int) {
    double* z = &rows[static_cast<size_t>(i * n)];
    for (int64_t k = static_cast<int64_t>(t.reflect.size()); k-- > 0;) {
      const std::vector<double>& v = t.reflect[static_cast<size_t>(k)];
      if (v.empty()) continue;
      const auto size = static_cast<int64_t>(v.size());
      const double along = dot(v.data(), z + k + 1, size);
      for (int64_t j = 0; j < size; ++j) z[k + 1 + j] -= along * v[static_cast<size_t>(j)];
    }
  });
  std::vector<size_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return t.diagonal[a] > t.diagonal[b]; });
  Eigen out;
  for (size_t i : order) {
    out.values.push_back(t.diagonal[i]);
    out.vectors.insert(out.vectors.end(), rows.begin() + static_cast<int64_t>(i) * n,
                       rows.begin() + static_cast<int64_t>(i + 1) * n);
  }
  return out;
}

}  // namespace millrace

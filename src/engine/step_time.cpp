#include "engine/step_time.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kMemory = 0.995;  // a step counts half after about 140 more
constexpr double kRidge = 1e-6;    // of a term's own size: decides between terms that never vary apart

// Gaussian elimination with pivoting over the chosen terms; the others are zero.
template <size_t N>
std::array<double, N> solve_terms(std::array<std::array<double, N>, N> matrix, std::array<double, N> right,
                                  const std::array<bool, N>& chosen) {
  for (size_t i = 0; i < N; ++i) {
    if (!chosen[i]) {
      for (size_t j = 0; j < N; ++j) matrix[i][j] = matrix[j][i] = 0;
      matrix[i][i] = 1;
      right[i] = 0;
    }
  }
  for (size_t column = 0; column < N; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < N; ++row)
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    std::swap(matrix[pivot], matrix[column]);
    std::swap(right[pivot], right[column]);
    if (matrix[column][column] == 0) return {};
    for (size_t row = 0; row < N; ++row) {
      if (row == column) continue;
      double factor = matrix[row][column] / matrix[column][column];
      for (size_t j = column; j < N; ++j) matrix[row][j] -= factor * matrix[column][j];
      right[row] -= factor * right[column];
    }
  }
  for (size_t i = 0; i < N; ++i) right[i] /= matrix[i][i];
  return right;
}

}  // namespace

void StepTime::observe(const StepShape& shape, double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return;
  std::array<double, kTerms> terms = {1, static_cast<double>(shape.tokens), static_cast<double>(shape.context),
                                      static_cast<double>(shape.sequences)};
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) products_[i][j] = kMemory * products_[i][j] + terms[i] * terms[j];
    targets_[i] = kMemory * targets_[i] + terms[i] * seconds;
  }
  ++observations_;
  solve();
}

// A negative coefficient means the term explains nothing by itself: it is left out and the others are fitted again.
void StepTime::solve() {
  auto matrix = products_;
  for (size_t i = 0; i < kTerms; ++i) matrix[i][i] += kRidge * products_[i][i];
  std::array<bool, kTerms> chosen;
  for (size_t i = 0; i < kTerms; ++i) chosen[i] = products_[i][i] > 0;
  std::array<double, kTerms> found = {};
  for (int round = 0; round < kTerms; ++round) {
    found = solve_terms(matrix, targets_, chosen);
    size_t worst = kTerms;
    for (size_t i = 0; i < kTerms; ++i)
      if (found[i] < 0 &&
          (worst == kTerms || found[i] * std::sqrt(matrix[i][i]) < found[worst] * std::sqrt(matrix[worst][worst])))
        worst = i;
    if (worst == kTerms) break;
    chosen[worst] = false;
    found[worst] = 0;
  }
  for (double& value : found) value = std::max(value, 0.0);
  coefficients_ = {found[0], found[1], found[2], found[3]};
}

double StepTime::predict(const StepShape& shape) const {
  const Coefficients& c = coefficients_;
  return c.fixed + c.token * shape.tokens + c.context * static_cast<double>(shape.context) +
         c.sequence * shape.sequences;
}

}  // namespace millrace

// Linear algebra against elimination in double, and the same bits for any team.
#include "shrink/solve.h"

#include "shrink/rig.h"
#include "shrink/sums.h"
#include "shrink/tiles.h"

namespace millrace {
namespace {

std::vector<double> matrix(int64_t n) {
  std::vector<double> a = test::products_of(test::related_rows(3 * n, n, 9), 3 * n, n);
  for (int64_t i = 0; i < n; ++i) a[static_cast<size_t>(i * n + i)] += 0.5;
  return a;
}

TEST(Solve, FactorsAndInvertsAsEliminationDoes) {
  for (const int64_t n : {1, 7, 64, 130}) {
    Team one(1), three(3);
    const std::vector<double> a = matrix(n), wanted = test::inverse_of(a, n);
    std::vector<double> lower = a, same = a;
    ASSERT_TRUE(cholesky(one, lower.data(), n) && cholesky(three, same.data(), n));
    EXPECT_EQ(lower, same);
    std::vector<double> inverse(lower.size()), other(lower.size());
    invert_lower(one, lower.data(), n, inverse.data());
    invert_lower(three, lower.data(), n, other.data());
    EXPECT_EQ(inverse, other);
    const auto size = static_cast<size_t>(n);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        double sum = 0;  // (L^-T L^-1)_ij
        for (size_t k = 0; k < size; ++k) sum += inverse[k * size + i] * inverse[k * size + j];
        worst = std::max(worst, std::abs(sum - wanted[i * size + j]));
        largest = std::max(largest, std::abs(wanted[i * size + j]));
      }
    }
    EXPECT_LT(worst, 1e-9 * largest) << n;
  }
}

TEST(Solve, SolvesRows) {
  constexpr int64_t kCols = 70, kRows = 5;
  Team team(2);
  const std::vector<double> a = matrix(kCols);
  std::vector<double> lower = a, x(kCols * kRows), rows(kCols * kRows);
  ASSERT_TRUE(cholesky(team, lower.data(), kCols));
  for (size_t i = 0; i < x.size(); ++i) x[i] = test::draw(4, static_cast<uint32_t>(i), 0) - 0.5;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t j = 0; j < kCols; ++j) {
      for (size_t k = 0; k < kCols; ++k) rows[r * kCols + j] += x[r * kCols + k] * a[k * kCols + j];
    }
  }
  solve_rows(team, lower.data(), kCols, rows.data(), kRows);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(rows[i], x[i], 1e-8);
}

TEST(Solve, RefusesWhatIsNotPositiveDefinite) {
  Team team(1);
  std::vector<double> a = {1, 2, 2, 1};
  EXPECT_FALSE(cholesky(team, a.data(), 2));
  a = {std::nan(""), 0, 0, 1};
  EXPECT_FALSE(cholesky(team, a.data(), 2));
}

// Whatever registers there are: one product after another.
template <class T>
void expect_tiles() {
  constexpr int64_t kDepth = 37, kAcross = kTileCols<T>;
  std::vector<T> a(kTileRows * kDepth), b(kDepth * kAcross), sums(kTileRows * kAcross);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(test::draw(1, static_cast<uint32_t>(i), 0) - 0.5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>(test::draw(2, static_cast<uint32_t>(i), 0) - 0.5);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<T>(test::draw(3, static_cast<uint32_t>(i), 0));
  std::vector<T> wanted = sums;
  for (size_t i = 0; i < kTileRows; ++i) {
    for (size_t j = 0; j < kAcross; ++j) {
      for (size_t k = 0; k < kDepth; ++k) wanted[i * kAcross + j] += a[i * kDepth + k] * b[k * kAcross + j];
    }
  }
  std::vector<T> some = sums;
  const TileInput<T> in = {a.data(), kDepth, 1, b.data(), kAcross, kDepth};
  add_tile<T>(in, kTileRows, kAcross, sums.data());
  EXPECT_EQ(sums, wanted);
  add_tile<T>(in, 3, kAcross, some.data());
  for (size_t i = 0; i < 3 * kAcross; ++i) EXPECT_EQ(some[i], wanted[i]);
}

TEST(Tiles, AddOneProductAfterAnother) {
  expect_tiles<float>();
  expect_tiles<double>();
}

TEST(Sums, OfProductsAreThoseOfDoubles) {
  constexpr int64_t kRows = 150, kCols = 83;
  std::vector<float> x = test::related_rows(kRows, kCols, 3);
  const std::vector<double> wanted = test::products_of(x, kRows, kCols);
  const Tensor rows = {reinterpret_cast<std::byte*>(x.data()), DType::f32, kRows, kCols, kCols * 4};
  Team one(1), three(3);
  std::vector<double> got(wanted.size()), whole(wanted.size()), same(wanted.size());
  add_products(one, rows, rows, true, got.data());
  mirror(got.data(), kCols);
  add_products(one, rows, rows, false, whole.data());
  add_products(three, rows, rows, false, same.data());
  EXPECT_EQ(whole, same);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double scale = std::sqrt(wanted[i / kCols * (kCols + 1)] * wanted[i % kCols * (kCols + 1)]);
    EXPECT_NEAR(got[i], wanted[i], 1e-6 * scale);
    EXPECT_NEAR(whole[i], wanted[i], 1e-6 * scale);
  }
}

}  // namespace
}  // namespace millrace

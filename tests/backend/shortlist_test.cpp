// What a shortlisted row promises, against sorting and racing the whole row in float64.
#include "backend/shortlist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t cols, uint32_t seed, float sigma, bool ties) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> row(cols);
  for (float& logit : row) logit = ties ? std::round(4 * normal(random)) / 4 : normal(random);
  if (cols > 40) row[cols / 2] = -kInfinity;
  return row;
}

struct Found {
  std::vector<ShortlistToken> tokens = std::vector<ShortlistToken>(kShortlistTokens);
  Shortlisted row;
};
Found shortlist(const ShortlistAsk& ask, const std::vector<float>& row) {
  Found found;
  shortlist_on_host(ask, row, found.row, found.tokens.data());
  return found;
}

// Every token at or above the floor, once, with its logit, and none below.
void expect_complete(const Found& found, const std::vector<float>& row) {
  ASSERT_TRUE(found.row.fits);
  std::set<int32_t> ids;
  for (const ShortlistToken& token : found.row.list()) {
    EXPECT_TRUE(ids.insert(token.id).second);
    EXPECT_EQ(row[static_cast<size_t>(token.id)], token.logit);
    EXPECT_GE(token.logit, found.row.floor);
  }
  const auto above = std::count_if(row.begin(), row.end(), [&](float logit) { return logit >= found.row.floor; });
  EXPECT_EQ(static_cast<size_t>(above), ids.size());
}

constexpr size_t kWidths[] = {1, 40, 4095, 4097, 32'000, 151'936, 524'288};

TEST(Shortlist, ListsAreCompleteAndLongEnough) {
  for (size_t cols : kWidths) {
    const std::vector<float> row = random_row(cols, static_cast<uint32_t>(cols), 2, false);
    const auto possible = std::count_if(row.begin(), row.end(), [](float logit) { return logit > -kInfinity; });
    for (int32_t count : {1, 7, 50, 250}) {
      const Found found = shortlist({.kind = ShortlistKind::list, .count = count, .depth = kInfinity}, row);
      expect_complete(found, row);
      if (cols < 32'000 && count > 60) continue;  // few parts list few
      EXPECT_GE(found.row.count, std::min<int64_t>(count, possible)) << cols;
      EXPECT_LE(found.row.count, count + 16) << cols;
    }
  }
}

TEST(Shortlist, ListsByMassHaveTheMass) {
  for (size_t cols : kWidths) {
    std::vector<float> row = random_row(cols, 3, 1, false);
    for (size_t i = 0; i < 30; ++i) row[i * 7919 % cols] = 20 - static_cast<float>(i) * 0.3f;
    double sum = 0, mass = 0;
    const float largest = *std::max_element(row.begin(), row.end());
    for (float logit : row) sum += std::exp(static_cast<double>(logit) - largest);
    const Found found = shortlist({.kind = ShortlistKind::list, .mass = 0.9f, .depth = kInfinity}, row);
    expect_complete(found, row);
    EXPECT_NEAR(found.row.sum, sum, 1e-6 * sum);
    for (const ShortlistToken& token : found.row.list()) mass += std::exp(static_cast<double>(token.logit) - largest);
    EXPECT_GE(mass, 0.9 * sum);
    EXPECT_LT(found.row.count, 64);
  }
}

TEST(Shortlist, ListsByDepthAreThat) {
  for (size_t cols : kWidths) {
    const std::vector<float> row = random_row(cols, 5, 2, true);
    const Found found = shortlist({.kind = ShortlistKind::list, .depth = 0.5f}, row);
    expect_complete(found, row);
    EXPECT_EQ(found.row.floor, found.row.largest - 0.5f);
  }
}

// Where more tokens are equal than a list holds, it is shorter and says so, or does not fit.
TEST(Shortlist, TiesAreAllInOrAllOut) {
  for (size_t cols : kWidths) {
    std::vector<float> row = random_row(cols, 6, 0.5f, true);
    row[0] = 5;
    expect_complete(shortlist({.kind = ShortlistKind::list, .count = 100, .depth = kInfinity}, row), row);
  }
  const std::vector<float> equal(40'000, 1.0f);
  EXPECT_FALSE(shortlist({.kind = ShortlistKind::list, .count = 100, .depth = kInfinity}, equal).row.fits);
}

TEST(Shortlist, TheFirstToArriveIsListed) {
  for (size_t cols : kWidths) {
    const std::vector<float> row = random_row(cols, 8, 3, false);
    const float largest = *std::max_element(row.begin(), row.end());
    for (uint32_t position = 0; position < 4; ++position) {
      for (double temperature : {0.01, 1.0, 100.0}) {
        const ShortlistAsk ask = {.kind = ShortlistKind::race,
                                  .scale = static_cast<float>(1 / temperature / std::log(2.0)),
                                  .seed = 0x123456789ABCDEF,
                                  .choice = 3,
                                  .position = position};
        double first = std::numeric_limits<double>::infinity();
        int32_t winner = -1;
        for (size_t id = 0; id < cols; ++id) {
          const double u = uniform({ask.seed, ask.choice, position, static_cast<uint32_t>(id)});
          const double time = -std::log1p(-u) / std::exp(static_cast<double>(row[id] - largest) / temperature);
          if (time < first) first = time, winner = static_cast<int32_t>(id);
        }
        const Found found = shortlist(ask, row);
        ASSERT_TRUE(found.row.fits);
        EXPECT_LE(found.row.count, 3);
        const auto list = found.row.list();
        EXPECT_TRUE(std::any_of(list.begin(), list.end(), [&](const ShortlistToken& t) { return t.id == winner; }));
      }
    }
  }
}

TEST(Shortlist, TheBestIsAlwaysTold) {
  const std::vector<float> row = {1, 4, -2, 4};
  EXPECT_EQ(shortlist({}, row).row.best, 1);
  EXPECT_FALSE(shortlist({}, row).row.fits);
  EXPECT_EQ(shortlist({}, {1, std::numeric_limits<float>::quiet_NaN(), 5}).row.best, -1);
}

}  // namespace
}  // namespace millrace

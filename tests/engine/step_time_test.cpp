#include "engine/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/hash_model.h"
#include "engine/metrics.h"

namespace millrace {
namespace {

StepShape random_shape(Dice& dice) {
  int sequences = dice.roll(1, 64);
  int tokens = sequences + (dice.chance(0.5) ? dice.roll(0, 400) : 0);
  return {tokens, int64_t{tokens} * dice.roll(10, 2000), sequences};
}

double truth(const StepShape& shape, double scale = 1) {
  return scale * (2e-3 + 3e-5 * shape.tokens + 2e-9 * static_cast<double>(shape.context) + 1e-5 * shape.sequences);
}

TEST(StepTime, FindsTheCoefficients) {
  Dice dice(3);
  StepTime model;
  for (int step = 0; step < 300; ++step) {
    StepShape shape = random_shape(dice);
    model.observe(shape, truth(shape));
  }
  ASSERT_TRUE(model.trained());
  EXPECT_NEAR(model.coefficients().fixed, 2e-3, 2e-5);
  EXPECT_NEAR(model.coefficients().token, 3e-5, 1e-6);
  EXPECT_NEAR(model.coefficients().context, 2e-9, 1e-10);
  EXPECT_NEAR(model.coefficients().sequence, 1e-5, 1e-6);
}

TEST(StepTime, PredictsUnderNoiseAndFollowsChange) {
  Dice dice(4);
  StepTime model;
  for (double scale : {1.0, 3.0}) {
    for (int step = 0; step < 2000; ++step) {
      StepShape shape = random_shape(dice);
      model.observe(shape, truth(shape, scale) * (0.8 + 0.01 * dice.roll(0, 40)));
    }
    for (int step = 0; step < 100; ++step) {
      StepShape shape = random_shape(dice);
      EXPECT_NEAR(model.predict(shape) / truth(shape, scale), 1, 0.1);
    }
  }
}

TEST(StepTime, NeverPredictsLessForMore) {
  Dice dice(5);
  StepTime model;
  // Decodes only: tokens and sequences are the same number, and noise would make one of them negative.
  for (int step = 0; step < 200; ++step) {
    int sequences = dice.roll(1, 8);
    model.observe({sequences, sequences * 100, sequences}, 1e-3 * dice.roll(5, 15));
    const auto& c = model.coefficients();
    EXPECT_TRUE(c.fixed >= 0 && c.token >= 0 && c.context >= 0 && c.sequence >= 0);
  }
  EXPECT_NEAR(model.predict({4, 400, 4}), 0.010, 0.002);
}

TEST(StepTime, IgnoresWhatIsNoTime) {
  StepTime model;
  model.observe({1, 1, 1}, -1);
  model.observe({1, 1, 1}, std::nan(""));
  EXPECT_EQ(model.observations(), 0);
}

TEST(Histogram, QuantilesAreRightToFivePercent) {
  Histogram histogram;
  std::vector<double> values;
  Dice dice(6);
  for (int count = 0; count < 5000; ++count) {
    double value = 1e-4 * std::exp2(dice.roll(0, 1000) / 100.0);
    values.push_back(value);
    histogram.add(value);
  }
  std::sort(values.begin(), values.end());
  for (double fraction : {0.01, 0.5, 0.95, 0.99, 1.0}) {
    double exact = values[static_cast<size_t>(fraction * 5000) - 1];
    EXPECT_NEAR(histogram.quantile(fraction) / exact, 1, 0.05) << fraction;
  }
  EXPECT_EQ(histogram.count(), 5000);
  EXPECT_EQ(histogram.at_most(1e9), 5000);
  EXPECT_EQ(histogram.at_most(1e-9), 0);
  EXPECT_EQ(Histogram().quantile(0.5), 0);
  Histogram twice = histogram;
  twice.merge(histogram);
  EXPECT_EQ(twice.count(), 10000);
  EXPECT_DOUBLE_EQ(twice.sum(), 2 * histogram.sum());
  histogram.add(-1);
  histogram.add(1e30);
  EXPECT_EQ(histogram.count(), 5002);
}

TEST(Metrics, CountRequestsByHowTheyEnded) {
  Metrics metrics;
  metrics.first_arrival = 0;
  metrics.last_event = 10;
  metrics.add({.id = 1,
               .finish = Finish::stop,
               .queue = 0.1,
               .first_token = 0.2,
               .next_token = 0.01,
               .end_to_end = 1,
               .tokens_in = 5,
               .tokens_out = 20});
  metrics.add({.id = 2,
               .finish = Finish::length,
               .first_token = 9,
               .end_to_end = 12,
               .tokens_in = 5,
               .tokens_out = 10,
               .on_time = false});
  metrics.add({.id = 3, .finish = Finish::cancelled, .tokens_in = 5, .on_time = false});
  EXPECT_EQ(metrics.finished, 2);
  EXPECT_EQ(metrics.cancelled, 1);
  EXPECT_EQ(metrics.on_time, 1);
  EXPECT_EQ(metrics.first_token.count(), 2);
  EXPECT_DOUBLE_EQ(metrics.throughput(), 3);
  EXPECT_DOUBLE_EQ(metrics.goodput(), 0.1);
}

}  // namespace
}  // namespace millrace

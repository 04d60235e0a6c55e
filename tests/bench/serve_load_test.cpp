#include "bench/serve_load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(ServeLoad, PromptsHaveTheirLengthsAndShareTheirBeginnings) {
  auto all =
      serve_prompts({.requests = 20, .input = 30, .output = 7, .prefix = 50, .prefixes = 4, .vocab = 300, .seed = 3});
  ASSERT_EQ(all.size(), 20u);
  for (const Arrival& arrival : all) {
    EXPECT_EQ(arrival.prompt.size(), 80u);
    EXPECT_EQ(arrival.output, 7);
    for (Token token : arrival.prompt) ASSERT_TRUE(token >= 0 && token < 300);
  }
  auto same = [&](size_t a, size_t b, int from, int count) {
    return std::equal(all[a].prompt.begin() + from, all[a].prompt.begin() + from + count, all[b].prompt.begin() + from);
  };
  EXPECT_TRUE(same(0, 4, 0, 50));
  EXPECT_FALSE(same(0, 1, 0, 50));
  EXPECT_FALSE(same(0, 4, 50, 30));
}

TEST(ServeLoad, SeedsDecideEverything) {
  ServeShape shape = {.requests = 5, .input = 40, .output = 40, .range_ratio = 0.5, .vocab = 1000, .seed = 1};
  auto one = serve_prompts(shape), again = serve_prompts(shape);
  shape.seed = 2;
  auto other = serve_prompts(shape);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].prompt, again[i].prompt);
    EXPECT_NE(one[i].prompt, other[i].prompt);
    EXPECT_GE(one[i].prompt.size(), 20u);
    EXPECT_LE(one[i].prompt.size(), 60u);
  }
}

TEST(ServeLoad, SmallVocabulariesAreNoTrouble) {
  for (int vocab : {2, 3, 9}) {
    for (const Arrival& arrival : serve_prompts({.requests = 3, .input = 50, .output = 1, .vocab = vocab})) {
      for (Token token : arrival.prompt) ASSERT_TRUE(token >= 0 && token < vocab);
    }
  }
}

// Mean and variation of the gaps of a gamma process.
struct Gaps {
  double mean, variation;
};
Gaps gaps(double rate, double burstiness) {
  std::vector<Arrival> arrivals(20000);
  pace(arrivals, {.rate = rate, .burstiness = burstiness, .seed = 5});
  double sum = 0, squares = 0, before = 0;
  for (const Arrival& arrival : arrivals) {
    double gap = arrival.time - before;
    EXPECT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
    before = arrival.time;
  }
  double count = static_cast<double>(arrivals.size()), mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / mean};
}

TEST(ServeLoad, ArrivalsFollowTheGammaDistribution) {
  for (double burstiness : {0.25, 1.0, 4.0}) {
    auto [mean, variation] = gaps(10, burstiness);
    EXPECT_NEAR(mean, 0.1, 1e-9);  // scaled to the rate exactly
    EXPECT_NEAR(variation, 1 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness)) << burstiness;
  }
}

TEST(ServeLoad, WithoutARateAllComeAtOnce) {
  std::vector<Arrival> arrivals(5);
  pace(arrivals, {});
  for (const Arrival& arrival : arrivals) EXPECT_EQ(arrival.time, 0);
}

TEST(ServeLoad, RampsSpeedUp) {
  for (RampUp ramp : {RampUp::linear, RampUp::exponential}) {
    std::vector<Arrival> arrivals(4000);
    pace(arrivals, {.burstiness = 1000, .ramp = ramp, .ramp_from = 1, .ramp_to = 100});
    double first = arrivals[400].time - arrivals[0].time, last = arrivals[3999].time - arrivals[3599].time;
    EXPECT_GT(first, 5 * last);
  }
}

TEST(ServeLoad, WordsStandForTokens) {
  std::string text = words_of({1, 2, 3});
  EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 2);
  EXPECT_EQ(words_of({}), "");
}

TEST(ServeLoad, SearchFindsTheHighestRate) {
  for (double first : {0.5, 3.0, 50.0}) {
    int asked = 0;
    auto found = highest_rate(first, 0.9, 0.05, [&](double rate) -> Result<double> {
      ++asked;
      return rate <= 7 ? 1.0 : 0.2;
    });
    ASSERT_TRUE(found.ok());
    EXPECT_LE(*found, 7);
    EXPECT_GE(*found, 7 / 1.05);
    EXPECT_LT(asked, 14);
  }
  EXPECT_EQ(*highest_rate(1, 0.9, 0.05, [](double) -> Result<double> { return 0.0; }), 0);
  EXPECT_FALSE(highest_rate(1, 0.9, 0.05, [](double) -> Result<double> { return error(Code::io, "gone"); }).ok());
}

}  // namespace
}  // namespace millrace

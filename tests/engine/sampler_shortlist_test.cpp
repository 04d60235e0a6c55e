// Choosing from part of a row gives the token that the whole row gives, whatever the row looks like, and seldom needs
// the whole row where rows look like a model's. Shortlisting runs on the host here, by the code that devices compile.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "backend/shortlist_math.h"
#include "engine/sampler.h"

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Rows {
 public:
  explicit Rows(uint32_t seed) : random_(seed) {}
  double chance() { return std::uniform_real_distribution<double>()(random_); }
  float gaussian() { return normal_(random_); }
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  std::vector<float> flat(size_t vocab, float sigma) {
    std::vector<float> row(vocab);
    for (float& logit : row) logit = sigma * gaussian();
    return row;
  }
  // A few tokens far above a broad rest.
  std::vector<float> like_a_model(size_t vocab) {
    std::vector<float> row = flat(vocab, 2.5f);
    float top = 22;
    for (int i = 0; i < 60; ++i, top -= 0.4f * static_cast<float>(chance())) row[below(vocab)] = top;
    return row;
  }
  std::vector<float> nasty(size_t vocab, size_t kind) {
    std::vector<float> row = flat(vocab, 1);
    switch (kind % 8) {
      case 0:  // ties
        for (float& logit : row) logit = std::round(12 * logit) / 4;
        break;
      case 1:  // one dominates
        row[below(vocab)] = 80;
        break;
      case 2:  // most are impossible
        for (float& logit : row) logit = chance() < 0.999 ? -kInfinity : 3 * logit;
        row[below(vocab)] = 1;
        break;
      case 3:  // all equal
        std::fill(row.begin(), row.end(), 1.5f);
        break;
      case 4:  // all negative, some enormous
        for (float& logit : row) logit = chance() < 0.01 ? -3e38f : -std::abs(logit) - 5;
        break;
      case 5:  // enormous on both sides: differences overflow
        for (float& logit : row) logit *= 1e38f;
        break;
      case 6:  // zeros of both signs on top
        for (float& logit : row) logit = chance() < 0.001 ? (chance() < 0.5 ? 0.0f : -0.0f) : -std::abs(logit) - 1;
        break;
      default:  // likely ones side by side
        for (size_t i = 0; i < std::min<size_t>(vocab, 600); ++i) row[i] += 12;
    }
    return row;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

const std::vector<Sampling>& settings() {
  static const std::vector<Sampling> all = {
      {.temperature = 1},
      {.temperature = 0.7},
      {.temperature = 100},
      {.temperature = 1e-3},
      {.temperature = 2e-6},
      {.temperature = 0.8, .top_k = 40},
      {.temperature = 1, .top_k = 1},
      {.temperature = 1e-9, .top_k = 5},
      {.temperature = 1, .top_k = 300},
      {.temperature = 0.8, .top_k = 40, .typical = 0.9, .top_p = 0.95, .min_p = 0.05, .xtc_probability = 0.5},
      {.temperature = 0, .top_k = 30, .typical = 0.5},
      {.temperature = 1, .top_p = 0.9},
      {.temperature = 1, .top_p = 0.5},
      {.temperature = 1.3, .top_p = 0.999},
      {.temperature = 1, .top_p = 0.95, .min_p = 0.05},
      {.temperature = 1.5, .min_p = 0.1},
      {.temperature = 0.6, .min_p = 1},
      {.temperature = 1, .min_p = 0.02, .xtc_probability = 0.5, .xtc_threshold = 0.05},
      {.temperature = 0.8, .top_k = 40, .repetition = 1.3},
      {.temperature = 1, .min_p = 0.1, .presence = 0.5, .frequency = 0.2},
      {.temperature = 0, .repetition = 1.1},
      {.temperature = 0, .dry_multiplier = 0.8},
      {.temperature = 0.9, .top_k = 20, .bias = {{3, -5}}, .banned = {1, 2}},
  };
  return all;
}

struct Tally {
  int settled = 0, unsettled = 0, whole = 0;
};

// Chooses both ways.
void compare(const Sampling& sampling, uint32_t choice, std::span<const float> row, std::span<const Token> context,
             std::span<const Token> banned_now, SamplerScratch& scratch, Tally& tally) {
  const auto vocab = static_cast<int32_t>(row.size());
  Sampler sampler = Sampler::create(sampling, vocab, choice).value();
  const ShortlistAsk ask = sampler.shortlist_ask(vocab, context.size(), banned_now);
  if (ask.kind == ShortlistKind::whole) return void(++tally.whole);
  std::vector<ShortlistToken> tokens(kShortlistTokens);
  Shortlisted found;
  shortlist_on_host(ask, row, found, tokens.data());
  const auto token = sampler.sample_shortlist(ask, found, context, scratch, banned_now);
  const auto expected = sampler.sample(row, context, scratch, banned_now);
  if (!token) return void(++tally.unsettled);
  ++tally.settled;
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  EXPECT_EQ(*token, *expected) << "temperature " << sampling.temperature << ", top-k " << sampling.top_k << ", top-p "
                               << sampling.top_p << ", min-p " << sampling.min_p << ", " << vocab << " tokens";
}

std::vector<Token> context_of(Rows& rows, size_t vocab, std::span<const float> row) {
  std::vector<Token> context;
  for (int i = 0; i < 50; ++i) context.push_back(static_cast<Token>(rows.below(vocab)));
  // The likeliest have been said already.
  context.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
  return context;
}

TEST(SamplerShortlist, ChoosesWhatTheWholeRowGives) {
  Rows rows(1);
  for (size_t vocab : {128'256, 32'000, 50'257, 151'936, 262'144}) {
    SamplerScratch scratch(static_cast<int32_t>(vocab));
    for (int round = 0; round < 3; ++round) {
      const std::vector<float> row = round == 0 ? rows.flat(vocab, 1) : rows.like_a_model(vocab);
      const std::vector<Token> context = context_of(rows, vocab, row);
      Tally tally;
      for (Sampling sampling : settings()) {
        sampling.seed = rows.below(1u << 31) * 0x100000001u;
        compare(sampling, static_cast<uint32_t>(round), row, context, {}, scratch, tally);
      }
      EXPECT_EQ(tally.whole, 0);
      if (round == 0) continue;  // top-p of a flat row is thousands of tokens
      EXPECT_EQ(tally.unsettled, 0) << vocab;
    }
  }
}

TEST(SamplerShortlist, NastyRowsGiveTheSameOrAreWantedWhole) {
  Rows rows(2);
  Tally tally;
  for (size_t vocab : {1, 3, 300, 4096, 4097, 40'000}) {
    SamplerScratch scratch(static_cast<int32_t>(vocab));
    for (size_t kind = 0; kind < 8; ++kind) {
      const std::vector<float> row = rows.nasty(vocab, kind);
      const std::vector<Token> context = context_of(rows, vocab, row);
      for (Sampling sampling : settings()) {
        if (vocab <= 3) sampling.bias.clear(), sampling.banned.clear();
        sampling.seed = rows.below(1u << 31);
        compare(sampling, 0, row, context, {}, scratch, tally);
      }
    }
  }
  EXPECT_GT(tally.settled, 3 * tally.unsettled);
}

TEST(SamplerShortlist, ManyDrawsFromOneRow) {
  Rows rows(3);
  const size_t vocab = 5000;
  SamplerScratch scratch(static_cast<int32_t>(vocab));
  const std::vector<float> row = rows.like_a_model(vocab);
  Tally tally;
  std::vector<Token> context;
  for (int i = 0; i < 800; ++i) {
    context.push_back(static_cast<Token>(rows.below(vocab)));
    for (double temperature : {0.5, 1.0, 3.0}) {
      compare({.temperature = temperature, .seed = 9}, static_cast<uint32_t>(i % 3), row, context, {}, scratch, tally);
    }
  }
  EXPECT_EQ(tally.unsettled, 0);
}

TEST(SamplerShortlist, EndTokensBeforeTheLeastLengthAreNotChosen) {
  Rows rows(4);
  const size_t vocab = 40'000;
  SamplerScratch scratch(static_cast<int32_t>(vocab));
  const std::vector<float> row = rows.like_a_model(vocab);
  const Token banned[] = {static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin())};
  Tally tally;
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.temperature = 1, .top_k = 10}}) {
    compare(sampling, 0, row, {}, banned, scratch, tally);
  }
  EXPECT_EQ(tally.settled, 2);
}

TEST(SamplerShortlist, WholeRowsWherePartsCannotSettleIt) {
  const std::vector<Sampling> all = {
      {.temperature = 1, .top_n_sigma = 1},
      {.temperature = 1, .typical = 0.9},
      {.temperature = 1, .xtc_probability = 0.5},
      {.temperature = 1, .presence = 0.5},                  // a race in which some start later
      {.temperature = 1, .top_p = 0.9, .repetition = 1.1},  // the sum is of other logits
      {.temperature = 1, .top_k = 40, .repetition = 0.9},   // raises logits
      {.temperature = 1, .top_k = 40, .bias = {{3, 5}}},
      {.temperature = 1, .top_k = 5000},
      {.temperature = 1, .mirostat = 2},
      {.temperature = 1e-30},
  };
  for (const Sampling& sampling : all) {
    EXPECT_EQ(Sampler::create(sampling, 32'000).value().shortlist_ask(32'000, 100, {}).kind, ShortlistKind::whole);
  }
  EXPECT_EQ(Sampler::create({}, 1 << 20).value().shortlist_ask(1 << 20, 100, {}).kind, ShortlistKind::whole);
}

TEST(SamplerShortlist, BrokenRowsAreWantedWhole) {
  SamplerScratch scratch(9000);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (const Sampling& sampling : settings()) {
      std::vector<float> row(9000, 0.5f);
      row[8500] = bad;
      Tally tally;
      compare(sampling, 0, row, {}, {}, scratch, tally);
      EXPECT_EQ(tally.settled, 0);
    }
  }
  const std::vector<float> never(9000, -kInfinity);
  Tally tally;
  for (const Sampling& sampling : settings()) compare(sampling, 0, never, {}, {}, scratch, tally);
  EXPECT_EQ(tally.settled, 0);
}

// What certainty rests on: the sum, the random numbers and the arrivals.
TEST(SamplerShortlist, SumsAreTheSamplersToTheBound) {
  Rows rows(5);
  for (float sigma : {0.1f, 1.0f, 4.0f}) {
    const std::vector<float> row = rows.flat(128'256, sigma);
    std::vector<ShortlistToken> tokens(kShortlistTokens);
    Shortlisted found;
    shortlist_on_host({.kind = ShortlistKind::list, .mass = 0.5f, .depth = kInfinity}, row, found, tokens.data());
    const double sum = sum_weights(row, found.largest, 1).weight;
    EXPECT_NEAR(found.sum, sum, sum * kShortlistSumError / 16);
  }
}

TEST(SamplerShortlist, ArrivalsAreRightFarWithinTheMargin) {
  Rows rows(6);
  for (uint32_t i = 0; i < 20'000; ++i) {
    const Draw draw{.seed = 77 + (uint64_t{i} << 33), .choice = i % 5, .position = i * 7, .draw = i * 4};
    const PhiloxWords<4> words = philox_words<4>(draw.seed, draw.choice, draw.position, draw.draw);
    for (uint32_t j = 0; j < 4; ++j) {
      Draw one = draw;
      one.draw += j;
      const double u = uniform(one);
      EXPECT_EQ(static_cast<double>((uint64_t{words.high[j]} << 32 | words.low[j]) >> 11) * 0x1p-53, u);
      const float scaled = static_cast<float>(-59 * rows.chance());
      const double exact = std::log2(-std::log1p(-u)) - static_cast<double>(scaled);
      EXPECT_NEAR(static_cast<double>(race_key(words.high[j], words.low[j], scaled)), exact, 0x1p-13);
    }
  }
  // At the ends, where the number hangs on its last bits.
  for (uint32_t high : {0u, 1u, 0xFFFFu, 0x10000u, 0xFFFEFFFFu, 0xFFFF0000u, 0xFFFFFFFEu, 0xFFFFFFFFu}) {
    for (uint32_t low : {0u, 1u << 11, 0x80000000u, 0xFFFFFFFFu}) {
      const double u = static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
      const float key = race_key(high, low, 0);
      if (u == 0) {
        EXPECT_EQ(key, -kInfinity);
      } else {
        EXPECT_NEAR(static_cast<double>(key), std::log2(-std::log1p(-u)), 0x1p-13) << high << " " << low;
      }
    }
  }
}

}  // namespace
}  // namespace millrace

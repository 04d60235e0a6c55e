#include "engine/constraint.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/sampler.h"

namespace millrace {
namespace {

constexpr int32_t kVocab = 200;

// Its states are sums of tokens; which tokens are allowed is a function of the sum.
class SumConstraint : public Constraint {
 public:
  State start() const override { return 1; }
  State next(State state, Token token) override { return ++steps, state * 31 % 9973 + token + 1; }
  Result<std::shared_ptr<const TokenMask>> allowed(State state) override {
    auto mask = std::make_shared<TokenMask>(kVocab);
    for (Token token = 0; token < kVocab; ++token) {
      if ((token * 7 + state) % 5 != 0) mask->add(token);
    }
    return std::shared_ptr<const TokenMask>(std::move(mask));
  }
  bool ends(State) override { return true; }
  std::string source() const override { return "sum"; }
  int steps = 0;
};

std::vector<float> some_logits(uint64_t seed) {
  std::vector<float> logits(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    logits[static_cast<size_t>(i)] = static_cast<float>(static_cast<double>(seed >> 40) / (1 << 22));
  }
  return logits;
}

TEST(Constraint, StatesFollowTheTokensThatStand) {
  SumConstraint constraint;
  ConstraintStates states;
  const std::vector<Token> first = {3, 5, 8}, other = {3, 6};
  auto fresh = [&](const std::vector<Token>& answer) {
    SumConstraint again;
    return (*ConstraintStates().mask(again, answer))->words;
  };
  EXPECT_EQ((*states.mask(constraint, first))->words, fresh(first));
  EXPECT_EQ(constraint.steps, 3);
  EXPECT_EQ((*states.mask(constraint, std::span(first).first(1)))->words, fresh({3}));  // taken back
  EXPECT_EQ(constraint.steps, 3);
  EXPECT_EQ((*states.mask(constraint, other))->words, fresh(other));  // and another way
  EXPECT_EQ(constraint.steps, 4);
}

TEST(Constraint, FreeAnswersThatAreValidKeepTheirTokens) {
  SamplerScratch scratch(kVocab);
  SumConstraint constraint;
  int kept = 0, moved = 0;
  for (double temperature : {0.0, 0.7, 1.0, 1.5}) {
    Sampling sampling;
    sampling.temperature = temperature;
    sampling.seed = 11;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      const std::vector<float> logits = some_logits(seed);
      const std::vector<Token> context(seed, 1);
      Sampler sampler = Sampler::create(sampling, kVocab).value();
      const Token free = sampler.sample(logits, context, scratch).value();
      const auto mask = constraint.allowed(static_cast<int32_t>(seed)).value();
      const Token bound = sampler.sample(logits, context, scratch, {}, mask.get()).value();
      EXPECT_TRUE(mask->has(bound));
      if (mask->has(free)) {
        EXPECT_EQ(bound, free);
        ++kept;
      } else {
        ++moved;
      }
    }
  }
  EXPECT_GT(kept, 100);
  EXPECT_GT(moved, 50);
}

TEST(Constraint, TruncationSeesTheAllowedTokensOnly) {
  SamplerScratch scratch(kVocab);
  Sampling sampling;
  sampling.top_k = 3;
  Sampler sampler = Sampler::create(sampling, kVocab).value();
  TokenMask mask(kVocab);
  for (Token token : {7, 50, 120, 199}) mask.add(token);
  const auto left = sampler.distribution(some_logits(5), std::vector<Token>{1}, scratch, {}, &mask).value();
  EXPECT_EQ(left.size(), 3u);
  for (const TokenProbability& one : left) EXPECT_TRUE(mask.has(one.id));
}

TEST(Constraint, NothingAllowedIsAnError) {
  SamplerScratch scratch(kVocab);
  Sampler sampler = Sampler::create({}, kVocab).value();
  const TokenMask none(kVocab);
  EXPECT_FALSE(sampler.sample(some_logits(1), std::vector<Token>{1}, scratch, {}, &none).ok());
}

}  // namespace
}  // namespace millrace

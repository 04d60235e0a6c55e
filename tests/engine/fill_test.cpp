// What is computed in which pass, and what a pass fills: every position once, whatever the numbers.
#include "engine/fill.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "engine/request.h"

namespace millrace {
namespace {

constexpr int kVocab = 32;
constexpr Token kMask = 6;

// Logits that depend on the row's position and on the whole of what the model sees, as a model's do.
std::vector<float> logits_of(std::span<const Token> seen, int32_t position) {
  uint64_t state = static_cast<uint64_t>(position) + 1;
  for (const Token token : seen) state = state * 31 + static_cast<uint64_t>(token);
  std::vector<float> out;
  for (uint32_t i = 0; i < kVocab; ++i) out.push_back(static_cast<float>(6 * uniform({state, 0, 0, i})));
  return out;
}

struct Filled {
  std::vector<Token> told;
  std::vector<std::vector<int32_t>> fixed;
  int32_t kept = 0, rows = 0;
};

Filled filled(const Request& request, bool shifted = false, int32_t told = 0) {
  const FillShape shape(static_cast<int32_t>(request.prompt.size()), request.max_tokens, request.fill, shifted);
  Filling filling(request.prompt, shape, kMask, told);
  Filled out;
  for (int32_t pass = 0;;) {
    const FillStep step = next_fill(shape, out.kept, pass);
    if (step.count == 0) {
      EXPECT_EQ(pass, shape.passes());
      return out;
    }
    EXPECT_LE(step.begin, out.kept);
    EXPECT_LE(step.begin + step.count, shape.total());
    out.rows += step.count;
    if (step.pass < 0) {
      EXPECT_GT(step.begin + step.count, out.kept);
      out.kept = step.begin + step.count;
      continue;
    }
    EXPECT_EQ(step.pass, pass++);
    const auto seen = filling.tokens().first(static_cast<size_t>(step.begin + step.count));
    const std::vector<Token> before(seen.begin(), seen.end());
    std::vector<float> row;
    auto rows = [&](int32_t index) -> std::span<const float> {
      EXPECT_GE(index, 0);
      EXPECT_LT(index, step.wanted);
      row = logits_of(before, step.begin + step.count - step.wanted + index);
      return row;
    };
    std::vector<int32_t> fixed;
    const auto more = filling.fill(step, request, 0, rows, &fixed).value();
    out.told.insert(out.told.end(), more.begin(), more.end());
    EXPECT_EQ(fixed.size(), static_cast<size_t>(step.take));
    out.fixed.push_back(fixed);
  }
}

Request asked(int32_t length, int32_t steps, int32_t block, Remasking rule = Remasking::confidence) {
  Request request;
  request.prompt = {1, 20, 30, 7};
  request.max_tokens = length;
  request.sampling.temperature = 0;
  request.fill = {steps, block, rule};
  return request;
}

TEST(Fill, EveryPositionIsFilledOnceAndNeverWithTheMask) {
  for (const bool shifted : {false, true}) {
    for (const int32_t length : {1, 2, 12, 17}) {
      for (const int32_t block : {0, 1, 4, 5, 40}) {
        for (const int32_t steps : {0, 1, 3, 6, 12, 99}) {
          const Filled out = filled(asked(length, steps, block), shifted);
          EXPECT_EQ(out.told.size(), static_cast<size_t>(length)) << length << " " << block << " " << steps;
          std::vector<int> times(static_cast<size_t>(length));
          for (const auto& pass : out.fixed)
            for (const int32_t at : pass) ++times[static_cast<size_t>(at)];
          EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(length), 1));
          for (const Token token : out.told) EXPECT_NE(token, kMask);
        }
      }
    }
  }
}

TEST(Fill, PassesAreAsManyAsAskedFor) {
  EXPECT_EQ(filled(asked(12, 6, 0)).fixed.size(), 6u);
  EXPECT_EQ(filled(asked(12, 1, 0)).fixed.size(), 1u);
  EXPECT_EQ(filled(asked(12, 0, 0)).fixed.size(), 6u);    // one for two tokens
  EXPECT_EQ(filled(asked(12, 7, 4)).fixed.size(), 7u);    // 3, 2, 2
  EXPECT_EQ(filled(asked(12, 1, 4)).fixed.size(), 3u);    // a block has one at least
  EXPECT_EQ(filled(asked(12, 99, 4)).fixed.size(), 12u);  // and no more than positions
}

TEST(Fill, BlocksKeepWhatIsFinishedAndExactKeepsNothing) {
  EXPECT_EQ(filled(asked(12, 6, 0)).kept, 0);
  EXPECT_EQ(filled(asked(12, 6, 0)).rows, 6 * 16);
  const Filled blocks = filled(asked(12, 6, 4));
  EXPECT_EQ(blocks.kept, 4 + 8);              // the last block need not be
  EXPECT_EQ(blocks.rows, 4 + 2 * 4 + 6 * 4);  // the prompt, two finished blocks, passes
}

TEST(Fill, RulesDifferAndOrderIsLeftToRight) {
  const Filled order = filled(asked(12, 6, 0, Remasking::order));
  EXPECT_EQ(order.fixed.front(), (std::vector<int32_t>{0, 1}));
  EXPECT_NE(filled(asked(12, 6, 0, Remasking::confidence)).fixed, order.fixed);
  EXPECT_NE(filled(asked(12, 6, 0, Remasking::margin)).fixed, order.fixed);
  EXPECT_NE(filled(asked(12, 6, 0, Remasking::entropy)).fixed, order.fixed);
}

TEST(Fill, DrawsAreTheSeedsAndWhatWasToldIsNotToldAgain) {
  Request request = asked(12, 6, 0);
  request.sampling.temperature = 1;
  request.sampling.seed = 9;
  const Filled first = filled(request);
  EXPECT_EQ(filled(request).told, first.told);
  const Filled rest = filled(request, false, 5);
  EXPECT_EQ(rest.told, std::vector<Token>(first.told.begin() + 5, first.told.end()));
  request.sampling.seed = 10;
  EXPECT_NE(filled(request).told, first.told);
}

TEST(Fill, BannedTokensAndLeastLengthsHold) {
  Request request = asked(12, 6, 0);
  const Filled plain = filled(request);
  request.stop_tokens = {plain.told[2]};
  request.min_tokens = 3;
  const std::vector<Token> later = filled(request).told;
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(later[i], plain.told[2]);
  request.sampling.banned = {plain.told[0]};
  for (const Token token : filled(request).told) EXPECT_NE(token, plain.told[0]);
}

TEST(Fill, WhatCannotBePromisedIsRefused) {
  const Request plain = asked(12, 6, 0);
  EXPECT_TRUE(check_fill(plain, true, 16).ok());
  EXPECT_FALSE(check_fill(plain, true, 15).ok());   // a pass is not cut
  EXPECT_FALSE(check_fill(plain, false, 16).ok());  // passes of a model that has none
  auto refused = [&](auto change) {
    Request request = plain;
    change(request);
    const auto checked = check_fill(request, true, 16);
    return !checked.ok() && checked.error().code == Code::unsupported;
  };
  EXPECT_TRUE(refused([](Request& r) { r.logprobs = 0; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.repetition = 1.1; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.presence = 1; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.dry_multiplier = 1; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.top_k = 40; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.top_p = 0.9; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.mirostat = 2; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.bias = {LogitBias{.token = 1, .bias = 1}}; }));
  EXPECT_TRUE(refused([](Request& r) { r.prediction = {1}; }));
  EXPECT_FALSE(refused([](Request& r) { r.choices = 3; }));
}

TEST(Fill, BrokenLogitsEndTheAnswerAndNothingElse) {
  const Request request = asked(4, 1, 0);
  const FillShape shape(4, 4, request.fill, false);
  Filling filling(request.prompt, shape, kMask);
  const std::vector<float> row(kVocab, NAN);
  const auto told =
      filling.fill(next_fill(shape, 0, 0), request, 0, [&](int32_t) { return std::span<const float>(row); });
  EXPECT_FALSE(told.ok());
}

}  // namespace
}  // namespace millrace

#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "eval/divergence.h"

namespace millrace {
namespace {

using Views = std::vector<std::string_view>;

TEST(Documents, AreSplitAtBlankLines) {
  EXPECT_EQ(split_documents("one\ntwo\n\nthree\n"), (Views{"one\ntwo", "three"}));
  EXPECT_EQ(split_documents("\n\n \t\r\none\n\n\n\ntwo"), (Views{"one", "two"}));
  EXPECT_EQ(split_documents("a  \n  \nb\r\n\r\nc"), (Views{"a  ", "b\r", "c"}));
  EXPECT_EQ(split_documents("\n\n"), Views{});
  EXPECT_EQ(split_documents(""), Views{});
}

TEST(Windows, ScoreTheirSecondHalf) {
  std::vector<Token> tokens(21);
  std::iota(tokens.begin(), tokens.end(), 100);
  auto windows = cut_windows(tokens, Token{1}, 8);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].tokens, (std::vector<Token>{1, 101, 102, 103, 104, 105, 106, 107}));
  EXPECT_EQ(windows[1].tokens, (std::vector<Token>{1, 109, 110, 111, 112, 113, 114, 115}));
  EXPECT_EQ(windows[0].first, 5) << "positions 4 to 6 predict tokens 5 to 7";
  EXPECT_EQ(cut_windows(tokens, {}, 8)[1].tokens[0], 108);
}

TEST(Perplexity, HasItsStandardError) {
  Perplexity p;
  for (double surprise : {1.0, 2.0, 3.0, 2.0}) {
    ++p.total.tokens;
    p.total.surprise += surprise;
    p.total.squares += surprise * surprise;
  }
  EXPECT_NEAR(p.value(), std::exp(2.0), 1e-12);
  EXPECT_NEAR(p.standard_error(), std::exp(2.0) * std::sqrt(0.5 / 3), 1e-12);
}

TEST(Divergence, IsZeroForShiftedLogitsAndKnownOtherwise) {
  std::vector<float> p = {0, 1, 2}, shifted = {5, 6, 7};
  EXPECT_NEAR(divergence(p, shifted), 0, 1e-12);
  std::vector<float> even = {0, 0}, biased = {std::log(3.0f), 0};  // 1/2, 1/2 against 3/4, 1/4
  EXPECT_NEAR(divergence(even, biased), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-7);
  LogitDistance distance;
  distance.add(even, biased);
  distance.add(even, even);
  EXPECT_NEAR(distance.kl_mean() * 2, distance.kl_max, 1e-12);
  EXPECT_NEAR(distance.largest_difference, std::log(3.0), 1e-6);
  EXPECT_TRUE(distance.finite);
  std::vector<float> broken = {NAN, 0};
  distance.add(even, broken);
  EXPECT_FALSE(distance.finite);
}

}  // namespace
}  // namespace millrace

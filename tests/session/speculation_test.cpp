#include "session/speculation.h"

#include <gtest/gtest.h>

#include "session/prediction.h"

namespace millrace {
namespace {

int64_t accepted(std::vector<Token> prediction, const std::vector<Token>& answer) {
  PredictionUse use(std::make_shared<const PredictedText>(std::move(prediction)));
  for (const Token token : answer) use.take(token);
  return use.accepted();
}

TEST(PredictionUse, CountsTokensOfThePredictionThatAreInTheAnswer) {
  EXPECT_EQ(accepted({1, 2, 3, 4}, {1, 2, 3, 4}), 4);
  EXPECT_EQ(accepted({1, 2, 3, 4}, {1, 2}), 2);
  EXPECT_EQ(accepted({}, {1, 2}), 0);
  EXPECT_EQ(accepted({1, 2}, {}), 0);
  EXPECT_EQ(accepted({1, 2, 3, 4, 5}, {9, 2, 3, 4, 5}), 4);           // found again after two in a row
  EXPECT_EQ(accepted({1, 2, 3, 4, 5}, {1, 9, 9, 4, 5}), 3);           // a part replaced
  EXPECT_EQ(accepted({1, 2, 3, 4, 5}, {1, 2, 7, 8, 9, 3, 4, 5}), 5);  // a part put in
  EXPECT_EQ(accepted({1, 2, 3, 4, 5, 6}, {5, 6, 1, 2}), 2);           // order counts: it does not go back
  EXPECT_EQ(accepted({7, 7, 7}, std::vector<Token>(100, 7)), 3);      // never more than there are
  PredictionUse none(std::make_shared<const PredictedText>(std::vector<Token>{4, 5}));
  EXPECT_EQ(none.rejected(), 2);
}

TEST(SpeculativeConfig, IsReadAsVllmWritesIt) {
  const SpeculateOptions text = read_speculative_config(R"({"method":"ngram","num_speculative_tokens":5})").value();
  EXPECT_EQ(text.names, std::vector<std::string>{"ngram"});
  EXPECT_EQ(text.most, 5);
  const SpeculateOptions file = read_speculative_config(R"({"method":"eagle3","model":"head"})").value();
  EXPECT_EQ(file.names, std::vector<std::string>{"head"});
  EXPECT_EQ(file.most, 4);
  EXPECT_EQ(read_speculative_config(R"({"method":"mtp"})").value().names, std::vector<std::string>{"mtp"});
  for (const std::string_view bad :
       {"", "[]", "{}", R"({"method":"magic","model":"x"})", R"({"method":"eagle3"})", R"({"model":7})",
        R"({"method":"ngram","num_speculative_tokens":0})", R"({"method":"ngram","num_speculative_tokens":99})",
        R"({"method":"ngram","prompt_lookup_max":3})", R"({"method":"ngram","method":"suffix"})"})
    EXPECT_FALSE(read_speculative_config(bad).ok()) << bad;
}

}  // namespace
}  // namespace millrace

// Tokens that are known in advance as a constraint, and the same again in another process.
#include "session/forced_tokens.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ForcedTokens, LeaveOneTokenUntilAllHaveCome) {
  const std::vector<Token> tokens = {5, 0, 99};
  const auto first = forced_tokens(tokens, 100);
  const auto again = forced_tokens_of(first->source(), 100).value();
  for (const auto& one : {first, again}) {
    Constraint::State state = one->start();
    for (Token token : tokens) {
      EXPECT_FALSE(one->ends(state));
      EXPECT_EQ(one->allowed(state).value()->only(), token);
      EXPECT_FALSE(one->allowed(one->next(state, token == 5 ? 6 : 5)).ok());
      state = one->next(state, token);
    }
    EXPECT_TRUE(one->ends(state));
    EXPECT_EQ(one->allowed(state).value()->count(), 100);
    EXPECT_EQ(one->next(state, 7), state);
    EXPECT_EQ(one->source(), "t5,0,99");
  }
}

TEST(ForcedTokens, NoneAtAllLeaveAny) {
  const auto none = forced_tokens_of("t", 10).value();
  EXPECT_TRUE(none->ends(none->start()));
  EXPECT_EQ(none->source(), "t");
}

TEST(ForcedTokens, ASourceThatIsNoneIsRefused) {
  for (const char* source : {"", "5", "t,", "t5,", "t5,,6", "tx", "t-1", "t100", "t5;6", "t99999999999999"})
    EXPECT_FALSE(forced_tokens_of(source, 100).ok()) << source;
}

}  // namespace
}  // namespace millrace

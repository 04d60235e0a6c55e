// A limit on reasoning as a constraint: what may come where, in formats with one section of it and with channels, and
// the same again from its source.
#include "session/thought_limit.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/rng.h"
#include "session/bound.h"
#include "session/calls.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

std::unique_ptr<LoadedModel> model_with(std::string_view name) {
  const std::filesystem::path root = MILLRACE_SOURCE_DIR;
  LoadChoice choice{.path = root / "models/stories-14m-q8_0.gguf"};
  choice.weights = false;
  choice.chat_template = read_file(root / "tests/session/data/calls" / name).value();
  return LoadedModel::load(choice).value();
}

// After these tokens: what may come.
std::shared_ptr<const TokenMask> after(Constraint& constraint, const std::vector<Token>& tokens) {
  auto state = constraint.start();
  for (Token token : tokens) state = constraint.next(state, token);
  return constraint.allowed(state).value();
}

TEST(ThoughtLimitStates, TheEndIsAllThatMayComeWhereTheLimitIs) {
  const auto model = model_with("json.jinja");
  const Tokenizer& tokenizer = *model->tokenizer();
  const std::vector<Token> close = tokenizer.encode("</think>").value();
  auto limit = limit_thoughts(*model, thought_limit(*model, Thinking::open, 3).value(), nullptr);
  std::vector<Token> tokens = tokenizer.encode("Once upon a time there was").value();
  ASSERT_GT(tokens.size(), 3U);
  tokens.resize(2);
  EXPECT_EQ(after(*limit, tokens)->count(), model->vocab());
  tokens.push_back(tokens[0]);
  for (Token token : close) {
    EXPECT_EQ(after(*limit, tokens)->only(), token);
    tokens.push_back(token);
  }
  EXPECT_EQ(after(*limit, tokens)->count(), model->vocab());
  // What ended by itself is not ended again.
  std::vector<Token> early = {tokens[0]};
  early.insert(early.end(), close.begin(), close.end());
  early.insert(early.end(), 5, tokens[0]);
  EXPECT_EQ(after(*limit_thoughts(*model, thought_limit(*model, Thinking::open, 20).value(), nullptr), early)->count(),
            model->vocab());
}

TEST(ThoughtLimitStates, ReasoningThatTheAnswerBeginsItself) {
  const auto model = model_with("json.jinja");
  const Tokenizer& tokenizer = *model->tokenizer();
  const std::vector<Token> close = tokenizer.encode("</think>").value(),
                           word = {tokenizer.encode("Once").value().front()};
  auto limit = limit_thoughts(*model, thought_limit(*model, Thinking::may, 2).value(), nullptr);
  std::vector<Token> tokens = tokenizer.encode("<think>").value();
  EXPECT_EQ(after(*limit, tokens)->count(), model->vocab());
  tokens.insert(tokens.end(), 2, word[0]);
  EXPECT_EQ(after(*limit, tokens)->only(), close[0]);
  EXPECT_EQ(after(*limit, {word[0], word[0], word[0], word[0]})->count(), model->vocab());  // none began
}

TEST(ThoughtLimitStates, InChannelsItDoesNotBeginAgain) {
  const auto model = model_with("channels.jinja");
  const Tokenizer& tokenizer = *model->tokenizer();
  auto limit = limit_thoughts(*model, thought_limit(*model, Thinking::closed, 2).value(), nullptr);
  std::vector<Token> tokens = tokenizer.encode("<|channel|>analysis<|message|>", {.parse_special = true}).value();
  tokens.insert(tokens.end(), 2, tokenizer.encode("Once").value().front());
  const std::vector<Token> marks = tokenizer.encode("<|end|><|start|>assistant", {.parse_special = true}).value();
  for (Token token : marks) {
    ASSERT_EQ(after(*limit, tokens)->only(), token);
    tokens.push_back(token);
  }
  std::vector<Token> again = tokenizer.encode("<|channel|>analysis", {.parse_special = true}).value();
  const Token last = again.back();
  again.pop_back();
  tokens.insert(tokens.end(), again.begin(), again.end());
  EXPECT_FALSE(after(*limit, tokens)->has(last));
  EXPECT_GT(after(*limit, tokens)->count(), 1);
  // Other channels are open.
  const std::vector<Token> final = tokenizer.encode("<|channel|>final", {.parse_special = true}).value();
  tokens.resize(tokens.size() - again.size());
  for (Token token : final) {
    EXPECT_TRUE(after(*limit, tokens)->has(token));
    tokens.push_back(token);
  }
}

TEST(ThoughtLimitStates, TheSameAgainFromItsSource) {
  for (const char* name : {"json.jinja", "channels.jinja"}) {
    const auto model = model_with(name);
    Bounds bounds(*model);
    const auto limit = thought_limit(*model, Thinking::open, 4).value();
    const auto inner =
        bounds.bind({.kind = GrammarKind::regex, .text = "[a-z ]{2,9}"}, {.after = limit.end}).value().constraint;
    for (const auto& around : {std::shared_ptr<Constraint>(), inner}) {
      const auto made = limit_thoughts(*model, limit, around);
      const auto again = bounds.constraint(made->source(), "");
      ASSERT_TRUE(again.ok()) << again.error().message;
      EXPECT_EQ((*again)->source(), made->source());
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        auto one = made->start(), other = (*again)->start();
        for (uint32_t position = 0; position < 24; ++position) {
          const auto mask = made->allowed(one), same = (*again)->allowed(other);
          ASSERT_TRUE(mask.ok() && same.ok());
          ASSERT_EQ((*mask)->words, (*same)->words);
          std::vector<Token> may;
          for (Token token = 0; token < model->vocab(); ++token)
            if ((*mask)->has(token)) may.push_back(token);
          ASSERT_FALSE(may.empty());
          const double where = uniform({.seed = seed, .position = position}) * static_cast<double>(may.size());
          const Token token = may[std::min(static_cast<size_t>(where), may.size() - 1)];
          one = made->next(one, token);
          other = (*again)->next(other, token);
        }
      }
    }
  }
}

TEST(ThoughtLimitStates, SourcesFromAnywhere) {
  const auto model = model_with("json.jinja");
  Bounds bounds(*model);
  const std::string source =
      limit_thoughts(*model, thought_limit(*model, Thinking::open, 4).value(), nullptr)->source();
  ASSERT_TRUE(bounds.constraint(source, "").ok());
  for (size_t cut = 0; cut + 1 < source.size(); ++cut) EXPECT_FALSE(bounds.constraint(source.substr(0, cut), "").ok());
  for (size_t at = 0; at < source.size(); ++at) {
    for (char c : {' ', '-', '9', ',', 'r'}) {
      std::string damaged = source;
      damaged[at] = c;
      const auto made = bounds.constraint(damaged, "");
      if (made.ok()) {
        EXPECT_TRUE((*made)->allowed((*made)->start()).ok()) << damaged;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
#endif

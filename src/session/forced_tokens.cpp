#include "session/forced_tokens.h"

#include <fmt/ranges.h>

#include <charconv>

namespace millrace {
namespace {

// A state is how many tokens have come, until all have.
class ForcedTokens : public Constraint {
 public:
  ForcedTokens(std::vector<Token> tokens, int32_t vocab) : tokens_(std::move(tokens)), vocab_(vocab) {
    auto any = std::make_shared<TokenMask>(vocab);
    for (Token token = 0; token < vocab; ++token) any->add(token);
    any_ = std::move(any);
  }

  State start() const override { return 0; }
  State next(State state, Token token) override {
    if (state < 0 || all(state)) return state;
    return tokens_[static_cast<size_t>(state)] == token ? state + 1 : kRefused;
  }
  Result<std::shared_ptr<const TokenMask>> allowed(State state) override {
    if (state < 0) return error(Code::internal, "a token that had to come did not");
    if (all(state)) return any_;
    auto mask = std::make_shared<TokenMask>(vocab_);
    mask->add(tokens_[static_cast<size_t>(state)]);
    return std::shared_ptr<const TokenMask>(std::move(mask));
  }
  bool ends(State state) override { return all(state); }
  std::string source() const override { return fmt::format("{}{}", kForcedSource, fmt::join(tokens_, ",")); }

 private:
  static constexpr State kRefused = -1;
  bool all(State state) const { return state >= 0 && static_cast<size_t>(state) >= tokens_.size(); }

  std::vector<Token> tokens_;
  int32_t vocab_;
  std::shared_ptr<const TokenMask> any_;
};

}  // namespace

std::shared_ptr<Constraint> forced_tokens(std::vector<Token> tokens, int32_t vocab) {
  return std::make_shared<ForcedTokens>(std::move(tokens), vocab);
}

Result<std::shared_ptr<Constraint>> forced_tokens_of(std::string_view source, int32_t vocab) {
  auto malformed = [] { return error(Code::corrupt, "what an answer was bound to cannot be read"); };
  if (source.empty() || source[0] != kForcedSource) return malformed();
  source.remove_prefix(1);
  std::vector<Token> tokens;
  while (!source.empty()) {
    Token token = -1;
    const auto [rest, failure] = std::from_chars(source.data(), source.data() + source.size(), token);
    if (failure != std::errc() || token < 0 || token >= vocab) return malformed();
    tokens.push_back(token);
    source.remove_prefix(static_cast<size_t>(rest - source.data()));
    if (source.empty()) break;
    if (source[0] != ',' || source.size() == 1) return malformed();
    source.remove_prefix(1);
  }
  return forced_tokens(std::move(tokens), vocab);
}

}  // namespace millrace

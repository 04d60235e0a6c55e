// How much of a predicted answer an answer turned out to be: which tokens of the prediction, in its order, are in the
// answer. A function of the two alone, so it is the same whatever was guessed and whoever ran beside it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/token.h"

namespace millrace {

// A prediction with its pairs of neighbours sorted, so that places in it are found again. Immutable; shared by the
// answers to one request.
class PredictedText {
 public:
  explicit PredictedText(std::vector<Token> tokens);
  const std::vector<Token>& tokens() const { return tokens_; }
  // The first place at or after `from` where these two stand side by side; -1: none.
  int64_t find(Token first, Token second, int64_t from) const;

 private:
  std::vector<Token> tokens_;
  std::vector<std::pair<uint64_t, int64_t>> pairs_;  // both tokens as one number, and the place of the first
};

class PredictionUse {
 public:
  explicit PredictionUse(std::shared_ptr<const PredictedText> text) : text_(std::move(text)) {}
  // The answer's next token. Where it is not the one that was predicted, the answer is looked for further on as soon
  // as two tokens in a row stand there.
  void take(Token token);
  int64_t accepted() const { return accepted_; }
  int64_t rejected() const { return static_cast<int64_t>(text_->tokens().size()) - accepted_; }

 private:
  std::shared_ptr<const PredictedText> text_;
  int64_t next_ = 0, accepted_ = 0;
  Token last_ = -1;
  bool counted_ = false;  // the last token
};

}  // namespace millrace

#include "session/prediction.h"

#include <algorithm>

namespace millrace {
namespace {

uint64_t pair_of(Token first, Token second) {
  return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

}  // namespace

PredictedText::PredictedText(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 1; i < tokens_.size(); ++i)
    pairs_.emplace_back(pair_of(tokens_[i - 1], tokens_[i]), static_cast<int64_t>(i - 1));
  std::sort(pairs_.begin(), pairs_.end());
}

int64_t PredictedText::find(Token first, Token second, int64_t from) const {
  const uint64_t pair = pair_of(first, second);
  const auto found = std::lower_bound(pairs_.begin(), pairs_.end(), std::pair(pair, from));
  return found != pairs_.end() && found->first == pair ? found->second : -1;
}

void PredictionUse::take(Token token) {
  const std::vector<Token>& tokens = text_->tokens();
  const bool expected = next_ < static_cast<int64_t>(tokens.size()) && tokens[static_cast<size_t>(next_)] == token;
  const int64_t place = expected || last_ < 0 ? -1 : text_->find(last_, token, next_);
  if (expected) {
    ++next_;
    ++accepted_;
  } else if (place >= 0) {
    next_ = place + 2;
    accepted_ += counted_ ? 1 : 2;
  }
  counted_ = expected || place >= 0;
  last_ = token;
}

}  // namespace millrace

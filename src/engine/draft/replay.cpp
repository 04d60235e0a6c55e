#include "engine/draft/replay.h"

#include "base/rng.h"

namespace millrace {

void ReplayDrafter::propose(std::span<const DraftAsk> asks) {
  for (const DraftAsk& ask : asks) {
    const std::span<const Token> answer = truth_(ask);
    for (size_t i = 0; i < static_cast<size_t>(ask.limit); ++i) {
      const size_t position = ask.tokens.size() + i, at = position - static_cast<size_t>(ask.prompt);
      if (at >= answer.size()) break;
      const Draw coin{seed_ + static_cast<uint64_t>(ask.request), static_cast<uint32_t>(ask.choice),
                      static_cast<uint32_t>(position), 0};
      const Token wrong = (answer[at] + 1) % vocab_;
      ask.out->push_back(uniform(coin) < right_ ? answer[at] : wrong);
    }
  }
}

}  // namespace millrace

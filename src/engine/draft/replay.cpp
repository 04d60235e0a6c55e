#include "engine/draft/replay.h"

#include <algorithm>

#include "base/rng.h"
#include "engine/draft/tree.h"

namespace millrace {

void ReplayDrafter::propose(std::span<const DraftAsk> asks) {
  if (beside_ != nullptr) beside_->propose(asks);
  for (const DraftAsk& ask : asks) {
    ask.out->clear();
    if (ask.others != nullptr) ask.others->clear();
    if (ask.odds != nullptr) ask.odds->clear();
    const std::span<const Token> answer = truth_(ask);
    const int depth = main_depth(ask.limit, ask.branches);
    for (size_t i = 0; i < static_cast<size_t>(depth); ++i) {
      const size_t position = ask.tokens.size() + i, at = position - static_cast<size_t>(ask.prompt);
      if (at >= answer.size()) break;
      const Draw coin{seed_ + static_cast<uint64_t>(ask.request), static_cast<uint32_t>(ask.choice),
                      static_cast<uint32_t>(position), 0};
      const Token wrong = (answer[at] + 1) % vocab_;
      ask.out->push_back(uniform(coin) < right_ ? answer[at] : wrong);
    }
    if (ask.branches > 0 && ask.limit > depth) branch_off(ask, answer, ask.limit - depth - 1);
  }
}

// The right way as another one, behind one that is wrong.
void ReplayDrafter::branch_off(const DraftAsk& ask, std::span<const Token> answer, int guesses) const {
  const size_t at = ask.tokens.size() - static_cast<size_t>(ask.prompt);
  if (at >= answer.size() || guesses < 1) return;
  const auto right = answer.subspan(at).first(std::min(answer.size() - at, static_cast<size_t>(guesses)));
  if (ask.branches > 1 && guesses > 3) ask.others->push_back({(right[0] + 2) % vocab_});
  const size_t left = ask.others->empty() ? right.size() : std::min(right.size(), static_cast<size_t>(guesses) - 2);
  ask.others->emplace_back(right.begin(), right.begin() + static_cast<ptrdiff_t>(left));
}

}  // namespace millrace

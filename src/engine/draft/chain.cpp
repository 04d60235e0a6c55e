#include "engine/draft/chain.h"

namespace millrace {

void ChainDrafter::propose(std::span<const DraftAsk> asks) {
  open_.assign(asks.begin(), asks.end());
  for (auto& link : links_) {
    if (open_.empty()) return;
    link->propose(open_);
    std::erase_if(open_, [](const DraftAsk& ask) { return !ask.out->empty(); });
  }
}

}  // namespace millrace

#include "engine/draft/chain.h"

namespace millrace {

// What everybody keeps beside ends where the first of them ends.
void ChainDrafter::observe(std::span<Observed> rows) {
  std::vector<int> least(rows.size(), -1);
  for (auto& link : links_) {
    if (!link->observes()) continue;
    for (Observed& row : rows) row.entries = -1;
    link->observe(rows);
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].entries >= 0) least[i] = least[i] < 0 ? rows[i].entries : std::min(least[i], rows[i].entries);
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i].entries = least[i];
}

void ChainDrafter::propose(std::span<const DraftAsk> asks) {
  open_.assign(asks.begin(), asks.end());
  for (auto& link : links_) {
    if (open_.empty()) return;
    link->propose(open_);
    std::erase_if(open_, [](const DraftAsk& ask) { return !ask.out->empty(); });
  }
}

}  // namespace millrace

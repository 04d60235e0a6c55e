// What became of the guesses for one answer, by depth: values that a sequence keeps and DraftControl reads. Recent
// guesses count more.
#pragma once

#include <algorithm>
#include <array>

namespace millrace {

struct DraftHistory {
  static constexpr int kDepths = 16;

  // Chance that the guess at `depth` (from 1) is kept given those before it were.
  // Before there is enough to go by, `usual` counts as much as `weight` guesses.
  double chance(int depth, double usual, double weight) const {
    const auto at = static_cast<size_t>(std::min(depth, kDepths) - 1);
    return (kept[at] + usual * weight) / (tried[at] + weight);
  }
  // `drafted` guesses, of which the first `accepted` were kept.
  void add(int drafted, int accepted, double fade) {
    for (int depth = 1; depth <= std::min({drafted, accepted + 1, kDepths}); ++depth) {
      const auto at = static_cast<size_t>(depth - 1);
      kept[at] = fade * kept[at] + (depth <= accepted ? 1 : 0);
      tried[at] = fade * tried[at] + 1;
    }
  }

  std::array<double, kDepths> kept = {}, tried = {};
  int since_probe = 0;  // steps since it last had a guess more than seemed to pay
};

}  // namespace millrace

#include "engine/draft/tree.h"

#include <algorithm>

namespace millrace {

int main_depth(int rows, int branches) { return branches > 0 && rows > 2 ? rows - rows / 2 : rows; }

int choices_at(int depth, int branches) { return std::max(1, branches + 1 - depth); }

void plan_paths(std::span<const std::vector<Token>> choices, bool free, int rows, int branches,
                std::vector<Token>& main, std::vector<std::vector<Token>>& others) {
  const size_t depth = std::min(choices.size(), static_cast<size_t>(std::max(0, main_depth(rows, branches))));
  for (size_t at = 0; at < depth && !choices[at].empty(); ++at) main.push_back(choices[at][0]);
  int left = rows - static_cast<int>(main.size());
  // By how far down and how unlikely: the second choice of the first place, then its third and the second's second ...
  for (size_t off = 1; off <= main.size() + static_cast<size_t>(std::max(0, branches)); ++off) {
    for (size_t at = 0; at < std::min(off, main.size()); ++at) {
      const size_t rank = off - at;
      const int cost = static_cast<int>(at) + 2;
      if (static_cast<int>(others.size()) >= branches || rank >= choices[at].size() || cost > left) continue;
      std::vector<Token> path(main.begin(), main.begin() + static_cast<ptrdiff_t>(at));
      path.push_back(choices[at][rank]);
      if (free && at + 1 < main.size() && cost < left) path.push_back(main[at + 1]);
      left -= static_cast<int>(path.size()) + 1;
      others.push_back(std::move(path));
    }
  }
}

}  // namespace millrace

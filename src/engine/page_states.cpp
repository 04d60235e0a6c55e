#include "engine/page_states.h"

namespace millrace {

std::vector<PageState> page_states(const KvCache& cache) {
  const PagePool& pool = cache.pool();
  std::vector<int> sequences(static_cast<size_t>(pool.pages()));  // that hold it: all holders but the tree
  for (PageId page = 0; page < pool.pages(); ++page) sequences[static_cast<size_t>(page)] = pool.holders(page);
  const PrefixTree& tree = cache.tree();
  for (NodeId id = 0; id < tree.ids(); ++id) {
    const TreeNode& node = tree.node(id);
    if (node.birth == 0 || node.away) continue;
    for (PageId page : node.pages) {
      if (page != kNoPage) --sequences[static_cast<size_t>(page)];
    }
  }
  std::vector<PageState> states(sequences.size(), PageState::free);
  for (PageId page = 0; page < pool.pages(); ++page) {
    const auto at = static_cast<size_t>(page);
    if (pool.holders(page) == 0) continue;
    states[at] = sequences[at] <= 0 ? PageState::cached : sequences[at] == 1 ? PageState::used : PageState::shared;
  }
  return states;
}

}  // namespace millrace

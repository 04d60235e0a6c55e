// Leaving the pool: which node goes, whether it goes to the second store or away for good, how it comes back, and the
// check of everything the tree promises.
#include "base/check.h"
#include "cache/prefix_tree.h"

namespace millrace {

double PrefixTree::recompute_seconds(const TreeNode& at) const {
  double tokens = static_cast<double>(at.tokens.size());
  return tokens * (costs_.token + costs_.context * (at.start + tokens / 2));
}

// Of the roots that hold more than an equal share of the pool the largest pays; otherwise whoever is worth least.
std::optional<NodeId> PrefixTree::least_worthy() {
  int share = here_.pages() / std::max(1, static_cast<int>(by_pages_.size()));
  for (auto largest = by_pages_.rbegin(); largest != by_pages_.rend() && largest->first > share; ++largest) {
    const auto& idle = roots_[static_cast<size_t>(largest->second)].idle;
    if (!idle.empty()) return std::get<2>(*idle.begin());
  }
  if (idle_.empty()) return std::nullopt;
  return std::get<2>(*idle_.begin());
}

// Takes the least worthy page out of a node that stays: one that left the window of whoever computed it, or a snapshot.
bool PrefixTree::strip() {
  Loose first = *loose_.begin();
  loose_.erase(loose_.begin());
  TreeNode& at = node(first.node);
  if (at.birth != first.birth || at.away || at.unsettled > 0) return false;
  PageId& page = at.pages[static_cast<size_t>(first.slot)];
  if (page == kNoPage || !here_.alone(page)) return false;
  here_.drop(std::exchange(page, kNoPage));
  count_pages(at.root, -1);
  if (at.users == 0) --evictable_;
  ++counters_.stripped;
  return true;
}

bool PrefixTree::evict() {
  while (true) {
    std::optional<NodeId> victim = least_worthy();
    if (!loose_.empty() && (!victim || loose_.begin()->worth <= node(*victim).worth)) {
      if (strip()) return true;
      continue;
    }
    if (!victim) return false;
    const TreeNode& leaving = node(*victim);
    clock_ = std::max(clock_, leaving.worth);
    ++counters_.evictions;
    int free = here_.free(), pages = pages_in(leaving);
    bool cheaper_to_move = recompute_seconds(leaving) > 2 * costs_.page_move * pages;
    if (cheaper_to_move && make_room_away(pages, leaving.worth)) {
      move_out(*victim);
    } else {
      remove(*victim);
    }
    if (here_.free() > free) return true;
  }
}

bool PrefixTree::make_room_away(int pages, double worth) {
  if (pages > away_.pages()) return false;
  while (away_.free() < pages) {
    if (idle_away_.empty() || std::get<0>(*idle_away_.begin()) > worth) return false;
    ++counters_.lost_away;
    erase_node(std::get<2>(*idle_away_.begin()));
  }
  return true;
}

void PrefixTree::move_out(NodeId id) {
  tell(CacheChange::Kind::removed, node(id));
  change(id, [&](TreeNode& at) {
    count_pages(at.root, -pages_in(at));
    evictable_ -= pages_in(at);
    for (PageId& page : at.pages) {
      if (page == kNoPage) continue;
      PageId place = away_.take();
      moves_.push_back({PageMove::Kind::out, page, place, -1, id, at.birth});
      here_.drop(page);
      page = place;
      ++at.unsettled;
      ++counters_.moved_out;
    }
    at.away = true;
  });
  change(node(id).parent, [](TreeNode& above) { --above.children_here; });
  tell(CacheChange::Kind::stored, node(id));
}

bool PrefixTree::bring_in(NodeId id, int64_t owner) {
  TreeNode& at = node(id);
  CHECK(at.away && at.unsettled == 0 && at.users > 0 && !node(at.parent).away, "node {} cannot come in", id);
  std::vector<PageId> taken;
  for (int needed = pages_in(at); needed > 0; --needed) {
    PageId page = here_.take();
    while (page == kNoPage && evict()) page = here_.take();
    if (page == kNoPage) {
      for (PageId back : taken) here_.drop(back);
      return false;
    }
    taken.push_back(page);
  }
  tell(CacheChange::Kind::removed, at);
  change(id, [&](TreeNode& coming) {
    for (PageId& place : coming.pages) {
      if (place == kNoPage) continue;
      PageId page = taken.back();
      taken.pop_back();
      moves_.push_back({PageMove::Kind::in, place, page, owner, id, coming.birth});
      away_.drop(place);
      place = page;
      ++coming.unsettled;
      ++counters_.moved_in;
    }
    coming.away = false;
  });
  count_pages(at.root, pages_in(at));
  change(at.parent, [](TreeNode& above) { ++above.children_here; });
  tell(CacheChange::Kind::stored, at);
  return true;
}

void PrefixTree::forget_away(NodeId id) {
  CHECK(node(id).away && node(id).unsettled == 0, "node {} is not away", id);
  tell(CacheChange::Kind::removed, node(id));
  change(id, [&](TreeNode& at) {
    for (PageId& place : at.pages)
      if (place != kNoPage) away_.drop(std::exchange(place, kNoPage));
    at.away = false;
  });
  change(node(id).parent, [](TreeNode& above) { ++above.children_here; });
  tell(CacheChange::Kind::stored, node(id));
}

void PrefixTree::settle(std::span<const PageMove> moves, std::span<const uint8_t> failed) {
  std::vector<NodeId> broken;
  for (size_t index = 0; index < moves.size(); ++index) {
    // A node on its way out may have gone for good since.
    if (moves[index].kind == PageMove::Kind::copy || node(moves[index].node).birth != moves[index].birth) continue;
    change(moves[index].node, [](TreeNode& at) { --at.unsettled; });
    if (index >= failed.size() || failed[index] == 0) continue;
    ++counters_.failed_moves;
    broken.push_back(moves[index].node);
  }
  for (NodeId id : broken)
    if (node(id).birth != 0) remove(id);
}

}  // namespace millrace

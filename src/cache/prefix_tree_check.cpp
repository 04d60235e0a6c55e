// The check of everything the tree promises. It runs after every simulated step, so it looks at each thing once.
#include "cache/prefix_tree.h"

namespace millrace {

Result<void> PrefixTree::check_node(NodeId id, std::vector<int>& here, std::vector<int>& away) const {
  const TreeNode& at = node(id);
  int children_here = 0;
  std::span<const Token> before;
  for (const auto& [tokens, child] : at.children) {
    const TreeNode& below = node(child);
    if (below.birth == 0 || below.parent != id || below.root != at.root || below.start != at.end())
      return error(Code::internal, "node {} is no child of node {}", child, id);
    if (tokens.data() != below.tokens.data() || tokens.empty() || static_cast<int>(tokens.size()) > layout_.node_tokens)
      return error(Code::internal, "node {} has {} tokens or is filed under others", child, tokens.size());
    if (!before.empty() && before.size() <= tokens.size() && std::equal(before.begin(), before.end(), tokens.begin()))
      return error(Code::internal, "node {} begins with the tokens of its sibling", child);
    if (!below.away && at.away) return error(Code::internal, "node {} is here, its parent {} away", child, id);
    if (below.users > at.users && at.parent != kNoNode)
      return error(Code::internal, "node {} has {} users, its parent {}", child, below.users, at.users);
    children_here += !below.away;
    before = tokens;
  }
  if (children_here != at.children_here) return error(Code::internal, "node {} counts its children wrong", id);
  if (at.parent == kNoNode) return {};
  if (!whole(at) && !at.children.empty()) return error(Code::internal, "partial node {} has children", id);
  if (at.away && at.users > 0) return error(Code::internal, "node {} has users and is away", id);
  for (PageId page : at.pages)
    if (page != kNoPage) ++(at.away ? away : here)[static_cast<size_t>(page)];
  return {};
}

// Every entry is of a node that may go, under its present worth. Entries differ, so if there are as many as such nodes,
// none is missing.
bool PrefixTree::check_queue(const std::set<Order>& queue, bool away, int root) const {
  for (const auto& [worth, used, id] : queue) {
    const TreeNode& at = node(id);
    if (at.worth != worth || at.used != used || at.away != away || !may_go(at) || (root >= 0 && at.root != root))
      return false;
  }
  return true;
}

Result<void> PrefixTree::check(std::vector<int>& here, std::vector<int>& away, std::span<const int> users) const {
  std::vector<NodeId> order = all();
  if (static_cast<int>(order.size()) != live_)
    return error(Code::internal, "{} nodes live, {} are found", live_, order.size());
  std::vector<int> pages(roots_.size(), 0);
  int evictable = 0;
  size_t idle = 0, idle_away = 0, idle_of_roots = 0;
  for (NodeId id : order) {
    TRY_VOID(check_node(id, here, away));
    const TreeNode& at = node(id);
    if (at.users != users[static_cast<size_t>(id)])
      return error(Code::internal, "node {} counts {} users and has {}", id, at.users, users[static_cast<size_t>(id)]);
    (at.away ? idle_away : idle) += at.parent != kNoNode && may_go(at);
    if (at.away) continue;
    int held = pages_in(at);
    pages[static_cast<size_t>(at.root)] += held;
    if (at.users == 0) evictable += held;
  }
  if (evictable != evictable_)
    return error(Code::internal, "{} pages are evictable, {} counted", evictable, evictable_);
  if (by_pages_.size() != root_of_.size())
    return error(Code::internal, "{} roots, {} counted", root_of_.size(), by_pages_.size());
  for (const auto& [key, index] : root_of_) {
    const Root& root = roots_[static_cast<size_t>(index)];
    idle_of_roots += root.idle.size();
    if (root.pages != pages[static_cast<size_t>(index)] || !by_pages_.contains({root.pages, index}) ||
        !check_queue(root.idle, false, index))
      return error(Code::internal, "root {} holds {} pages, {} counted", index, pages[static_cast<size_t>(index)],
                   root.pages);
  }
  if (idle != idle_.size() || idle_away != idle_away_.size() || idle_of_roots != idle ||
      !check_queue(idle_, false, -1) || !check_queue(idle_away_, true, -1))
    return error(Code::internal, "of {} nodes here and {} away that may go, {} and {} are queued", idle, idle_away,
                 idle_.size(), idle_away_.size());
  return {};
}

}  // namespace millrace

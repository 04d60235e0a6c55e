#include "cache/prefix_tree.h"

#include "base/check.h"
#include "cache/planted.h"

namespace millrace {
namespace {

int common_tokens(std::span<const Token> a, std::span<const Token> b) {
  auto [end, unused] =
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<int>(end - a.begin());
}

bool starts_with(std::span<const Token> tokens, std::span<const Token> beginning) {
  return tokens.size() >= beginning.size() && common_tokens(tokens, beginning) == static_cast<int>(beginning.size());
}

// Never 0, which stands for none.
uint64_t short_chain(const Identity& chain) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number = number << 8 | chain.bytes[i];
  return number == 0 ? 1 : number;
}

}  // namespace

Identity chain_of(const Identity& before, std::span<const Token> tokens) {
  Digest digest;
  digest.add(before);
  digest.add(std::as_bytes(tokens));
  return digest.finish();
}

// Only whole nodes are told of: nobody else can use a partial one.
void PrefixTree::tell(CacheChange::Kind kind, const TreeNode& at) {
  if (changes_ == nullptr || at.parent == kNoNode || !whole(at)) return;
  CacheChange change{.kind = kind, .away = at.away, .node = short_chain(at.chain)};
  if (kind == CacheChange::Kind::stored) {
    if (node(at.parent).parent != kNoNode) change.parent = short_chain(node(at.parent).chain);
    change.tokens = at.tokens;
  }
  changes_->push_back(std::move(change));
}

PrefixTree::PrefixTree(const CacheLayout& layout, PagePool& here, PagePool& away, std::vector<PageMove>& moves)
    : layout_(layout), here_(here), away_(away), moves_(moves) {
  int next = 0;
  for (const auto& group : layout.groups) {
    int count = group.recurrent() ? 1 : layout.node_tokens / group.page_tokens;
    slots_.emplace_back(next, count);
    next += count;
  }
}

FoundPrefix PrefixTree::find(const Identity& key, std::span<const Token> tokens) const {
  FoundPrefix found;
  auto entry = PLANTED(tenant_ignored) ? root_of_.begin() : root_of_.find(key);
  if (entry == root_of_.end()) return found;
  const TreeNode* at = &node(roots_[static_cast<size_t>(entry->second)].node);
  while (true) {
    // The child with the longest common beginning stands next to where the tokens would stand.
    auto next = at->children.lower_bound(tokens);
    NodeId best = kNoNode;
    int common = 0;
    for (int side = 0; side < 2; ++side) {
      if (side == 0 ? next == at->children.end() : next == at->children.begin()) continue;
      auto child = side == 0 ? next : std::prev(next);
      int shared = common_tokens(child->first, tokens);
      if (PLANTED(tokens_not_compared) && shared > 0)
        shared = static_cast<int>(std::min(child->first.size(), tokens.size()));
      if (shared > common) best = child->second, common = shared;
    }
    if (best == kNoNode || (node(best).unsettled > 0 && !PLANTED(unsettled_found))) return found;
    if (common < layout_.node_tokens) {
      found.partial = best;
      found.partial_tokens = common;
      return found;
    }
    found.path.push_back(best);
    tokens = tokens.subspan(static_cast<size_t>(common));
    at = &node(best);
  }
}

NodeId PrefixTree::root(const Identity& key) {
  if (auto found = root_of_.find(key); found != root_of_.end()) return roots_[static_cast<size_t>(found->second)].node;
  int index;
  if (spare_roots_.empty()) {
    index = static_cast<int>(roots_.size());
    roots_.emplace_back();
  } else {
    index = spare_roots_.back();
    spare_roots_.pop_back();
  }
  NodeId id = make_node(kNoNode, index, 0, {});
  roots_[static_cast<size_t>(index)] = {key, id, 0, {}};
  root_of_[key] = index;
  by_pages_.emplace(0, index);
  return id;
}

NodeId PrefixTree::extend(NodeId parent, std::span<const Token> tokens) {
  TreeNode& above = node(parent);
  auto next = above.children.lower_bound(tokens);
  if (next != above.children.end() && starts_with(next->first, tokens)) {
    NodeId same = next->second;
    if (node(same).unsettled > 0) return kNoNode;
    touch(same);
    return static_cast<int>(tokens.size()) < layout_.node_tokens ? kNoNode : same;
  }
  // A partial node that these tokens continue has nothing they do not have.
  if (next != above.children.begin() && starts_with(tokens, std::prev(next)->first)) {
    NodeId shorter = std::prev(next)->second;
    if (node(shorter).unsettled > 0) return kNoNode;
    // Its parent may be a root that would go with its last child; the new node comes first.
    NodeId made = make_node(parent, above.root, above.end(), tokens);
    remove(shorter);
    return made;
  }
  return make_node(parent, above.root, above.end(), tokens);
}

NodeId PrefixTree::make_node(NodeId parent, int root, int start, std::span<const Token> tokens) {
  NodeId id;
  if (spare_.empty()) {
    id = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back();
  } else {
    id = spare_.back();
    spare_.pop_back();
  }
  TreeNode& made = node(id);
  made.parent = parent;
  made.root = root;
  made.start = start;
  made.tokens.assign(tokens.begin(), tokens.end());
  made.birth = ++uses_;
  ++live_;
  if (parent != kNoNode) {
    made.pages.assign(static_cast<size_t>(slots_.back().first + slots_.back().second), kNoPage);
    if (chains_) {
      const TreeNode& above = node(parent);
      made.chain = chain_of(above.parent == kNoNode ? key(root) : above.chain, tokens);
    }
    change(parent, [&](TreeNode& above) {
      above.children.emplace(made.tokens, id);
      ++above.children_here;
    });
    touch(id);
    tell(CacheChange::Kind::stored, made);
  }
  return id;
}

// A node without children. Its pages go back; so does its root if it was the last below it.
void PrefixTree::erase_node(NodeId id) {
  TreeNode& gone = node(id);
  CHECK(gone.children.empty() && gone.users == 0 && (gone.unsettled == 0 || gone.away),
        "erasing node {} with {} children, {} users, {} moves", id, gone.children.size(), gone.users, gone.unsettled);
  tell(CacheChange::Kind::removed, gone);
  leave_queue(id);
  int pages = pages_in(gone);
  for (PageId page : gone.pages)
    if (page != kNoPage) (gone.away ? away_ : here_).drop(page);
  if (!gone.away) {
    count_pages(gone.root, -pages);
    evictable_ -= pages;
  }
  NodeId parent = gone.parent;
  int root = gone.root;
  if (parent != kNoNode)
    change(parent, [&](TreeNode& above) {
      above.children.erase(gone.tokens);
      if (!gone.away) --above.children_here;
    });
  gone = TreeNode{};
  spare_.push_back(id);
  --live_;
  if (parent != kNoNode && node(parent).parent == kNoNode && node(parent).children.empty()) {
    Root& last = roots_[static_cast<size_t>(root)];
    by_pages_.erase({last.pages, root});
    root_of_.erase(last.key);
    spare_roots_.push_back(root);
    node(parent) = TreeNode{};
    spare_.push_back(parent);
    --live_;
  }
}

void PrefixTree::remove(NodeId id) {
  std::vector<NodeId> below = {id};
  for (size_t next = 0; next < below.size(); ++next)
    for (const auto& [tokens, child] : node(below[next]).children) below.push_back(child);
  for (size_t index = below.size(); index-- > 0;) erase_node(below[index]);
}

// ---- who may be evicted ----

void PrefixTree::leave_queue(NodeId id) {
  const TreeNode& at = node(id);
  if (at.parent == kNoNode) return;
  Order order{at.worth, at.used, id};
  if (at.away) {
    idle_away_.erase(order);
  } else {
    idle_.erase(order);
    roots_[static_cast<size_t>(at.root)].idle.erase(order);
  }
}

// Nobody uses it and nothing that would have to go first is below it.
bool PrefixTree::may_go(const TreeNode& at) const {
  return at.users == 0 && at.unsettled == 0 && (at.away ? at.children.empty() : at.children_here == 0);
}

void PrefixTree::join_queue(NodeId id) {
  const TreeNode& at = node(id);
  if (at.parent == kNoNode || !may_go(at)) return;
  Order order{at.worth, at.used, id};
  (at.away ? idle_away_ : idle_).insert(order);
  if (!at.away) roots_[static_cast<size_t>(at.root)].idle.insert(order);
}

void PrefixTree::touch(NodeId id) {
  change(id, [&](TreeNode& at) {
    at.worth = clock_ + recompute_seconds(at);
    at.used = ++uses_;
  });
}

void PrefixTree::pin(NodeId id) {
  change(id, [&](TreeNode& at) {
    if (at.users++ == 0 && !at.away) evictable_ -= pages_in(at);
  });
}

void PrefixTree::unpin(NodeId id) {
  CHECK(node(id).users > 0, "node {} has no users", id);
  change(id, [&](TreeNode& at) {
    if (--at.users == 0 && !at.away) evictable_ += pages_in(at);
  });
}

void PrefixTree::put(NodeId id, int slot, PageId page) {
  TreeNode& at = node(id);
  PageId& place = at.pages[static_cast<size_t>(slot)];
  CHECK(!at.away && place == kNoPage, "node {} has a page in slot {} already", id, slot);
  here_.keep(page);
  place = page;
  count_pages(at.root, 1);
  if (at.users == 0) ++evictable_;
}

void PrefixTree::loosen(NodeId id, int slot) { loose_.insert({node(id).worth, node(id).birth, id, slot}); }

void PrefixTree::count_pages(int root, int change) {
  Root& at = roots_[static_cast<size_t>(root)];
  by_pages_.erase({at.pages, root});
  at.pages += change;
  by_pages_.emplace(at.pages, root);
}

int PrefixTree::pages_in(const TreeNode& at) const {
  return static_cast<int>(std::count_if(at.pages.begin(), at.pages.end(), [](PageId page) { return page != kNoPage; }));
}

int PrefixTree::pages_of(const Identity& key) const {
  auto found = root_of_.find(key);
  return found == root_of_.end() ? 0 : roots_[static_cast<size_t>(found->second)].pages;
}

std::vector<NodeId> PrefixTree::all() const {
  std::vector<NodeId> order;
  for (const auto& [key, index] : root_of_) order.push_back(roots_[static_cast<size_t>(index)].node);
  for (size_t next = 0; next < order.size(); ++next)
    for (const auto& [tokens, child] : node(order[next]).children) order.push_back(child);
  return order;
}

}  // namespace millrace

// PrefixTree: what the cache remembers of tokens already computed, so that the next sequence starting with them need
// not compute them again. A node is a stretch of node_tokens tokens and the pages that hold them, its children continue
// it; one root stands for each identity (tenant and adapter), and nothing is ever found under another root. Tokens
// themselves are compared on the way down, so a match is a match.
//
// A node is whole, or partial: fewer tokens, no children, and to be copied rather than shared. It is here (pages of the
// pool) or away (pages of the second store). What always holds: whoever is here has a parent that is here; a node with
// users is here; no partial node's tokens begin those of a sibling. Integers only. Engine thread only.
//
// Eviction goes from the leaves up, least worth first. Worth is what a node would cost to compute again, counted from
// the worth of the last one evicted (GreedyDual), so it is least recently used among equals and unused costly ones do
// not stay for ever. Roots that hold more than their share of the pool pay first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "base/token.h"
#include "cache/cache_change.h"
#include "cache/identity.h"
#include "cache/page_pool.h"
#include "cache/spec.h"

namespace millrace {

// What decides between computing again and moving out and back, in seconds. Kept up to date by the scheduler.
struct CacheCosts {
  double token = 1e-4;   // computing a token
  double context = 0;    // more, for each token before it
  double page_move = 0;  // moving a page, one way
};

struct CacheCounters {
  int64_t evictions = 0;  // nodes that left the pool
  int64_t moved_out = 0;  // pages, to the second store
  int64_t moved_in = 0;   // pages, back
  int64_t lost_away = 0;  // nodes dropped from the second store to make room
  int64_t copies = 0;     // pages copied because somebody else goes on from the same partial page
  int64_t stripped = 0;   // windowed pages and snapshots taken out of nodes that stay
  int64_t failed_moves = 0;
};

struct TreeNode {
  NodeId parent = kNoNode;
  int root = -1;
  int start = 0;              // position of its first token
  std::vector<Token> tokens;  // node_tokens, or fewer if partial; none at a root
  std::vector<PageId> pages;  // by slot (PrefixTree::slots); kNoPage where nothing is kept
  int users = 0;              // sequences that share its pages
  int unsettled = 0;          // moves of its pages not yet known to have worked
  int children_here = 0;
  bool away = false;
  double worth = 0;    // as long as it is not used again
  uint64_t used = 0;   // when it was used last, in uses
  uint64_t birth = 0;  // 0: the node does not exist
  Identity chain;      // of the root's key and all tokens to its end, if the tree keeps chains

  struct Before {
    bool operator()(std::span<const Token> a, std::span<const Token> b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  std::map<std::span<const Token>, NodeId, Before> children;  // keys are the children's tokens

  int end() const { return start + static_cast<int>(tokens.size()); }
};

// What the tree has of some tokens.
struct FoundPrefix {
  std::vector<NodeId> path;  // whole nodes, from the first token on
  NodeId partial = kNoNode;  // a node whose first tokens continue the path
  int partial_tokens = 0;
};

class PrefixTree {
 public:
  PrefixTree(const CacheLayout& layout, PagePool& here, PagePool& away, std::vector<PageMove>& moves);

  // From now on every whole node has its chain, and what becomes of them is appended to `changes` unless that is null.
  // Before the first node.
  void keep_chains(std::vector<CacheChange>* changes) {
    chains_ = true;
    changes_ = changes;
  }

  FoundPrefix find(const Identity& root, std::span<const Token> tokens) const;
  NodeId root(const Identity& key);  // made if there is none

  // The child of `parent` with these tokens, made without pages if there is none. kNoNode if it cannot be had now: a
  // move of it is unsettled, or (partial tokens) a sibling has them already.
  NodeId extend(NodeId parent, std::span<const Token> tokens);
  TreeNode& node(NodeId id) { return nodes_[static_cast<size_t>(id)]; }
  const TreeNode& node(NodeId id) const { return nodes_[static_cast<size_t>(id)]; }
  bool whole(const TreeNode& node) const { return static_cast<int>(node.tokens.size()) == layout_.node_tokens; }

  // Pages of a group inside a node: slots(g).first, .second of them.
  std::pair<int, int> slots(int group) const { return slots_[static_cast<size_t>(group)]; }
  void put(NodeId id, int slot, PageId page);  // the tree becomes one more holder
  void forget_away(NodeId id);                 // gives its place in the second store back: it is here, without pages

  void pin(NodeId id);  // one more user
  void unpin(NodeId id);
  void touch(NodeId id);             // used now: its worth starts anew
  void loosen(NodeId id, int slot);  // the sequence no longer needs this page: it may be taken out of a node that stays

  bool evict();                             // makes at least one page free, or none can be: false
  bool bring_in(NodeId id, int64_t owner);  // false: no pages for it. Its path must be pinned
  void settle(std::span<const PageMove> moves, std::span<const uint8_t> failed);  // a step's moves are done
  void remove(NodeId id);  // with everything below; nobody may use it

  void set_costs(const CacheCosts& costs) { costs_ = costs; }
  const CacheCosts& costs() const { return costs_; }
  CacheCounters& counters() { return counters_; }
  const CacheCounters& counters() const { return counters_; }
  int nodes() const { return live_; }
  std::vector<NodeId> all() const;  // parents before children, roots included
  const Identity& key(int root) const { return roots_[static_cast<size_t>(root)].key; }
  int pages_of(const Identity& key) const;      // of the pool, held by one root
  int evictable() const { return evictable_; }  // pages that evict() could free, at least

  // Everything that is said above holds, given the users of each node id below ids(); adds the tree's holdings to the
  // counts per page.
  Result<void> check(std::vector<int>& here, std::vector<int>& away, std::span<const int> users) const;
  int ids() const { return static_cast<int>(nodes_.size()); }

 private:
  using Order = std::tuple<double, uint64_t, NodeId>;
  struct Root {
    Identity key;
    NodeId node = kNoNode;
    int pages = 0;         // of the pool
    std::set<Order> idle;  // nodes that may be evicted
  };
  struct Loose {  // a page that may be taken out of a node that stays; outdated if the node is not that old
    double worth;
    uint64_t birth;
    NodeId node;
    int slot;
    auto operator<=>(const Loose&) const = default;
  };

  NodeId make_node(NodeId parent, int root, int start, std::span<const Token> tokens);
  void erase_node(NodeId id);
  void leave_queue(NodeId id);
  void join_queue(NodeId id);
  // f may change what decides whether a node is idle.
  template <class F>
  void change(NodeId id, F&& f) {
    leave_queue(id);
    f(node(id));
    join_queue(id);
  }
  double recompute_seconds(const TreeNode& node) const;
  std::optional<NodeId> least_worthy();
  bool strip();
  bool make_room_away(int pages, double worth);
  void move_out(NodeId id);
  void count_pages(int root, int change);
  void tell(CacheChange::Kind kind, const TreeNode& node);
  int pages_in(const TreeNode& node) const;
  bool may_go(const TreeNode& node) const;
  bool check_queue(const std::set<Order>& queue, bool away, int root) const;
  Result<void> check_node(NodeId id, std::vector<int>& here, std::vector<int>& away) const;

  const CacheLayout& layout_;
  PagePool& here_;
  PagePool& away_;
  std::vector<PageMove>& moves_;
  CacheCosts costs_;
  CacheCounters counters_;
  std::vector<std::pair<int, int>> slots_;
  std::deque<TreeNode> nodes_;  // references stay valid; ids are used again
  std::vector<NodeId> spare_;
  std::vector<Root> roots_;
  std::vector<int> spare_roots_;
  std::map<Identity, int> root_of_;
  std::set<std::pair<int, int>> by_pages_;  // (pages, root)
  std::set<Order> idle_;                    // here, without users or children here
  std::set<Order> idle_away_;               // away, without children
  std::set<Loose> loose_;
  double clock_ = 0;  // worth of the last node evicted
  uint64_t uses_ = 0;
  int live_ = 0;
  int evictable_ = 0;
  bool chains_ = false;
  std::vector<CacheChange>* changes_ = nullptr;
};

// The chain of a node: that of the node before it (of the first, the root's key) and its tokens.
Identity chain_of(const Identity& before, std::span<const Token> tokens);

}  // namespace millrace

// KvCache: who holds which pages. It answers the scheduler's questions (is there room, what can be reused) for every
// kind of cache at once, and says which page copies a step needs. It deals in page ids only; a Store has the bytes, and
// whoever runs the steps carries out the moves it is given: `take_moves()` before the step they were planned with,
// `take_snapshots()` after it, each list in order. Engine thread only.
//
// A sequence writes only to pages it holds alone; pages of whole nodes are shared and never written again. reserve() is
// idempotent: call it, make room, call it again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/identity.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/prefix_tree.h"
#include "cache/spec.h"

namespace millrace {

// What one sequence holds. Made and changed by KvCache only; the scheduler keeps it beside its tokens.
struct SequencePages {
  int64_t owner = -1;  // stands in moves, so that a failed one can be traced to its sequence
  Identity root;
  std::vector<PageTable> tables;  // one per group
  std::vector<NodeId> path;       // nodes of the tree whose pages these are, from the first token on
  int from_second = 0;            // tokens that reuse_prefix() took over last and that were in the second store

  // Recurrent groups: the position the working state (entry 0 of their tables) stands at, the state before drafted
  // tokens, and states kept at the positions where a prefix may be reused. Pages are by recurrent group.
  struct State {
    int position = -1;
    std::vector<PageId> pages;
  };
  int state_at = 0;
  int mark = 0;  // a state is kept here too; 0: nowhere
  State saved;
  std::vector<State> snapshots;

  bool empty() const;  // holds nothing
};

struct KvUse {
  int64_t reserved_bytes = 0;  // of the pages held
  int64_t used_bytes = 0;      // of them, by tokens that are computed and may still be read
};

class KvCache {
 public:
  // `second_pages` in the second store; 0: none, and evicted pages are dropped. Where it looks back, the last token of
  // a prefix that is found is computed again, in pages of one's own, though what is kept of it is there: for layers
  // that need of the token before what only computing it gives. 0 or 1; states cannot go back.
  KvCache(CacheLayout layout, int pages, int second_pages, int look_back = 0);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  SequencePages open(int64_t owner, const Identity& root) const;

  // Takes over what is cached of the tokens, at most all but the last (something must be computed to go on). Returns
  // how many tokens need not be computed; where the cache looks back, one less than what is kept of is there. The
  // sequence must hold nothing.
  int reuse_prefix(SequencePages& sequence, std::span<const Token> tokens);
  int cached(const Identity& root, std::span<const Token> tokens) const;  // how many that would be now
  // Room to compute [begin, upto), everything before `begin` being computed. With `checkpoint`, rollback() may go back
  // to `begin`. False: no room; what was taken stays taken, so that the next call needs less.
  bool reserve(SequencePages& sequence, int begin, int upto, bool checkpoint = false);
  // Where a step that begins at `begin` had better end so that its state can be reused; `upto` if it does not matter.
  int step_end(int begin, int upto, int mark = 0) const;
  // Where a prompt of so many tokens had better keep its state: the next turn may leave it anywhere after.
  int mark_of(int prompt) const {
    return recurrent_.empty() ? 0 : (prompt - 1) / layout_.node_tokens * layout_.node_tokens;
  }
  // Makes whole nodes of the first `computed` tokens known to others.
  void publish(SequencePages& sequence, std::span<const Token> tokens, int computed);
  // The child takes over what is kept of the first `upto` tokens of the parent, sharing whole pages and copying the
  // last partial ones. Returns how many tokens need not be computed, as reuse_prefix() does; 0 if it cannot be (then
  // try that).
  int fork(const SequencePages& parent, SequencePages& child, int upto);
  // Forgets what was computed at `upto` and later. Returns where computing must go on: upto, or earlier if a state
  // cannot stop there.
  int rollback(SequencePages& sequence, int upto);
  void release(SequencePages& sequence);
  // publish() to the last token, then release().
  void retire(SequencePages& sequence, std::span<const Token> tokens, int computed);

  std::vector<PageMove> take_moves() { return std::exchange(moves_, {}); }
  std::vector<PageCopy> take_snapshots() { return std::exchange(snapshot_copies_, {}); }
  bool has_moves() const { return !moves_.empty(); }
  // The moves were carried out; failed[i] != 0: that one was not. Sequences that own a failed `in` must be released
  // before.
  void settle(std::span<const PageMove> moves, std::span<const uint8_t> failed) { tree_.settle(moves, failed); }

  // Puts a node back that was saved: under `parent`, or the root if there is none. Returns for each slot present the
  // page to be filled, or kNoPage where nothing is to be done. `made` is the node with these tokens, kNoNode if there
  // is no room.
  std::vector<PageId> restore(const Identity& root, NodeId parent, std::span<const Token> tokens,
                              std::span<const uint8_t> present, NodeId& made);

  const CacheLayout& layout() const { return layout_; }
  int look_back() const { return look_back_; }
  const PagePool& pool() const { return pool_; }
  const PagePool& second() const { return second_; }
  const PrefixTree& tree() const { return tree_; }
  PrefixTree& tree() { return tree_; }
  const CacheCounters& counters() const { return tree_.counters(); }
  void set_costs(const CacheCosts& costs) { tree_.set_costs(costs); }
  int room() const { return pool_.free() + tree_.evictable(); }  // pages that could be had now
  // Pages still to take at the most to compute so many tokens, `chunk` in a step.
  int missing(const SequencePages& sequence, int upto, int chunk) const;
  // Pages a sequence of so many tokens holds at the most, on its way there and alone.
  int most_pages(int tokens, int chunk, bool checkpoints) const;
  KvUse use(const SequencePages& sequence, int computed) const;

  // Counts, sharing and queues are right, given every sequence that holds anything and how much of it is computed.
  struct Holder {
    const SequencePages* sequence;
    int computed;
  };
  Result<void> check(std::span<const Holder> holders) const;

 private:
  PageId take_page();
  bool take_pages(int count, std::vector<PageId>& pages);  // all or none
  std::pair<NodeId, int> slot_of(std::span<const NodeId> path, NodeId partial, int group, int entry) const;
  bool usable(const FoundPrefix& found, int nodes, int partial) const;
  void trim(FoundPrefix& found) const;
  int length(const FoundPrefix& found) const;
  int begin_after(int end) const;  // what is computed first, of a prefix that ends there
  int length_here(const FoundPrefix& found) const;
  size_t searched(size_t tokens) const { return tokens - 1 + static_cast<size_t>(look_back_); }
  bool adopt(SequencePages& sequence, FoundPrefix& found);
  size_t hold(const FoundPrefix& found, int64_t owner);
  void fill_tables(SequencePages& sequence, const FoundPrefix& found, std::vector<PageId>& fresh);
  void loosen_unneeded(const SequencePages& sequence, int begin);
  void leave_window(SequencePages& sequence, int begin);
  bool save_state(SequencePages& sequence, int begin);
  void plan_snapshot(SequencePages& sequence, int upto);
  void share_node(SequencePages& sequence, NodeId id);
  void put_states(const SequencePages& sequence, NodeId id, bool working);
  void drop_state(SequencePages::State& state);
  Result<void> check_sequence(const Holder& holder, std::vector<int>& counts,
                              std::vector<std::pair<int, int>>& places) const;

  CacheLayout layout_;
  int look_back_ = 0;
  std::vector<int> recurrent_;  // indices of recurrent groups
  PagePool pool_, second_;
  std::vector<PageMove> moves_;
  std::vector<PageCopy> snapshot_copies_;
  PrefixTree tree_;
};

}  // namespace millrace

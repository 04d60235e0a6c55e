#include "cache/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "cache/planted.h"

namespace millrace {

bool SequencePages::empty() const {
  return path.empty() &&
         std::all_of(tables.begin(), tables.end(), [](const PageTable& table) { return table.size() == 0; });
}

KvCache::KvCache(CacheLayout layout, int pages, int second_pages, int look_back)
    : layout_(std::move(layout)),
      look_back_(layout_.resumes_anywhere() ? look_back : 0),
      pool_(pages),
      second_(second_pages),
      tree_(layout_, pool_, second_, moves_) {
  for (size_t group = 0; group < layout_.groups.size(); ++group)
    if (layout_.groups[group].recurrent()) recurrent_.push_back(static_cast<int>(group));
}

SequencePages KvCache::open(int64_t owner, const Identity& root) const {
  SequencePages sequence;
  sequence.owner = owner;
  sequence.root = root;
  for (const auto& group : layout_.groups) sequence.tables.emplace_back(group.page_tokens, group.pinned());
  return sequence;
}

PageId KvCache::take_page() {
  PageId page = pool_.take();
  while (page == kNoPage && tree_.evict()) page = pool_.take();
  return page;
}

bool KvCache::take_pages(int count, std::vector<PageId>& pages) {
  for (int taken = 0; taken < count; ++taken) {
    PageId page = take_page();
    if (page == kNoPage) {
      for (; taken > 0; --taken) {
        pool_.drop(pages.back());
        pages.pop_back();
      }
      return false;
    }
    pages.push_back(page);
  }
  return true;
}

// The node and its slot that hold an entry of a group's table.
std::pair<NodeId, int> KvCache::slot_of(std::span<const NodeId> path, NodeId partial, int group, int entry) const {
  int page_tokens = layout_.groups[static_cast<size_t>(group)].page_tokens;
  int position = entry * page_tokens, node = position / layout_.node_tokens;
  int slot = tree_.slots(group).first + position % layout_.node_tokens / page_tokens;
  return {node < static_cast<int>(path.size()) ? path[static_cast<size_t>(node)] : partial, slot};
}

// ---- finding and taking over a prefix ----

int KvCache::length(const FoundPrefix& found) const {
  return static_cast<int>(found.path.size()) * layout_.node_tokens + found.partial_tokens;
}

// Of what was found, the tokens that are in the pool: whoever is here has a parent that is here.
int KvCache::length_here(const FoundPrefix& found) const {
  int nodes = 0;
  for (; nodes < static_cast<int>(found.path.size()); ++nodes)
    if (tree_.node(found.path[static_cast<size_t>(nodes)]).away) return nodes * layout_.node_tokens;
  const bool whole = found.partial != kNoNode && !tree_.node(found.partial).away;
  return nodes * layout_.node_tokens + (whole ? found.partial_tokens : 0);
}

int KvCache::begin_after(int end) const { return PLANTED(look_back_forgotten) ? end : std::max(0, end - look_back_); }

// Could a sequence go on after so many whole nodes and so many tokens of the node after them? Pages of every token are
// in every node; windowed pages and states may have been taken out.
bool KvCache::usable(const FoundPrefix& found, int nodes, int partial) const {
  int end = nodes * layout_.node_tokens + partial;
  if (end == 0) return true;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    int g = static_cast<int>(index);
    if (group.recurrent()) {
      const TreeNode& last = tree_.node(partial > 0 ? found.partial : found.path[static_cast<size_t>(nodes) - 1]);
      if (last.end() != end || last.pages[static_cast<size_t>(tree_.slots(g).first)] == kNoPage) return false;
    } else if (group.windowed()) {
      for (int entry = 0; entry < group.pages_for(end); ++entry) {
        if (group.forgets(entry, begin_after(end))) {
          entry = group.first_needed(begin_after(end)) - 1;
          continue;
        }
        auto [id, slot] = slot_of(found.path, found.partial, g, entry);
        if (tree_.node(id).pages[static_cast<size_t>(slot)] == kNoPage) return false;
      }
    }
  }
  return true;
}

void KvCache::trim(FoundPrefix& found) const {
  int nodes = static_cast<int>(found.path.size());
  if (found.partial != kNoNode && usable(found, nodes, found.partial_tokens)) return;
  found.partial = kNoNode;
  found.partial_tokens = 0;
  while (!usable(found, nodes, 0)) --nodes;
  found.path.resize(static_cast<size_t>(nodes));
  if (look_back_ == 0 || nodes == 0) return;
  // The end of the last node is written again, so that node is only read from.
  found.partial = found.path.back();
  found.partial_tokens = layout_.node_tokens;
  found.path.pop_back();
}

int KvCache::reuse_prefix(SequencePages& sequence, std::span<const Token> tokens) {
  CHECK(sequence.empty(), "a sequence that holds pages cannot take over others");
  sequence.from_second = 0;
  if (tokens.size() < 2) return 0;
  FoundPrefix found = tree_.find(sequence.root, tokens.first(searched(tokens.size())));
  const int here = length_here(found);
  do {
    trim(found);
    if (begin_after(length(found)) == 0) return 0;
  } while (!adopt(sequence, found));
  const int reused = begin_after(length(found));
  sequence.from_second = std::max(0, reused - here);
  return reused;
}

int KvCache::cached(const Identity& root, std::span<const Token> tokens) const {
  if (tokens.size() < 2) return 0;
  FoundPrefix found = tree_.find(root, tokens.first(searched(tokens.size())));
  trim(found);
  return begin_after(length(found));
}

// Pins what was found and brings in what is away. Returns how many nodes (the partial one last) are now here.
size_t KvCache::hold(const FoundPrefix& found, int64_t owner) {
  std::vector<NodeId> nodes = found.path;
  if (found.partial != kNoNode) nodes.push_back(found.partial);
  for (NodeId id : nodes) tree_.pin(id);
  size_t here = 0;
  while (here < nodes.size() && (!tree_.node(nodes[here]).away || tree_.bring_in(nodes[here], owner))) ++here;
  return here;
}

// False: there was no room for all of it, and less is left to be tried.
bool KvCache::adopt(SequencePages& sequence, FoundPrefix& found) {
  size_t here = hold(found, sequence.owner);
  int end = length(found), begin = begin_after(end), copies = static_cast<int>(recurrent_.size());
  for (const auto& group : layout_.groups)
    if (!group.recurrent()) copies += group.pages_for(end) - begin / group.page_tokens;
  if (PLANTED(partial_page_shared)) copies = 0;
  std::vector<PageId> fresh;
  bool all = here == found.path.size() + (found.partial != kNoNode) && take_pages(copies, fresh);
  // Making room may have taken windowed pages or states out of these very nodes.
  if (all && !usable(found, static_cast<int>(found.path.size()), found.partial_tokens)) {
    for (PageId page : fresh) pool_.drop(page);
    all = false;
  }
  if (all) fill_tables(sequence, found, fresh);
  if (found.partial != kNoNode) tree_.unpin(found.partial);
  if (all) return true;

  for (NodeId id : found.path) tree_.unpin(id);
  if (found.partial == kNoNode) found.path.resize(std::min(here, found.path.size() - 1));
  found.path.resize(std::min(here, found.path.size()));
  found.partial = kNoNode;
  found.partial_tokens = 0;
  return false;
}

// Whole pages are shared, a page only partly used is copied, and so is a state: the sequence will write to it.
void KvCache::fill_tables(SequencePages& sequence, const FoundPrefix& found, std::vector<PageId>& fresh) {
  const int end = length(found), begin = begin_after(end);
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    PageTable& table = sequence.tables[index];
    int whole = group.recurrent() ? 0 : begin / group.page_tokens;
    for (int entry = 0; entry < group.pages_for(end); ++entry) {
      NodeId id = found.partial_tokens > 0 ? found.partial : found.path.back();
      int slot = tree_.slots(static_cast<int>(index)).first;
      if (!group.recurrent()) std::tie(id, slot) = slot_of(found.path, found.partial, static_cast<int>(index), entry);
      const bool forgotten = group.forgets(entry, begin);
      PageId page = forgotten ? kNoPage : tree_.node(id).pages[static_cast<size_t>(slot)];
      CHECK(forgotten || page != kNoPage, "node {} has nothing in slot {}", id, slot);
      if (entry >= whole && !PLANTED(partial_page_shared)) {
        PageId copy = fresh.back();
        fresh.pop_back();
        moves_.push_back({PageMove::Kind::copy, page, copy, sequence.owner});
        tree_.counters().copies += 1;
        page = copy;
      } else if (page != kNoPage && !PLANTED(reference_missed)) {
        pool_.keep(page);
      }
      table.push(page);
    }
  }
  for (NodeId id : found.path) tree_.touch(id);
  if (found.partial != kNoNode) tree_.touch(found.partial);
  sequence.path = found.path;
  sequence.state_at = end;
  loosen_unneeded(sequence, begin);
}

// Windowed pages and states of nodes that stay pinned for their other pages: the sequence does not read them.
void KvCache::loosen_unneeded(const SequencePages& sequence, int begin) {
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    if (!group.windowed() && !group.recurrent()) continue;
    auto [first, count] = tree_.slots(static_cast<int>(index));
    for (NodeId id : sequence.path) {
      const TreeNode& node = tree_.node(id);
      for (int slot = first; slot < first + count; ++slot) {
        bool read = group.windowed() && !group.forgets(node.start / group.page_tokens + slot - first, begin);
        if (!read && node.pages[static_cast<size_t>(slot)] != kNoPage) tree_.loosen(id, slot);
      }
    }
  }
}

int KvCache::fork(const SequencePages& parent, SequencePages& child, int upto) {
  CHECK(child.empty(), "a sequence that holds pages cannot take over others");
  const int begin = begin_after(upto);
  if (!recurrent_.empty() || begin <= 0) return 0;
  int copies = 0;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    const PageTable& table = parent.tables[index];
    if (table.size() < group.pages_for(upto) || table.first() > group.first_needed(begin)) return 0;
    copies += group.pages_for(upto) - begin / group.page_tokens;
  }
  std::vector<PageId> fresh;
  if (!take_pages(copies, fresh)) return 0;
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    for (int entry = 0; entry < group.pages_for(upto); ++entry) {
      PageId page = group.forgets(entry, begin) ? kNoPage : parent.tables[index][entry];
      if (entry >= begin / group.page_tokens) {
        moves_.push_back({PageMove::Kind::copy, page, fresh.back(), child.owner});
        page = fresh.back();
        fresh.pop_back();
        tree_.counters().copies += 1;
      } else if (page != kNoPage) {
        pool_.keep(page);
      }
      child.tables[index].push(page);
    }
  }
  size_t shared = std::min(parent.path.size(), static_cast<size_t>(begin / layout_.node_tokens));
  child.path.assign(parent.path.begin(), parent.path.begin() + static_cast<ptrdiff_t>(shared));
  for (NodeId id : child.path) tree_.pin(id);
  return begin;
}

// ---- room to compute ----

void KvCache::leave_window(SequencePages& sequence, int begin) {
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    const CacheGroup& group = layout_.groups[index];
    PageTable& table = sequence.tables[index];
    int first = std::min(table.size(), group.first_needed(begin) + (PLANTED(window_too_short) && group.windowed()));
    for (int entry = group.pinned() + table.gap(); entry < first; entry = std::max(entry + 1, table.first())) {
      PageId page = table.replace(entry, kNoPage);
      if (page == kNoPage) continue;
      pool_.drop(page);
      if (entry * group.page_tokens / layout_.node_tokens < static_cast<int>(sequence.path.size())) {
        auto [id, slot] = slot_of(sequence.path, kNoNode, static_cast<int>(index), entry);
        tree_.loosen(id, slot);
      }
    }
  }
}

bool KvCache::reserve(SequencePages& sequence, int begin, int upto, bool checkpoint) {
  leave_window(sequence, begin);
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    PageTable& table = sequence.tables[index];
    while (table.size() < layout_.groups[index].pages_for(upto)) {
      PageId page = take_page();
      if (page == kNoPage) return false;
      table.push(page);
    }
  }
  if (recurrent_.empty()) return true;
  if (checkpoint && !save_state(sequence, begin)) return false;
  plan_snapshot(sequence, upto);
  sequence.state_at = upto;
  return true;
}

// Keeps the state before drafted tokens, so that rollback() can return to it. The empty state needs no page.
bool KvCache::save_state(SequencePages& sequence, int begin) {
  if (sequence.saved.position == begin) return true;
  drop_state(sequence.saved);
  if (begin > 0 && !take_pages(static_cast<int>(recurrent_.size()), sequence.saved.pages)) return false;
  sequence.saved.position = begin;
  for (size_t index = 0; index < sequence.saved.pages.size(); ++index)
    moves_.push_back({PageMove::Kind::copy, sequence.tables[static_cast<size_t>(recurrent_[index])][0],
                      sequence.saved.pages[index], sequence.owner});
  return true;
}

// If the step ends where states are kept, its state is copied after it. No page for that is no reason to wait. Copies
// that nobody knows yet are as many as CacheLayout::kept_pages() has room for: whoever never publishes stays within it.
constexpr size_t kMostSnapshots = 2;
void KvCache::plan_snapshot(SequencePages& sequence, int upto) {
  if (upto != sequence.mark && upto % layout_.groups[static_cast<size_t>(recurrent_[0])].page_tokens != 0) return;
  if (!sequence.snapshots.empty() && sequence.snapshots.back().position >= upto) return;
  if (sequence.snapshots.size() >= kMostSnapshots) return;
  SequencePages::State state{upto, {}};
  if (!take_pages(static_cast<int>(recurrent_.size()), state.pages)) return;
  for (size_t index = 0; index < state.pages.size(); ++index)
    snapshot_copies_.push_back({sequence.tables[static_cast<size_t>(recurrent_[index])][0], state.pages[index]});
  sequence.snapshots.push_back(std::move(state));
}

int KvCache::step_end(int begin, int upto, int mark) const {
  if (recurrent_.empty()) return upto;
  int distance = layout_.groups[static_cast<size_t>(recurrent_[0])].page_tokens;
  if (mark > begin) upto = std::min(upto, mark);
  return std::min(upto, (begin / distance + 1) * distance);
}

int KvCache::rollback(SequencePages& sequence, int upto) {
  if (!recurrent_.empty() && upto < sequence.state_at) {
    CHECK(sequence.saved.position >= 0 && sequence.saved.position <= upto, "no state was kept before position {}",
          upto);
    // The state before the drafts becomes the working one; a snapshot taken after them is of tokens that never were.
    for (size_t index = 0; index < sequence.saved.pages.size(); ++index)
      pool_.drop(sequence.tables[static_cast<size_t>(recurrent_[index])].replace(0, sequence.saved.pages[index]));
    upto = sequence.state_at = sequence.saved.position;
    sequence.saved = {};
    while (!sequence.snapshots.empty() && sequence.snapshots.back().position > upto) {
      drop_state(sequence.snapshots.back());
      sequence.snapshots.pop_back();
    }
  }
  for (size_t index = 0; index < layout_.groups.size(); ++index)
    while (!layout_.groups[index].recurrent() && sequence.tables[index].size() > layout_.groups[index].pages_for(upto))
      if (PageId page = sequence.tables[index].pop(); page != kNoPage) pool_.drop(page);
  return upto;
}

// ---- making known and giving back ----

// Puts the states that stand at the end of a node into it.
void KvCache::put_states(const SequencePages& sequence, NodeId id, bool working) {
  const TreeNode& node = tree_.node(id);
  for (size_t index = 0; index < recurrent_.size(); ++index) {
    int slot = tree_.slots(recurrent_[index]).first;
    if (node.pages[static_cast<size_t>(slot)] != kNoPage) continue;
    auto kept = std::find_if(sequence.snapshots.begin(), sequence.snapshots.end(),
                             [&](const auto& state) { return state.position == node.end(); });
    PageId page = kNoPage;
    if (kept != sequence.snapshots.end()) page = kept->pages[index];
    if (page == kNoPage && working && sequence.state_at == node.end())
      page = sequence.tables[static_cast<size_t>(recurrent_[index])][0];
    if (page == kNoPage) continue;
    tree_.put(id, slot, page);
    tree_.loosen(id, slot);
  }
}

// The sequence and the tree agree on one set of pages for a node: contents are equal, so the second copy goes.
void KvCache::share_node(SequencePages& sequence, NodeId id) {
  if (tree_.node(id).away) tree_.forget_away(id);
  TreeNode& node = tree_.node(id);
  for (size_t index = 0; index < layout_.groups.size(); ++index) {
    if (layout_.groups[index].recurrent()) continue;
    PageTable& table = sequence.tables[index];
    auto [slot, count] = tree_.slots(static_cast<int>(index));
    int entry = node.start / table.page_tokens();
    for (int offset = 0; offset < count && entry + offset < table.size(); ++offset) {
      PageId own = table[entry + offset], known = node.pages[static_cast<size_t>(slot + offset)];
      if (own == kNoPage || own == known) continue;
      if (known == kNoPage) {
        tree_.put(id, slot + offset, own);
      } else {
        pool_.keep(known);
        pool_.drop(table.replace(entry + offset, known));
      }
    }
  }
}

void KvCache::publish(SequencePages& sequence, std::span<const Token> tokens, int computed) {
  size_t size = static_cast<size_t>(layout_.node_tokens);
  while ((sequence.path.size() + 1) * size <= static_cast<size_t>(computed)) {
    NodeId parent = sequence.path.empty() ? tree_.root(sequence.root) : sequence.path.back();
    NodeId id = tree_.extend(parent, tokens.subspan(sequence.path.size() * size, size));
    if (id == kNoNode) break;
    tree_.pin(id);
    share_node(sequence, id);
    put_states(sequence, id, false);
    sequence.path.push_back(id);
  }
  int known = static_cast<int>(sequence.path.size() * size);
  while (!sequence.snapshots.empty() && sequence.snapshots.front().position <= known) {
    drop_state(sequence.snapshots.front());
    sequence.snapshots.erase(sequence.snapshots.begin());
  }
}

void KvCache::retire(SequencePages& sequence, std::span<const Token> tokens, int computed) {
  if (PLANTED(offered_too_much) && computed > 0 && computed % layout_.node_tokens != 0 &&
      computed < static_cast<int>(tokens.size()))
    ++computed;
  publish(sequence, tokens, computed);
  size_t known = sequence.path.size() * static_cast<size_t>(layout_.node_tokens);
  int rest = computed - static_cast<int>(known);
  if (rest == 0 && !sequence.path.empty()) put_states(sequence, sequence.path.back(), true);
  if (rest > 0 && rest < layout_.node_tokens) {
    NodeId parent = sequence.path.empty() ? tree_.root(sequence.root) : sequence.path.back();
    if (NodeId id = tree_.extend(parent, tokens.subspan(known, static_cast<size_t>(rest))); id != kNoNode) {
      // Only the pages with computed tokens; what was reserved beyond them holds nothing.
      for (size_t index = 0; index < layout_.groups.size(); ++index) {
        const CacheGroup& group = layout_.groups[index];
        if (group.recurrent()) continue;
        int first = static_cast<int>(known) / group.page_tokens, slot = tree_.slots(static_cast<int>(index)).first;
        for (int entry = first; entry < group.pages_for(computed); ++entry)
          if (PageId page = sequence.tables[index][entry]; page != kNoPage) tree_.put(id, slot + entry - first, page);
      }
      put_states(sequence, id, true);
    }
  }
  release(sequence);
}

void KvCache::drop_state(SequencePages::State& state) {
  for (PageId page : state.pages) pool_.drop(page);
  state = {};
}

void KvCache::release(SequencePages& sequence) {
  bool leaks = PLANTED(page_leaked);
  for (auto& table : sequence.tables) {
    for (PageId page : table.pages().subspan(0, table.pages().size() - (leaks && table.size() > 0)))
      if (page != kNoPage && !pool_.drop(page) && PLANTED(page_freed_early)) pool_.drop(page);
    table.clear();
  }
  for (size_t index = sequence.path.size(); index-- > 0;) tree_.unpin(sequence.path[index]);
  sequence.path.clear();
  drop_state(sequence.saved);
  for (auto& state : sequence.snapshots) drop_state(state);
  sequence.snapshots.clear();
  sequence.state_at = 0;
}

std::vector<PageId> KvCache::restore(const Identity& root, NodeId parent, std::span<const Token> tokens,
                                     std::span<const uint8_t> present, NodeId& made) {
  auto count = static_cast<int>(std::count(present.begin(), present.end(), 1));
  std::vector<PageId> pages(static_cast<size_t>(count), kNoPage);
  made = kNoNode;
  if (count > pool_.free()) return pages;
  made = tree_.extend(parent == kNoNode ? tree_.root(root) : parent, tokens);
  if (made == kNoNode || tree_.node(made).away) return pages;
  size_t next = 0;
  for (size_t slot = 0; slot < present.size(); ++slot) {
    if (present[slot] == 0) continue;
    PageId& page = pages[next++];
    if (tree_.node(made).pages[slot] != kNoPage) continue;
    page = pool_.take();
    tree_.put(made, static_cast<int>(slot), page);
    pool_.drop(page);  // the tree alone holds it
  }
  return pages;
}

}  // namespace millrace

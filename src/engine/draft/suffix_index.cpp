#include "engine/draft/suffix_index.h"

namespace millrace {

SuffixIndex::SuffixIndex() : states_(1), table_(64, -1) {}

size_t SuffixIndex::place(int32_t from, Token token) const {
  uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(token);
  key = (key ^ (key >> 31)) * 0x9E3779B97F4A7C15;
  return static_cast<size_t>(key ^ (key >> 29)) & (table_.size() - 1);
}

int32_t SuffixIndex::find(int32_t from, Token token) const {
  for (size_t at = place(from, token);; at = (at + 1) & (table_.size() - 1)) {
    const int32_t edge = table_[at];
    if (edge < 0) return -1;
    const Edge& found = edges_[static_cast<size_t>(edge)];
    if (found.from == from && found.token == token) return edge;
  }
}

int32_t SuffixIndex::target(int32_t from, Token token) const {
  const int32_t edge = find(from, token);
  return edge < 0 ? -1 : edges_[static_cast<size_t>(edge)].to;
}

void SuffixIndex::grow_table() {
  table_.assign(table_.size() * 2, -1);
  for (size_t i = 0; i < edges_.size(); ++i) {
    size_t at = place(edges_[i].from, edges_[i].token);
    while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
    table_[at] = static_cast<int32_t>(i);
  }
}

void SuffixIndex::connect(int32_t from, Token token, int32_t to) {
  if (const int32_t edge = find(from, token); edge >= 0) {
    edges_[static_cast<size_t>(edge)].to = to;
    return;
  }
  if ((edges_.size() + 1) * 3 > table_.size() * 2) grow_table();
  State& state = states_[static_cast<size_t>(from)];
  const auto edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({from, token, to, state.edges});
  state.edges = edge;
  size_t at = place(from, token);
  while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
  table_[at] = edge;
}

// The strings of `state` no longer than what `from` and `token` make get a state of their own.
int32_t SuffixIndex::split(int32_t from, Token token, int32_t state) {
  const auto copy = static_cast<int32_t>(states_.size());
  State made = states_[static_cast<size_t>(state)];
  made.length = states_[static_cast<size_t>(from)].length + 1;
  const int32_t first = made.edges;
  made.edges = -1;
  states_.push_back(made);
  for (int32_t edge = first; edge >= 0; edge = edges_[static_cast<size_t>(edge)].next)
    connect(copy, edges_[static_cast<size_t>(edge)].token, edges_[static_cast<size_t>(edge)].to);
  for (int32_t at = from; at >= 0 && target(at, token) == state; at = states_[static_cast<size_t>(at)].link)
    connect(at, token, copy);
  states_[static_cast<size_t>(state)].link = copy;
  return copy;
}

void SuffixIndex::add(Token token) {
  const auto fresh = static_cast<int32_t>(states_.size());
  State made;
  made.length = states_[static_cast<size_t>(last_)].length + 1;
  made.end = size();
  states_.push_back(made);
  text_.push_back(token);
  int32_t at = last_;
  for (; at >= 0 && find(at, token) < 0; at = states_[static_cast<size_t>(at)].link) connect(at, token, fresh);
  int32_t link = 0;
  if (at >= 0) {
    link = target(at, token);
    if (states_[static_cast<size_t>(link)].length != states_[static_cast<size_t>(at)].length + 1)
      link = split(at, token, link);
  }
  states_[static_cast<size_t>(fresh)].link = link;
  last_ = fresh;
}

SuffixIndex::Match SuffixIndex::read(Match match, Token token) const {
  while (true) {
    const int32_t next = target(match.state, token);
    if (next >= 0) return {next, match.length + 1};
    if (match.state == 0) return {};
    match.state = states_[static_cast<size_t>(match.state)].link;
    match.length = states_[static_cast<size_t>(match.state)].length;
  }
}

SuffixIndex::Match SuffixIndex::settled(Match match) const {
  for (int32_t link; (link = states_[static_cast<size_t>(match.state)].link) >= 0 &&
                     states_[static_cast<size_t>(link)].length >= match.length;)
    match.state = link;
  return match;
}

int32_t SuffixIndex::after(const Match& match) const {
  return match.length == 0 ? size() : states_[static_cast<size_t>(match.state)].end + 1;
}

int64_t SuffixIndex::bytes() const {
  return static_cast<int64_t>(text_.capacity() * sizeof(Token) + states_.capacity() * sizeof(State) +
                              edges_.capacity() * sizeof(Edge) + table_.capacity() * sizeof(int32_t));
}

}  // namespace millrace

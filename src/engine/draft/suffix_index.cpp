#include "engine/draft/suffix_index.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {

SuffixIndex::SuffixIndex(std::byte* memory, int32_t room) : room_(room) {
  static_assert(kTokenBytes == sizeof(Token) + 2 * sizeof(State) + 3 * sizeof(Edge) + 4 * sizeof(int32_t));
  CHECK(room > 0 && (room & (room - 1)) == 0, "room for {} tokens", room);
  states_ = reinterpret_cast<State*>(memory);
  edges_ = reinterpret_cast<Edge*>(states_ + int64_t{2} * room);
  table_ = reinterpret_cast<int32_t*>(edges_ + int64_t{3} * room);
  text_ = table_ + int64_t{4} * room;
  clear();
}

void SuffixIndex::clear() {
  size_ = edge_count_ = last_ = 0;
  if (room_ == 0) return;
  std::fill_n(table_, int64_t{4} * room_, -1);
  state(0) = State();
  state_count_ = 1;
}

size_t SuffixIndex::place(int32_t from, Token token) const {
  uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(token);
  key = (key ^ (key >> 31)) * 0x9E3779B97F4A7C15;
  return static_cast<size_t>(key ^ (key >> 29)) & (size_t{4} * static_cast<size_t>(room_) - 1);
}

int32_t SuffixIndex::find(int32_t from, Token token) const {
  const size_t last = size_t{4} * static_cast<size_t>(room_) - 1;
  for (size_t at = place(from, token);; at = (at + 1) & last) {
    const int32_t edge = table_[at];
    if (edge < 0) return -1;
    const Edge& found = edges_[edge];
    if (found.from == from && found.token == token) return edge;
  }
}

int32_t SuffixIndex::target(int32_t from, Token token) const {
  const int32_t edge = room_ == 0 ? -1 : find(from, token);
  return edge < 0 ? -1 : edges_[edge].to;
}

void SuffixIndex::connect(int32_t from, Token token, int32_t to) {
  if (const int32_t edge = find(from, token); edge >= 0) {
    edges_[edge].to = to;
    return;
  }
  const int32_t edge = edge_count_++;
  edges_[edge] = {from, token, to, state(from).edges};
  state(from).edges = edge;
  const size_t last = size_t{4} * static_cast<size_t>(room_) - 1;
  size_t at = place(from, token);
  while (table_[at] >= 0) at = (at + 1) & last;
  table_[at] = edge;
}

// The strings of `old` no longer than what `from` and `token` make get a state of their own.
int32_t SuffixIndex::split(int32_t from, Token token, int32_t old) {
  const int32_t copy = state_count_++;
  state(copy) = state(old);
  state(copy).length = state(from).length + 1;
  state(copy).edges = -1;
  for (int32_t edge = state(old).edges; edge >= 0; edge = edges_[edge].next)
    connect(copy, edges_[edge].token, edges_[edge].to);
  for (int32_t at = from; at >= 0 && target(at, token) == old; at = state(at).link) connect(at, token, copy);
  state(old).link = copy;
  return copy;
}

void SuffixIndex::add(Token token) {
  CHECK(!full(), "a text of {} tokens has no room for another", size_);
  const int32_t fresh = state_count_++;
  state(fresh) = {.length = state(last_).length + 1, .link = 0, .end = size_, .edges = -1};
  text_[size_++] = token;
  int32_t at = last_;
  for (; at >= 0 && find(at, token) < 0; at = state(at).link) connect(at, token, fresh);
  if (at >= 0) {
    int32_t link = target(at, token);
    if (state(link).length != state(at).length + 1) link = split(at, token, link);
    state(fresh).link = link;
  }
  last_ = fresh;
}

SuffixIndex::Match SuffixIndex::read(Match match, Token token) const {
  while (true) {
    const int32_t next = target(match.state, token);
    if (next >= 0) return {next, match.length + 1};
    if (match.state == 0) return {};
    match.state = state(match.state).link;
    match.length = state(match.state).length;
  }
}

SuffixIndex::Match SuffixIndex::settled(Match match) const {
  while (match.state > 0 && state(state(match.state).link).length >= match.length)
    match.state = state(match.state).link;
  return match;
}

int32_t SuffixIndex::after(const Match& match) const { return match.length == 0 ? size() : state(match.state).end + 1; }

}  // namespace millrace

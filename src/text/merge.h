// Merging: the loop at the heart of byte-pair encoding. A piece starts as a row of symbols; again and again the pair of
// neighbours with the lowest rank (the leftmost of several) becomes one symbol, until no pair has a rank. Short pieces
// are scanned for the lowest; long ones keep their pairs in buckets by rank, so that a megabyte of one letter takes
// about linear time. MergeSpace is one thread's working memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/token.h"

namespace millrace {

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;
  Token token = -1;  // what the pair becomes
};

// Places in a long piece by the rank of the pair that begins there, taken out lowest rank first, then leftmost.
class RankQueue {
 public:
  // Ranks are below this.
  void prepare(uint32_t ranks);
  bool empty() const {
    return top_.empty() || std::all_of(top_.begin(), top_.end(), [](uint64_t word) { return word == 0; });
  }
  void push(uint32_t rank, uint32_t place);
  uint32_t lowest() const;  // not empty
  // The leftmost place of a rank that has one; false if there is none left, and the rank is gone then.
  bool pop(uint32_t rank, uint32_t* place);
  size_t bytes() const;

 private:
  struct Bucket {
    std::vector<uint32_t> run;   // increasing; taken from `taken` on
    std::vector<uint32_t> late;  // a heap of those that came out of order
    size_t taken = 0;
  };
  // Three levels of bits: a bit says that something below it is there.
  std::vector<uint64_t> bits_, middle_, top_;
  std::vector<int32_t> bucket_of_;  // by rank, -1: none
  std::deque<Bucket> buckets_;
  std::vector<int32_t> free_;
};

struct MergeSpace {
  // One entry per symbol. `begin` is where it starts in the piece; the rest is kept while merging.
  std::vector<Token> token;
  std::vector<uint32_t> begin;
  uint32_t end = 0;  // of the piece

  std::vector<uint32_t> rank, next, previous;
  std::vector<Token> merged;
  RankQueue queue;

  void clear() { token.clear(), begin.clear(); }
  void add(Token symbol, uint32_t at) { token.push_back(symbol), begin.push_back(at); }
  // Gives back what a huge piece took.
  void trim();
};

inline constexpr size_t kShortPiece = 40;  // symbols

// A symbol as a pair's lookup sees it: its token and where it stands.
struct Symbol {
  Token token;
  uint32_t begin, end;
};

// lookup(left, right) gives the Merge of two neighbours. Afterwards token and begin hold what is left, in order.
template <class Lookup>
void merge_short(MergeSpace& space, const Lookup& lookup) {
  size_t count = space.token.size();
  Token* token = space.token.data();
  uint32_t* begin = space.begin.data();
  Merge pair[kShortPiece];
  auto end_of = [&](size_t i) { return i + 1 < count ? begin[i + 1] : space.end; };
  auto look = [&](size_t i) {
    if (i + 1 < count) {
      pair[i] = lookup(Symbol{token[i], begin[i], begin[i + 1]}, Symbol{token[i + 1], begin[i + 1], end_of(i + 1)});
    } else {
      pair[i] = {};
    }
  };
  for (size_t i = 0; i < count; ++i) look(i);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pair[i].rank < pair[best].rank) best = i;
    }
    if (count < 2 || pair[best].rank == Merge::kNone) break;
    token[best] = pair[best].token;
    std::copy(token + best + 2, token + count, token + best + 1);
    std::copy(begin + best + 2, begin + count, begin + best + 1);
    std::copy(pair + best + 2, pair + count, pair + best + 1);
    --count;
    look(best);
    if (best > 0) look(best - 1);
  }
  space.token.resize(count);
  space.begin.resize(count);
}

template <class Lookup>
void merge_long(MergeSpace& space, uint32_t ranks, const Lookup& lookup) {
  constexpr uint32_t kEnd = UINT32_MAX;
  const auto count = static_cast<uint32_t>(space.token.size());
  space.rank.assign(count, Merge::kNone);
  space.merged.resize(count);
  space.next.resize(count);
  space.previous.resize(count);
  space.queue.prepare(ranks);
  for (uint32_t i = 0; i < count; ++i) space.next[i] = i + 1 < count ? i + 1 : kEnd, space.previous[i] = i - 1;
  auto symbol = [&](uint32_t i) {
    return Symbol{space.token[i], space.begin[i], space.next[i] == kEnd ? space.end : space.begin[space.next[i]]};
  };
  // Looks the pair at i up again; true if it has a rank below `current`.
  auto look = [&](uint32_t i, uint32_t current) {
    Merge pair = space.next[i] == kEnd ? Merge{} : lookup(symbol(i), symbol(space.next[i]));
    space.rank[i] = pair.rank;
    if (pair.rank == Merge::kNone) return false;
    space.merged[i] = pair.token;
    space.queue.push(pair.rank, i);
    return pair.rank < current;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) look(i, 0);
  while (!space.queue.empty()) {
    const uint32_t rank = space.queue.lowest();
    uint32_t at;
    bool lower = false;
    while (!lower && space.queue.pop(rank, &at)) {
      if (space.rank[at] != rank) continue;  // one of the two has become something else since
      const uint32_t right = space.next[at], after = space.next[right];
      space.token[at] = space.merged[at];
      space.rank[right] = Merge::kNone;
      space.next[at] = after;
      if (after != kEnd) space.previous[after] = at;
      if (space.previous[at] != kEnd) lower |= look(space.previous[at], rank);
      lower |= look(at, rank);
    }
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i != kEnd; i = space.next[i], ++kept) {
    space.token[kept] = space.token[i], space.begin[kept] = space.begin[i];
  }
  space.token.resize(kept);
  space.begin.resize(kept);
}

template <class Lookup>
void merge(MergeSpace& space, uint32_t ranks, const Lookup& lookup) {
  if (space.token.size() < 2) return;
  if (space.token.size() <= kShortPiece) {
    merge_short(space, lookup);
  } else {
    merge_long(space, ranks, lookup);
  }
}

}  // namespace millrace

// Merging: the loop at the heart of byte-pair encoding. A piece starts as a row of symbols; again and again the pair of
// neighbours with the lowest rank (the leftmost of several) becomes one symbol, until no pair has a rank. Short pieces
// are scanned for the lowest; long ones keep their pairs in buckets by rank, so that a megabyte of one letter takes
// about linear time. MergeSpace is one thread's working memory.
#pragma once

#include <bit>
#include <cstddef>
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
  bool empty() const { return filled_ == 0; }
  void push(uint32_t rank, uint32_t place) {
    const int32_t index = bucket_of_[rank];
    Bucket& bucket = index >= 0 ? buckets_[static_cast<size_t>(index)] : open(rank);
    if (bucket.run.empty() || bucket.run.back() < place) {
      bucket.run.push_back(place);
    } else {
      push_late(bucket, place);
    }
  }
  uint32_t lowest() const;  // not empty
  // The leftmost place of a rank that has one; false if there is none left, and the rank is gone then.
  bool pop(uint32_t rank, uint32_t* place) {
    Bucket& bucket = buckets_[static_cast<size_t>(bucket_of_[rank])];
    if (bucket.late.empty() && bucket.taken < bucket.run.size()) return *place = bucket.run[bucket.taken++], true;
    return pop_late(bucket, rank, place);
  }
  size_t bytes() const;

 private:
  struct Bucket {
    std::vector<uint32_t> run;   // increasing; taken from `taken` on
    std::vector<uint32_t> late;  // a heap of those that came out of order
    size_t taken = 0;
  };
  Bucket& open(uint32_t rank);
  static void push_late(Bucket& bucket, uint32_t place);
  bool pop_late(Bucket& bucket, uint32_t rank, uint32_t* place);

  // Three levels of bits: a bit says that something below it is there.
  std::vector<uint64_t> bits_, middle_, top_;
  std::vector<int32_t> bucket_of_;  // by rank, -1: none
  std::deque<Bucket> buckets_;
  std::vector<int32_t> free_;
  size_t filled_ = 0;  // ranks with a place
};

// A symbol of a piece: its token, where it starts, and what is kept while merging.
struct MergeSymbol {
  Token token = -1;
  uint32_t begin = 0;
  uint32_t next = 0, previous = 0;  // neighbours that are still there
  Merge pair;                       // what this symbol and the next one become
};

struct MergeSpace {
  std::vector<MergeSymbol> symbols;
  uint32_t end = 0;  // of the piece
  RankQueue queue;
  // Pairs looked up before: the table of all of them is larger than a processor's cache, and text repeats itself.
  struct Seen {
    Token left = -1, right = -1;
    Merge merge;
  };
  std::vector<Seen> seen = std::vector<Seen>(kSeen);
  static constexpr size_t kSeen = 2048;

  void clear() { symbols.clear(); }
  void add(Token token, uint32_t at) { symbols.push_back({.token = token, .begin = at}); }
  // Gives back what a huge piece took.
  void trim();
};

inline constexpr size_t kShortPiece = 40;  // symbols

// A symbol as a pair's lookup sees it: its token and where it stands.
struct Symbol {
  Token token;
  uint32_t begin, end;
};

// lookup(left, right) gives the Merge of two neighbours. Afterwards the symbols that are left stand in order.
template <class Lookup>
void merge_short(MergeSpace& space, const Lookup& lookup) {
  size_t count = space.symbols.size();
  Token token[kShortPiece];
  uint32_t begin[kShortPiece + 1];
  Merge pair[kShortPiece];
  for (size_t i = 0; i < count; ++i) token[i] = space.symbols[i].token, begin[i] = space.symbols[i].begin;
  begin[count] = space.end;
  auto look = [&](size_t i) {
    pair[i] = lookup(Symbol{token[i], begin[i], begin[i + 1]}, Symbol{token[i + 1], begin[i + 1], begin[i + 2]});
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pair[i].rank < pair[best].rank) best = i;
    }
    if (pair[best].rank == Merge::kNone) break;
    token[best] = pair[best].token;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      token[i] = token[i + 1], begin[i] = begin[i + 1], pair[i] = pair[i + 1];
    }
    begin[--count] = space.end;
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
  for (size_t i = 0; i < count; ++i) space.symbols[i].token = token[i], space.symbols[i].begin = begin[i];
  space.symbols.resize(count);
}

template <class Lookup>
void merge_long(MergeSpace& space, uint32_t ranks, const Lookup& lookup) {
  constexpr uint32_t kEnd = UINT32_MAX;
  MergeSymbol* symbols = space.symbols.data();
  const auto count = static_cast<uint32_t>(space.symbols.size());
  RankQueue& queue = space.queue;
  queue.prepare(ranks);
  auto end_of = [&](const MergeSymbol& symbol) { return symbol.next == kEnd ? space.end : symbols[symbol.next].begin; };
  // Looks the pair of a symbol and its next up again; its rank.
  auto look = [&](MergeSymbol& left) {
    left.pair = {};
    if (left.next == kEnd) return Merge::kNone;
    const MergeSymbol& right = symbols[left.next];
    left.pair = lookup(Symbol{left.token, left.begin, right.begin}, Symbol{right.token, right.begin, end_of(right)});
    return left.pair.rank;
  };
  auto push = [&](uint32_t i) {
    if (symbols[i].pair.rank != Merge::kNone) queue.push(symbols[i].pair.rank, i);
  };
  for (uint32_t i = 0; i < count; ++i) symbols[i].next = i + 1 < count ? i + 1 : kEnd, symbols[i].previous = i - 1;
  for (uint32_t i = 0; i < count; ++i) look(symbols[i]), push(i);
  while (!queue.empty()) {
    const uint32_t rank = queue.lowest();
    uint32_t at, waiting = kEnd;
    bool lower = false;
    while (!lower && queue.pop(rank, &at)) {
      MergeSymbol& left = symbols[at];
      if (left.pair.rank != rank) continue;  // one of the two has become something else since
      MergeSymbol& right = symbols[left.next];
      left.token = left.pair.token;
      left.next = right.next;
      right.pair = {};
      if (left.next != kEnd) symbols[left.next].previous = at;
      // The pair on the right waits: often the next place of this rank is right beside and changes it again.
      if (waiting != kEnd && waiting != left.previous) push(waiting);
      lower |= look(left) < rank;
      waiting = at;
      if (left.previous != kEnd) {
        lower |= look(symbols[left.previous]) < rank;
        push(left.previous);
      }
    }
    if (waiting != kEnd) push(waiting);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i != kEnd;) {
    const uint32_t next = symbols[i].next;
    symbols[kept].token = symbols[i].token, symbols[kept].begin = symbols[i].begin;
    ++kept;
    i = next;
  }
  space.symbols.resize(kept);
}

template <class Lookup>
void merge(MergeSpace& space, uint32_t ranks, const Lookup& lookup) {
  if (space.symbols.size() < 2) return;
  if (space.symbols.size() <= kShortPiece) {
    merge_short(space, lookup);
  } else {
    merge_long(space, ranks, lookup);
  }
}

}  // namespace millrace

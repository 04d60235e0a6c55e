#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

namespace millrace {
namespace {

const CacheSpec kPaged{CacheKind::paged, {64, 64}, 0};
const CacheSpec kLatent{CacheKind::latent, {128, 0}, 0};
CacheSpec windowed(int window) { return {CacheKind::windowed, {64, 64}, window}; }
CacheSpec recurrent(int64_t bytes) { return {CacheKind::recurrent, {0, bytes}, 0}; }

CacheLayout layout_of(std::vector<CacheSpec> layers, int page_tokens, int snapshot_tokens = 4) {
  return plan_layout(layers, {.page_tokens = page_tokens, .snapshot_tokens = snapshot_tokens}).value();
}

Identity root(uint8_t number) {
  Identity key;
  key.bytes[0] = number;
  return key;
}

std::vector<Token> tokens(int count, int first = 0) {
  std::vector<Token> made(static_cast<size_t>(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}

// A cache and the sequences in it, computed in one go.
struct Fixture {
  explicit Fixture(const CacheLayout& layout, int pages, int second = 0) : cache(layout, pages, second) {}

  // Computes the tokens, after whatever is cached of them.
  SequencePages compute(const std::vector<Token>& known, uint8_t tenant = 1, int* reused = nullptr) {
    SequencePages sequence = cache.open(next++, root(tenant));
    int cached = cache.reuse_prefix(sequence, known);
    if (reused != nullptr) *reused = cached;
    EXPECT_TRUE(reserve(sequence, cached, static_cast<int>(known.size())));
    cache.publish(sequence, known, static_cast<int>(known.size()));
    settle();
    return sequence;
  }
  bool reserve(SequencePages& sequence, int begin, int upto) {
    for (int end = 0; begin < upto; begin = end)
      if (end = cache.step_end(begin, upto); !cache.reserve(sequence, begin, end)) return false;
    return true;
  }
  int cached(const std::vector<Token>& known, uint8_t tenant = 1) {
    SequencePages sequence = cache.open(next++, root(tenant));
    int before = cache.cached(root(tenant), known), count = cache.reuse_prefix(sequence, known);
    EXPECT_EQ(before, count);
    cache.release(sequence);
    settle();
    return count;
  }
  void settle() {
    auto moves = cache.take_moves();
    cache.settle(moves, {});
    cache.take_snapshots();
  }
  void check(std::vector<std::pair<const SequencePages*, int>> holders) {
    std::vector<KvCache::Holder> list;
    for (auto [sequence, computed] : holders) list.push_back({sequence, computed});
    auto checked = cache.check(list);
    EXPECT_TRUE(checked.ok()) << checked.error().message;
  }

  KvCache cache;
  int64_t next = 0;
};

TEST(KvCache, ASecondSequenceSharesWholePagesAndCopiesThePartialOne) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages first = f.compute(tokens(11));
  SequencePages second = f.cache.open(9, root(1));
  // All but the last token: two whole pages of the first, which is still running, so its third page is not offered.
  EXPECT_EQ(f.cache.reuse_prefix(second, tokens(11)), 8);
  EXPECT_EQ(second.tables[0][0], first.tables[0][0]);
  EXPECT_EQ(second.tables[0][1], first.tables[0][1]);
  f.check({{&first, 11}, {&second, 8}});
  f.cache.release(second);
  f.cache.retire(first, tokens(11), 11);
  f.check({});

  SequencePages third = f.cache.open(10, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(third, tokens(11)), 10);
  auto moves = f.cache.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].kind, PageMove::Kind::copy);
  EXPECT_EQ(moves[0].to, third.tables[0][2]);
  EXPECT_NE(moves[0].from, moves[0].to);
  f.check({{&third, 10}});
  f.cache.release(third);
}

TEST(KvCache, APartOfAWholePageIsCopiedToo) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages first = f.compute(tokens(8));
  std::vector<Token> other = {0, 1, 2, 3, 4, 5, 99, 98};
  SequencePages second = f.cache.open(9, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(second, other), 6);
  EXPECT_EQ(second.tables[0][0], first.tables[0][0]);
  EXPECT_EQ(f.cache.take_moves()[0].from, first.tables[0][1]);
  f.check({{&first, 8}, {&second, 6}});
  f.cache.release(first);
  f.cache.release(second);
}

TEST(KvCache, TheSamePagesComputedTwiceBecomeOne) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages first = f.cache.open(0, root(1)), second = f.cache.open(1, root(1));
  ASSERT_TRUE(f.cache.reserve(first, 0, 8) && f.cache.reserve(second, 0, 8));
  EXPECT_EQ(f.cache.pool().used(), 4);
  f.cache.publish(first, tokens(8), 8);
  f.cache.publish(second, tokens(8), 8);
  EXPECT_EQ(f.cache.pool().used(), 2);
  EXPECT_EQ(second.tables[0][1], first.tables[0][1]);
  f.check({{&first, 8}, {&second, 8}});
  f.cache.release(first);
  f.cache.release(second);
}

TEST(KvCache, ReserveIsIdempotentAndGoesOnWhereItStopped) {
  Fixture f(layout_of({kPaged}, 4), 4);
  SequencePages big = f.cache.open(0, root(1)), other = f.cache.open(1, root(1));
  ASSERT_TRUE(f.cache.reserve(other, 0, 8));
  EXPECT_FALSE(f.cache.reserve(big, 0, 12));
  EXPECT_FALSE(f.cache.reserve(big, 0, 12));
  EXPECT_EQ(big.tables[0].size(), 2);
  f.cache.release(other);
  EXPECT_TRUE(f.cache.reserve(big, 0, 12));
  EXPECT_TRUE(f.cache.reserve(big, 0, 12));
  EXPECT_EQ(f.cache.pool().used(), 3);
  f.check({{&big, 0}});
  f.cache.release(big);
}

TEST(KvCache, TenantsNeverMeet) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages first = f.compute(tokens(16), 1);
  EXPECT_EQ(f.cached(tokens(17), 1), 16);
  EXPECT_EQ(f.cached(tokens(17), 2), 0);
  int reused = -1;
  SequencePages second = f.compute(tokens(16), 2, &reused);
  EXPECT_EQ(reused, 0);
  EXPECT_NE(first.tables[0][0], second.tables[0][0]);
  f.cache.release(first);
  f.cache.release(second);
}

TEST(KvCache, ForkSharesThePromptAndCopiesItsLastPage) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages lead = f.compute(tokens(11));
  int used = f.cache.pool().used();
  std::vector<SequencePages> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(f.cache.open(10 + child, root(1)));
    EXPECT_EQ(f.cache.fork(lead, children.back(), 10), 10);
  }
  EXPECT_EQ(f.cache.pool().used(), used + 3);
  EXPECT_EQ(f.cache.take_moves().size(), 3u);
  f.check({{&lead, 11}, {&children[0], 10}, {&children[1], 10}, {&children[2], 10}});
  f.cache.release(lead);
  for (auto& child : children) f.cache.release(child);
  f.check({});
}

TEST(KvCache, RollbackGivesUnusedPagesBack) {
  Fixture f(layout_of({kPaged}, 4), 32);
  SequencePages sequence = f.compute(tokens(8));
  ASSERT_TRUE(f.cache.reserve(sequence, 8, 14, true));
  EXPECT_EQ(sequence.tables[0].size(), 4);
  EXPECT_EQ(f.cache.rollback(sequence, 9), 9);
  EXPECT_EQ(sequence.tables[0].size(), 3);
  f.check({{&sequence, 9}});
  EXPECT_EQ(f.cache.use(sequence, 9).reserved_bytes, 12 * 128);
  EXPECT_EQ(f.cache.use(sequence, 9).used_bytes, 9 * 128);
  f.cache.release(sequence);
}

TEST(KvCache, LatentIsPagedWithOnePart) {
  Fixture f(layout_of({kLatent, kLatent}, 4), 16);
  SequencePages first = f.compute(tokens(9));
  EXPECT_EQ(f.cache.use(first, 9).used_bytes, 9 * 2 * 128);
  f.cache.retire(first, tokens(9), 9);
  EXPECT_EQ(f.cached(tokens(12)), 9);
}

TEST(KvCache, WindowedGivesBackWhatLeftTheWindow) {
  Fixture f(layout_of({windowed(6)}, 4), 8);
  SequencePages sequence = f.cache.open(0, root(1));
  std::vector<Token> known = tokens(100);
  for (int position = 0; position < 100; ++position) {
    ASSERT_TRUE(f.cache.reserve(sequence, position, position + 1)) << position;
    // What a query at this position reads is there, and nothing older than a page.
    for (int key = std::max(0, position - 5); key <= position; ++key)
      ASSERT_NE(sequence.tables[0].at(key).page, kNoPage) << position;
    EXPECT_LE(sequence.tables[0].held(), 3);
    f.cache.publish(sequence, known, position + 1);
    f.check({{&sequence, position + 1}});
  }
  EXPECT_GT(f.cache.counters().stripped, 0);
  // Only the end of it can be gone on from: earlier pages were taken out of the tree for lack of room.
  f.cache.retire(sequence, known, 100);
  std::vector<Token> longer = tokens(110);
  EXPECT_EQ(f.cached(longer), 100);
  EXPECT_EQ(f.cached(tokens(50)), 0);
}

TEST(KvCache, FirstTokensStayBesideTheWindow) {
  CacheSpec keeps = windowed(6);
  keeps.kept = 5;
  Fixture f(layout_of({keeps}, 4), 10);
  EXPECT_EQ(f.cache.most_pages(1000, 1, false), f.cache.most_pages(100, 1, false)) << "a fixed size";
  SequencePages sequence = f.cache.open(0, root(1));
  std::vector<Token> known = tokens(100);
  for (int position = 0; position < 100; ++position) {
    ASSERT_TRUE(f.cache.reserve(sequence, position, position + 1)) << position;
    for (int key = 0; key <= position; ++key)
      EXPECT_EQ(sequence.tables[0].at(key).page == kNoPage && (key < 5 || key > position - 6), false) << position;
    EXPECT_LE(sequence.tables[0].held(), 5);
    EXPECT_LE(f.cache.use(sequence, position + 1).reserved_bytes, 5 * 4 * 128);
    f.cache.publish(sequence, known, position + 1);
    f.check({{&sequence, position + 1}});
  }
  EXPECT_GT(f.cache.counters().stripped, 0);
  f.cache.retire(sequence, known, 100);
  // The next turn finds the first tokens and the last; what lies between is not asked for.
  SequencePages second = f.cache.open(1, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(second, tokens(110)), 100);
  EXPECT_NE(second.tables[0].at(0).page, kNoPage);
  EXPECT_NE(second.tables[0].at(4).page, kNoPage);
  EXPECT_EQ(second.tables[0].at(40).page, kNoPage);
  f.check({{&second, 100}});
  SequencePages child = f.cache.open(2, root(1));
  EXPECT_EQ(f.cache.fork(second, child, 99), 99);
  EXPECT_EQ(child.tables[0].at(0).page, second.tables[0].at(0).page);
  f.check({{&second, 100}, {&child, 99}});
  f.cache.release(child);
  f.cache.release(second);
}

TEST(KvCache, WindowedPrefixNeedsOnlyTheWindow) {
  Fixture f(layout_of({kPaged, windowed(6)}, 4), 64);
  SequencePages first = f.compute(tokens(40));
  f.cache.retire(first, tokens(40), 40);
  SequencePages second = f.cache.open(1, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(second, tokens(41)), 40);
  EXPECT_EQ(second.tables[0].held(), 10);
  EXPECT_EQ(second.tables[1].held(), 2);  // positions 35 to 39
  EXPECT_EQ(second.tables[1].first(), 8);
  f.check({{&second, 40}});
  f.cache.release(second);
}

TEST(KvCache, RecurrentGoesOnOnlyWhereAStateWasKept) {
  // A state is kept every 4 tokens; nodes have 2.
  CacheLayout layout = layout_of({recurrent(256), kPaged}, 2, 4);
  ASSERT_EQ(layout.node_tokens, 2);
  ASSERT_FALSE(layout.resumes_anywhere());
  Fixture f(layout, 64);
  SequencePages first = f.cache.open(0, root(1));
  EXPECT_EQ(f.cache.step_end(0, 11), 4);
  EXPECT_EQ(f.cache.step_end(4, 11), 8);
  EXPECT_EQ(f.cache.step_end(8, 11), 11);
  ASSERT_TRUE(f.cache.reserve(first, 0, 4));
  auto copies = f.cache.take_snapshots();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, first.tables[0][0]);
  ASSERT_TRUE(f.cache.reserve(first, 4, 8));
  ASSERT_TRUE(f.cache.reserve(first, 8, 11));
  f.cache.publish(first, tokens(11), 11);
  f.check({{&first, 11}});

  EXPECT_EQ(f.cached(tokens(20)), 8);
  EXPECT_EQ(f.cached(tokens(8)), 4);  // all but the last token are 7; a state is at 4
  EXPECT_EQ(f.cached(tokens(4)), 0);
  // Once it leaves, its last state is kept too, for whoever continues exactly there.
  f.cache.retire(first, tokens(11), 11);
  EXPECT_EQ(f.cached(tokens(20)), 11);
  EXPECT_EQ(f.cached(tokens(11)), 8);
  f.check({});
}

TEST(KvCache, RecurrentStateIsCopiedNotShared) {
  Fixture f(layout_of({recurrent(256), kPaged}, 2, 4), 64);
  SequencePages first = f.compute(tokens(9));
  SequencePages second = f.cache.open(5, root(1));
  ASSERT_EQ(f.cache.reuse_prefix(second, tokens(12)), 8);
  auto moves = f.cache.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].to, second.tables[0][0]);
  EXPECT_NE(second.tables[0][0], first.tables[0][0]);
  f.check({{&first, 9}, {&second, 8}});
  f.cache.release(first);
  f.cache.release(second);
}

TEST(KvCache, RecurrentRollsBackToTheStateBeforeTheDrafts) {
  Fixture f(layout_of({recurrent(256), kPaged}, 2, 4), 64);
  SequencePages sequence = f.compute(tokens(5));
  PageId working = sequence.tables[0][0];
  ASSERT_TRUE(f.cache.reserve(sequence, 5, 8, true));
  auto moves = f.cache.take_moves();
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].from, working);
  PageId saved = moves[0].to;
  // Two of three were right, but the state knows only all or none.
  EXPECT_EQ(f.cache.rollback(sequence, 7), 5);
  EXPECT_EQ(sequence.tables[0][0], saved);
  f.check({{&sequence, 5}});
  f.cache.release(sequence);
  f.check({});
}

TEST(KvCache, UnreferencedPagesAreEvictedLeastRecentlyUsedFirst) {
  Fixture f(layout_of({kPaged}, 4), 6);
  for (int story = 0; story < 3; ++story) {
    SequencePages sequence = f.compute(tokens(8, 100 * story));
    f.cache.retire(sequence, tokens(8, 100 * story), 8);
  }
  EXPECT_EQ(f.cache.pool().free(), 0);
  EXPECT_EQ(f.cached(tokens(9, 0)), 8);  // used again: now 100.. is the oldest
  SequencePages fresh = f.compute(tokens(8, 900));
  EXPECT_EQ(f.cached(tokens(9, 0)), 8);
  EXPECT_EQ(f.cached(tokens(9, 200)), 8);
  EXPECT_EQ(f.cached(tokens(9, 100)), 0);
  f.cache.release(fresh);
}

TEST(KvCache, WhatCostsMoreToComputeStaysLonger) {
  Fixture f(layout_of({kPaged}, 4), 12);
  f.cache.set_costs({1, 1, 0});  // a token costs one more for each before it
  std::vector<Token> deep = tokens(24), flat = tokens(4, 500);
  SequencePages long_one = f.compute(deep);
  f.cache.retire(long_one, deep, 24);
  SequencePages short_one = f.compute(flat);
  f.cache.retire(short_one, flat, 4);
  // The short one was used last, but its page is cheap.
  SequencePages fresh = f.compute(tokens(24, 900));
  EXPECT_EQ(f.cached(tokens(5, 500)), 0);
  EXPECT_EQ(f.cached(tokens(25)), 24);
  f.cache.release(fresh);
}

TEST(KvCache, ATenantThatFloodsTheCachePaysFirst) {
  Fixture f(layout_of({kPaged}, 4), 20);
  SequencePages victim = f.compute(tokens(16), 1);
  f.cache.retire(victim, tokens(16), 16);
  for (int story = 1; story <= 50; ++story) {
    SequencePages flood = f.compute(tokens(16, 1000 * story), 2);
    f.cache.retire(flood, tokens(16, 1000 * story), 16);
  }
  EXPECT_EQ(f.cached(tokens(17), 1), 16);
}

TEST(KvCache, EvictedPagesMoveToTheSecondStoreAndBack) {
  Fixture f(layout_of({kPaged}, 4), 4, 4);
  f.cache.set_costs({1, 0, 0.1});
  SequencePages first = f.compute(tokens(16));
  f.cache.retire(first, tokens(16), 16);
  SequencePages second = f.cache.open(1, root(1));
  ASSERT_TRUE(f.cache.reserve(second, 0, 16));
  auto moves = f.cache.take_moves();
  ASSERT_EQ(moves.size(), 4u);
  for (const auto& move : moves) EXPECT_EQ(move.kind, PageMove::Kind::out);
  // Nobody may count on them before they are known to have arrived.
  SequencePages early = f.cache.open(2, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(early, tokens(17)), 0);
  f.cache.settle(moves, {});
  f.check({{&second, 0}});
  f.cache.release(second);

  SequencePages third = f.cache.open(3, root(1));
  EXPECT_EQ(f.cache.reuse_prefix(third, tokens(17)), 16);
  auto back = f.cache.take_moves();
  ASSERT_EQ(back.size(), 4u);
  for (size_t index = 0; index < 4; ++index) {
    EXPECT_EQ(back[index].kind, PageMove::Kind::in);
    EXPECT_EQ(back[index].owner, 3);
    EXPECT_EQ(back[index].from, moves[3 - index].to);  // leaves went first, the beginning comes first
  }
  EXPECT_EQ(f.cache.second().used(), 0);
  // The last of them did not arrive: the sequence lets go, and its tokens are not found again.
  std::vector<uint8_t> failed = {0, 0, 0, 1};
  f.cache.release(third);
  f.cache.settle(back, failed);
  f.check({});
  EXPECT_EQ(f.cached(tokens(17)), 12);
}

TEST(KvCache, WhatIsCheaperToComputeIsDropped) {
  Fixture f(layout_of({kPaged}, 4), 4, 4);
  f.cache.set_costs({1, 0, 10});
  SequencePages first = f.compute(tokens(16));
  f.cache.retire(first, tokens(16), 16);
  SequencePages second = f.cache.open(1, root(1));
  ASSERT_TRUE(f.cache.reserve(second, 0, 16));
  EXPECT_TRUE(f.cache.take_moves().empty());
  EXPECT_EQ(f.cache.second().used(), 0);
  f.cache.release(second);
}

TEST(KvCache, CheckSeesWhatIsWrong) {
  Fixture f(layout_of({kPaged}, 4), 8);
  SequencePages first = f.compute(tokens(8));
  EXPECT_FALSE(f.cache.check({}).ok());
  SequencePages twice = first;
  std::vector<KvCache::Holder> holders = {{&first, 8}, {&twice, 8}};
  EXPECT_FALSE(f.cache.check(holders).ok());
  holders = {{&first, 4}};  // its second page would be written though the tree shares it
  EXPECT_FALSE(f.cache.check(holders).ok());
  f.check({{&first, 8}});
  f.cache.release(first);
}

}  // namespace
}  // namespace millrace

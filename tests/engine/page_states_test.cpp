#include "engine/page_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

struct Counts {
  int64_t free, used, shared, cached;
  bool operator==(const Counts&) const = default;
};

Counts count(const KvCache& cache) {
  auto states = page_states(cache);
  EXPECT_EQ(states.size(), static_cast<size_t>(cache.pool().pages()));
  auto number = [&](PageState state) { return std::count(states.begin(), states.end(), state); };
  return {number(PageState::free), number(PageState::used), number(PageState::shared), number(PageState::cached)};
}

SequencePages compute(KvCache& cache, int64_t owner, const std::vector<Token>& tokens) {
  SequencePages sequence = cache.open(owner, Identity());
  int cached = cache.reuse_prefix(sequence, tokens);
  EXPECT_TRUE(cache.reserve(sequence, cached, static_cast<int>(tokens.size())));
  cache.publish(sequence, tokens, static_cast<int>(tokens.size()));
  auto moves = cache.take_moves();
  cache.settle(moves, {});
  cache.take_snapshots();
  return sequence;
}

TEST(PageStates, PagesAreFreeUsedSharedAndCachedInTurn) {
  std::vector<CacheSpec> layers = {{CacheKind::paged, {64, 64}, 0}};
  KvCache cache(plan_layout(layers, {.page_tokens = 4}).value(), 16, 0);
  EXPECT_EQ(count(cache), (Counts{16, 0, 0, 0}));
  std::vector<Token> tokens(12);
  std::iota(tokens.begin(), tokens.end(), 1);
  SequencePages first = compute(cache, 1, tokens);
  EXPECT_EQ(count(cache), (Counts{13, 3, 0, 0}));
  // Eight tokens are the same; the last of the prompt is always computed anew.
  tokens[8] = 99;
  SequencePages second = compute(cache, 2, tokens);
  EXPECT_EQ(count(cache), (Counts{12, 2, 2, 0}));
  cache.release(first);
  EXPECT_EQ(count(cache), (Counts{12, 3, 0, 1}));
  cache.release(second);
  EXPECT_EQ(count(cache), (Counts{12, 0, 0, 4}));
}

}  // namespace
}  // namespace millrace

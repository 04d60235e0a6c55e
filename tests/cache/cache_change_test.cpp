// An index kept from what the tree tells is the tree, whatever was put in, pushed out, moved out and brought back.
#include "cache/cache_change.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cache/kv_cache.h"

namespace millrace {
namespace {

using Index = std::map<std::pair<uint64_t, bool>, std::pair<uint64_t, std::vector<Token>>>;

uint64_t number_of(const Identity& chain) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number = number << 8 | chain.bytes[i];
  return number;
}

// As a router would: what is stored twice, or removed without being there, is a mistake of ours.
void follow(Index& index, const std::vector<CacheChange>& changes) {
  for (const CacheChange& change : changes) {
    const std::pair<uint64_t, bool> key{change.node, change.away};
    if (change.kind == CacheChange::Kind::cleared) {
      index.clear();
    } else if (change.kind == CacheChange::Kind::stored) {
      EXPECT_TRUE(index.try_emplace(key, change.parent, change.tokens).second) << "stored twice";
      const bool known = index.contains({change.parent, false}) || index.contains({change.parent, true});
      EXPECT_TRUE(change.parent == 0 || known) << "its parent is not known";
    } else {
      EXPECT_EQ(index.erase(key), 1U) << "removed, but it was not there";
    }
  }
}

// Computed anew from roots and tokens alone.
Index index_of(const PrefixTree& tree) {
  Index index;
  std::map<NodeId, Identity> chains;
  for (NodeId id : tree.all()) {
    const TreeNode& node = tree.node(id);
    if (node.parent == kNoNode) {
      chains[id] = tree.key(node.root);
      continue;
    }
    if (!tree.whole(node)) continue;
    chains[id] = chain_of(chains.at(node.parent), node.tokens);
    const bool first = tree.node(node.parent).parent == kNoNode;
    index[{number_of(chains[id]), node.away}] = {first ? 0 : number_of(chains.at(node.parent)), node.tokens};
  }
  return index;
}

void run(uint32_t seed, int second_pages, int64_t& removed) {
  const std::vector<CacheSpec> layers = {{.kind = CacheKind::paged, .bytes = {64, 64}}};
  KvCache cache(plan_layout(layers, {.page_tokens = 4}).value(), 24, second_pages);
  std::vector<CacheChange> changes;
  cache.tree().keep_chains(&changes);
  cache.set_costs({.token = 1, .context = 0, .page_move = 0.001});
  std::mt19937 random(seed);
  auto below = [&](uint32_t most) { return static_cast<int>(random() % most); };
  struct Running {
    SequencePages pages;
    std::vector<Token> tokens;
    int computed = 0;
  };
  std::vector<Running> open;
  Index index;
  int64_t owner = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (open.size() < 3 && below(2) == 0) {
      Identity root;
      root.bytes[0] = static_cast<uint8_t>(below(3));
      Running one{.pages = cache.open(++owner, root)};
      for (int i = 0, count = 2 + below(30); i < count; ++i)
        one.tokens.push_back(static_cast<Token>(below(i < 8 ? 2 : 5)));
      one.computed = cache.reuse_prefix(one.pages, one.tokens);
      open.push_back(std::move(one));
    } else if (!open.empty()) {
      Running& one = open[static_cast<size_t>(below(static_cast<uint32_t>(open.size())))];
      const int upto = std::min(one.computed + 1 + below(8), static_cast<int>(one.tokens.size()));
      const bool room = one.computed == upto || cache.reserve(one.pages, one.computed, upto);
      if (room) {
        one.computed = upto;
        cache.publish(one.pages, one.tokens, upto);
      }
      if (!room || upto == static_cast<int>(one.tokens.size()) || below(10) == 0) {
        below(4) == 0 ? cache.release(one.pages) : cache.retire(one.pages, one.tokens, one.computed);
        std::swap(one, open.back());
        open.pop_back();
      }
    }
    const std::vector<PageMove> moves = cache.take_moves();
    std::vector<uint8_t> failed(moves.size());
    for (size_t i = 0; i < moves.size(); ++i) failed[i] = moves[i].kind == PageMove::Kind::out && below(20) == 0;
    cache.settle(moves, failed);
    for (const CacheChange& change : changes) removed += change.kind == CacheChange::Kind::removed;
    follow(index, changes);
    changes.clear();
    if (step % 16 != 0) continue;
    ASSERT_EQ(index, index_of(cache.tree())) << "seed " << seed << ", step " << step;
  }
  EXPECT_EQ(index, index_of(cache.tree()));
}

TEST(CacheChange, TheIndexIsTheTree) {
  int64_t removed = 0;
  for (uint32_t seed = 0; seed < 8; ++seed) run(seed, seed % 2 == 0 ? 0 : 16, removed);
  EXPECT_GT(removed, 1000);
}

}  // namespace
}  // namespace millrace

#include "text/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "text/bpe.h"

namespace millrace {
namespace {

using Table = std::map<std::pair<Token, Token>, Merge>;

// As the method is defined: the lowest rank, then the leftmost, until there is none.
std::vector<Token> naive(std::vector<Token> tokens, const Table& table) {
  for (;;) {
    size_t best = 0;
    Merge found;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      auto entry = table.find({tokens[i], tokens[i + 1]});
      if (entry != table.end() && entry->second.rank < found.rank) best = i, found = entry->second;
    }
    if (found.rank == Merge::kNone) return tokens;
    tokens[best] = found.token;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

std::vector<Token> merged(const std::vector<Token>& tokens, const Table& table, bool always_long) {
  MergeSpace space;
  for (size_t i = 0; i < tokens.size(); ++i) space.add(tokens[i], static_cast<uint32_t>(i));
  space.end = static_cast<uint32_t>(tokens.size());
  auto lookup = [&](const Symbol& left, const Symbol& right) {
    auto entry = table.find({left.token, right.token});
    return entry == table.end() ? Merge{} : entry->second;
  };
  constexpr uint32_t ranks = 64;  // more than any table here has
  always_long ? merge_long(space, ranks, lookup) : merge(space, ranks, lookup);
  std::vector<Token> out;
  for (const MergeSymbol& symbol : space.symbols) out.push_back(symbol.token);
  return out;
}

// Merges whose results may merge again, with ranks in any order, so that a later pair can come before an earlier one.
Table random_table(std::mt19937& random, int letters, int merges) {
  Table table;
  std::vector<uint32_t> ranks;
  for (int i = 0; i < merges; ++i) ranks.push_back(static_cast<uint32_t>(i));
  if (random() % 2 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  Token next = letters;
  for (uint32_t rank : ranks) {
    const auto pair = std::pair<Token, Token>(static_cast<Token>(random() % static_cast<unsigned>(next)),
                                              static_cast<Token>(random() % static_cast<unsigned>(next)));
    if (!table.emplace(pair, Merge{rank, next}).second) continue;
    ++next;
  }
  return table;
}

TEST(Merge, SameAsTheDefinition) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int letters = 1 + static_cast<int>(random() % 4);
    const Table table = random_table(random, letters, 1 + static_cast<int>(random() % 40));
    for (int round = 0; round < 10; ++round) {
      std::vector<Token> tokens(1 + random() % (round < 8 ? 60 : 300));
      for (Token& token : tokens) token = static_cast<Token>(random() % static_cast<unsigned>(letters));
      const std::vector<Token> expected = naive(tokens, table);
      ASSERT_EQ(merged(tokens, table, false), expected) << "seed " << seed;
      ASSERT_EQ(merged(tokens, table, true), expected) << "seed " << seed;
    }
  }
}

TEST(Merge, QueueGivesLowestRankThenLeftmost) {
  RankQueue queue;
  queue.prepare(1'000'000);
  std::mt19937 random(3);
  std::map<uint32_t, std::vector<uint32_t>> expected;
  for (int i = 0; i < 5000; ++i) {
    const auto rank = static_cast<uint32_t>(random() % 1'000'000 / (1 + random() % 100000));
    const auto place = static_cast<uint32_t>(random() % 1000);
    queue.push(rank, place);
    expected[rank].push_back(place);
  }
  for (auto& [rank, places] : expected) {
    std::sort(places.begin(), places.end());
    ASSERT_FALSE(queue.empty());
    ASSERT_EQ(queue.lowest(), rank);
    uint32_t place = 0;
    for (uint32_t wanted : places) {
      ASSERT_TRUE(queue.pop(rank, &place));
      ASSERT_EQ(place, wanted);
    }
    ASSERT_FALSE(queue.pop(rank, &place));
  }
  EXPECT_TRUE(queue.empty());
}

TEST(Merge, PairTableKeepsOrReplaces) {
  PairTable table;
  for (Token i = 0; i < 5000; ++i) table.add(i, i + 1, {static_cast<uint32_t>(i), i * 2}, true);
  table.add(7, 8, {9999, 1}, false);
  EXPECT_EQ(table.find(7, 8).rank, 7u);
  table.add(7, 8, {9999, 1}, true);
  EXPECT_EQ(table.find(7, 8).rank, 9999u);
  EXPECT_EQ(table.find(8, 7).rank, Merge::kNone);
  EXPECT_EQ(table.in_order().size(), 5000u);
  EXPECT_EQ(table.in_order().back().left, 7);
}

TEST(Vocabulary, FindsWhatWasAdded) {
  Vocabulary vocabulary;
  for (Token id = 0; id < 20000; ++id) ASSERT_TRUE(vocabulary.add(fmt::format("token {}", id), id * 3).ok());
  for (Token id = 0; id < 20000; ++id) ASSERT_EQ(vocabulary.find(fmt::format("token {}", id)), id * 3);
  std::vector<std::string_view> texts = {"token 5", "nothing", "token 19999", ""};
  std::vector<Token> found(texts.size());
  vocabulary.find_all(texts, found);
  EXPECT_EQ(found, (std::vector<Token>{15, kNoToken, 59997, kNoToken}));
  EXPECT_FALSE(vocabulary.has(1));
  EXPECT_TRUE(vocabulary.has(3));
  EXPECT_EQ(vocabulary.text(3), "token 1");
  EXPECT_EQ(vocabulary.text(-1), "");
  EXPECT_EQ(vocabulary.text(1 << 30), "");
  EXPECT_FALSE(vocabulary.add("x", -1).ok());
  EXPECT_FALSE(vocabulary.add("x", kMostTokens).ok());
  EXPECT_FALSE(vocabulary.add("another", 3).ok());
  EXPECT_FALSE(vocabulary.add(std::string(kLongestToken + 1, 'x'), 1).ok());
}

}  // namespace
}  // namespace millrace

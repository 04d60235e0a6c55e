// Pages in a store that others can write to: what was put comes back, and nothing else does.
#include "tier/sealed_node.h"

#include <gtest/gtest.h>

#include "tier/redis_tier.h"

namespace millrace {
namespace {

Identity identity(uint8_t number) {
  Identity made;
  made.bytes.fill(number);
  return made;
}

NodeSeal seal_with(uint8_t secret, uint8_t model = 1) {
  std::array<uint8_t, 32> bytes;
  bytes.fill(secret);
  return make_seal(identity(model), bytes, 3, 16);
}

TierNode some_node() {
  return {.chain = identity(9), .present = {1, 0, 1}, .pages = "0123456789abcdefFEDCBA9876543210"};
}

TEST(SealedNode, ComesBack) {
  const NodeSeal seal = seal_with(7);
  const auto back = open_node(seal, identity(9), seal_node(seal, some_node()));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->pages, some_node().pages);
  EXPECT_EQ(back->present, some_node().present);
  EXPECT_EQ(back->chain, identity(9));
}

TEST(SealedNode, DamageAtEveryByteIsRefused) {
  const NodeSeal seal = seal_with(7);
  const std::string good = seal_node(seal, some_node());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(open_node(seal, identity(9), bad).ok()) << i;
    }
    EXPECT_FALSE(open_node(seal, identity(9), good.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(open_node(seal, identity(9), good + "x").ok());
}

TEST(SealedNode, NobodyElsesIsTaken) {
  const NodeSeal seal = seal_with(7);
  const std::string good = seal_node(seal, some_node());
  EXPECT_FALSE(open_node(seal, identity(8), good).ok());             // of other tokens, or another tenant
  EXPECT_FALSE(open_node(seal_with(7, 2), identity(9), good).ok());  // of another model
  EXPECT_FALSE(open_node(seal_with(8), identity(9), good).ok());     // by somebody with another secret
  EXPECT_NE(node_key(seal, identity(9)), node_key(seal_with(7, 2), identity(9)));
  EXPECT_EQ(node_key(seal, identity(9)), node_key(seal_with(8), identity(9)));
}

TEST(RedisUrl, IsReadOrRefused) {
  const auto plain = parse_redis_url("redis://store");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "store");
  EXPECT_EQ(plain->port, 6379);
  const auto full = parse_redis_url("redis://ann:pass:word@[::1]:7000/");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->host, "::1");
  EXPECT_EQ(full->port, 7000);
  EXPECT_EQ(full->user, "ann");
  EXPECT_EQ(full->password, "pass:word");
  EXPECT_EQ(parse_redis_url("unix:/run/redis.sock")->path, "/run/redis.sock");
  for (const char* bad : {"", "redis://", "http://a", "redis://a:0", "redis://a:99999", "redis://a:b", "redis://x@a",
                          "redis://:70", "unix:relative"})
    EXPECT_FALSE(parse_redis_url(bad).ok()) << bad;
}

}  // namespace
}  // namespace millrace

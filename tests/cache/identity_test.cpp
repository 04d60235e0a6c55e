#include "cache/identity.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cache/bulk_digest.h"

namespace millrace {
namespace {

std::string hex(const Identity& identity) {
  std::string text;
  for (uint8_t byte : identity.bytes) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

std::vector<uint8_t> counting(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

std::string digest(const std::vector<uint8_t>& key, const std::vector<uint8_t>& message, size_t piece) {
  Digest sum(key);
  for (size_t at = 0; at < message.size(); at += piece)
    sum.add(std::as_bytes(std::span(message).subspan(at, std::min(piece, message.size() - at))));
  return hex(sum.finish());
}

// Values from Python's hashlib.blake2s; "abc" is the example of RFC 7693.
TEST(Identity, IsBlake2s) {
  EXPECT_EQ(digest({}, {}, 1), "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9");
  EXPECT_EQ(digest({}, {'a', 'b', 'c'}, 3), "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
  for (size_t piece : {1u, 7u, 63u, 64u, 65u, 300u}) {
    EXPECT_EQ(digest(counting(32), {}, piece), "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49");
    EXPECT_EQ(digest(counting(32), counting(64), piece),
              "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4");
    EXPECT_EQ(digest(counting(32), counting(65), piece),
              "21fe0ceb0052be7fb0f004187cacd7de67fa6eb0938d927677f2398c132317a8");
    EXPECT_EQ(digest(counting(32), counting(255), piece),
              "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd");
  }
}

// Every field counts, and none runs into the next.
TEST(Identity, RootKeysTellEverythingApart) {
  auto bytes = counting(32);
  std::span<const uint8_t, 32> secret(bytes.data(), 32);
  Identity other;
  other.bytes[0] = 1;
  const PrefixRoot all[] = {
      {.tenant = "ab", .salt = "c"},
      {.tenant = "a", .salt = "bc"},
      {.tenant = "abc"},
      {.salt = "abc"},
      {.adapter = "abc"},
      {.rule = "abc"},
      {.model = other, .tenant = "abc"},
      {.salt = "ab", .adapter = "c"},
      {},
  };
  std::set<Identity> keys;
  for (const PrefixRoot& root : all) keys.insert(root_key(secret, root));
  EXPECT_EQ(keys.size(), std::size(all));
  EXPECT_TRUE(keys.contains(root_key(secret, {.tenant = "ab", .salt = "c"})));
  bytes[31] ^= 1;
  EXPECT_FALSE(keys.contains(root_key(secret, {.tenant = "ab", .salt = "c"})));
}

// A digest that is the same whatever the machine (the expected one was computed in Python, with its hashlib), and
// another one after any change anywhere.
TEST(BulkDigest, IsFixedAndSeesEveryByte) {
  std::vector<std::byte> bytes((size_t{9} << 20) + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  const Identity whole = bulk_digest(bytes);
  EXPECT_EQ(hex(whole), "69ed11e12f9b0dd7a319c1d596c3725e64500234af51e74177680f7768669bc7");
  EXPECT_EQ(bulk_digest(bytes), whole);
  for (const size_t at : {size_t{0}, size_t{2047}, size_t{2048}, size_t{4096}, size_t{4} << 20, bytes.size() - 1}) {
    bytes[at] ^= std::byte{0x10};
    EXPECT_NE(bulk_digest(bytes), whole) << at;
    bytes[at] ^= std::byte{0x10};
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 4096, bytes.begin() + 4096);  // two stretches
  EXPECT_NE(bulk_digest(bytes), whole);
  // Zeros that follow are not zeros that pad.
  std::set<Identity> lengths;
  for (size_t size : {0u, 1u, 4095u, 4096u, 4097u, 1u << 22, (1u << 22) + 1})
    lengths.insert(bulk_digest(std::vector<std::byte>(size)));
  EXPECT_EQ(lengths.size(), 7u);
}

}  // namespace
}  // namespace millrace

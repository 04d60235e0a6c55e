#include "cache/identity.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

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

TEST(Identity, RootKeysTellTenantsAndAdaptersApart) {
  auto bytes = counting(32);
  std::span<const uint8_t, 32> secret(bytes.data(), 32);
  EXPECT_EQ(hex(root_key(secret, "tenant", "adapter")),
            "e2924fdc8172051eb9919686d23c0a5f467c6b3db07b72bf12575bed28017e5e");
  std::set<Identity> keys = {root_key(secret, "ab", "c"), root_key(secret, "a", "bc"), root_key(secret, "abc", ""),
                             root_key(secret, "", "abc"), root_key(secret, "ab", "d")};
  EXPECT_EQ(keys.size(), 5u);
  bytes[31] ^= 1;
  EXPECT_FALSE(keys.contains(root_key(secret, "ab", "c")));
}

}  // namespace
}  // namespace millrace

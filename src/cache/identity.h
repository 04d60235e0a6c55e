// Identity: 256 bits that stand for something, made with a secret key so that nobody outside can guess or collide them.
// BLAKE2s-256 in keyed mode (RFC 7693). The prefix tree keeps one root for every identity, so a tenant never meets what
// another one left, not even as a shorter wait. Any thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace millrace {

struct Identity {
  std::array<uint8_t, 32> bytes = {};
  friend auto operator<=>(const Identity&, const Identity&) = default;
};

// The digest of everything given to add(), under a key of 0 to 32 bytes.
class Digest {
 public:
  explicit Digest(std::span<const uint8_t> key = {});
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  void add(const Identity& identity) { add(std::as_bytes(std::span(identity.bytes))); }
  void add_sized(std::string_view text);  // with its length, so that ("ab", "c") is not ("a", "bc")
  Identity finish();

 private:
  void compress(bool last);
  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> buffer_ = {};
  size_t buffered_ = 0;
  uint64_t total_ = 0;
};

// Everything beside tokens and positions that decides what is in a cached page, or who may find it. Two requests share
// a prefix only if all of it is equal; whatever comes to change keys and values gets a field here.
struct PrefixRoot {
  Identity model;  // Fingerprint::pages (session/fingerprint.h): weights, formats, arithmetic, the cache's form
  std::string_view tenant;   // whose requests they are
  std::string_view salt;     // as the client gave it
  std::string_view adapter;  // empty: the model itself
  std::string_view rule;     // what the cache forgets and keeps otherwise than usual; empty: nothing
};

// The root of the prefix tree for it. The secret is the server's own, 32 random bytes.
Identity root_key(std::span<const uint8_t, 32> secret, const PrefixRoot& root);

}  // namespace millrace

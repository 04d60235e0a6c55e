// Vocabulary: the texts of tokens by id and the ids by text. Ids may have holes. Filled once, then read from any
// thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"

namespace millrace {

inline constexpr Token kNoToken = -1;
inline constexpr Token kMostTokens = 1 << 22;      // ids are below this
inline constexpr size_t kLongestToken = 16 << 10;  // bytes

// Spreads any bytes over 64 bits; different seeds give unrelated spreads.
inline uint64_t hash_bytes(const char* data, size_t size, uint64_t seed = 0) {
  __extension__ using Wide = unsigned __int128;
  auto fold = [](uint64_t a, uint64_t b) {
    Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  auto load8 = [](const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
  };
  auto load4 = [](const char* at) {
    uint32_t value;
    std::memcpy(&value, at, 4);
    return uint64_t{value};
  };
  constexpr uint64_t kA = 0x9E3779B97F4A7C15, kB = 0xD1B54A32D192ED03, kC = 0x8CB92BA72F3D8DD7;
  uint64_t state = seed ^ kC ^ size * kA;
  while (size > 16) {
    state = fold(load8(data) ^ kA ^ state, load8(data + 8) ^ kB);
    data += 16, size -= 16;
  }
  uint64_t low = 0, high = 0;
  if (size >= 8) {
    low = load8(data), high = load8(data + size - 8);
  } else if (size >= 4) {
    low = load4(data), high = load4(data + size - 4);
  } else if (size > 0) {
    auto byte = [&](size_t at) { return uint64_t{static_cast<unsigned char>(data[at])}; };
    low = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
  }
  return fold(low ^ kA ^ state, high ^ kB ^ (state >> 32 | state << 32));
}

class Vocabulary {
 public:
  Vocabulary();
  void reserve(size_t tokens, size_t bytes);
  // A text that is there already moves to the new id, as the later of two equal keys wins; an id keeps its first text.
  Result<void> add(std::string_view text, Token id);

  // The same for many at once, which waits for memory once and not for each.
  void find_all(std::span<const std::string_view> texts, std::span<Token> found) const;
  Token find(std::string_view text) const;  // kNoToken if absent
  std::string_view text(Token id) const;    // empty if there is none
  bool has(Token id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[static_cast<size_t>(id)].begin != kHole;
  }
  Token size() const { return static_cast<Token>(spans_.size()); }  // one more than the largest id
  size_t count() const { return count_; }                           // different texts
  size_t longest() const { return longest_; }                       // bytes

 private:
  static constexpr uint32_t kHole = UINT32_MAX;
  struct Place {
    uint32_t begin = kHole, size = 0;
  };
  struct Slot {
    Token id = kNoToken;
    uint32_t hash = 0;
  };
  void grow();
  // The slot of the text, or the free one where it would go.
  size_t slot_of(std::string_view text, uint64_t hash) const;

  std::string bytes_;
  std::vector<Place> spans_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t count_ = 0, longest_ = 0;
  uint64_t seed_;  // differs from process to process, so a file cannot aim at one slot
};

}  // namespace millrace

// TokenMask: which tokens may come next, a bit for each. Made once and shared read only; any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/token.h"

namespace millrace {

struct TokenMask {
  std::vector<uint64_t> words;  // token t is bit t % 64 of word t / 64

  explicit TokenMask(int32_t tokens = 0) : words((static_cast<size_t>(tokens) + 63) / 64, 0) {}
  void add(Token token) { words[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); }
  void add(const TokenMask& other) {
    for (size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
  }
  bool has(Token token) const {
    const size_t word = static_cast<size_t>(token) / 64;
    return word < words.size() && (words[word] >> (token % 64) & 1) != 0;
  }
  // The token, if it is the only one; else -1.
  Token only() const {
    Token found = -1;
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == 0) continue;
      if (found >= 0 || (words[i] & (words[i] - 1)) != 0) return -1;
      found = static_cast<Token>(i * 64 + static_cast<size_t>(std::countr_zero(words[i])));
    }
    return found;
  }
  int64_t count() const {
    int64_t total = 0;
    for (uint64_t word : words) total += std::popcount(word);
    return total;
  }
};

}  // namespace millrace

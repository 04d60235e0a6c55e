// WordCache: the tokens of short pieces seen before. A fixed number of places, each of one cache line, so its size is
// bounded whatever the text; two pieces that want one place push each other out. One thread's.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/vocabulary.h"

namespace millrace {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 26, kMostTokens = 8;

  WordCache() : entries_(kEntries) {}

  // Appends the tokens of the word and returns true if they are known. *hash is for put().
  bool get(std::string_view word, uint64_t* hash, std::vector<Token>& out) const {
    if (word.size() > kLongestWord) return false;
    *hash = hash_bytes(word.data(), word.size());
    const size_t place = *hash & (kEntries - 1);
    for (size_t at : {place, place ^ 1}) {
      const Entry& entry = entries_[at];
      if (entry.hash != static_cast<uint32_t>(*hash >> 32) || entry.size != word.size()) continue;
      if (std::memcmp(entry.word, word.data(), word.size()) != 0) continue;
      if (entry.count == 1) {
        out.push_back(entry.tokens[0]);
      } else {
        out.insert(out.end(), entry.tokens, entry.tokens + entry.count);
      }
      return true;
    }
    return false;
  }

  void put(std::string_view word, uint64_t hash, std::span<const Token> tokens) {
    if (word.size() > kLongestWord || tokens.size() > kMostTokens) return;
    Entry& entry = entries_[hash & (kEntries - 1)];
    if (entry.size != 0) entries_[(hash & (kEntries - 1)) ^ 1] = entry;
    entry.hash = static_cast<uint32_t>(hash >> 32);
    entry.size = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(tokens.begin(), tokens.end(), entry.tokens);
  }

 private:
  static constexpr size_t kEntries = 1 << 14;
  struct alignas(64) Entry {
    uint32_t hash = 0;
    uint8_t size = 0, count = 0;  // size 0: empty
    char word[kLongestWord];
    Token tokens[kMostTokens];
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
};

}  // namespace millrace

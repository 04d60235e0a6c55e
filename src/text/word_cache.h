// WordCache: the tokens of short pieces seen before. A fixed number of places, so its size is bounded whatever the
// text; pieces that want one place push each other out. One thread's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/vocabulary.h"

namespace millrace {

// Places for words of one size class; kBytes and kTokens make an entry a power of two of bytes.
template <size_t kBytes, size_t kTokens, size_t kEntries>
class WordTable {
 public:
  WordTable() : entries_(kEntries) {}

  bool get(std::string_view word, uint64_t hash, std::vector<Token>& out) const {
    const size_t place = hash & (kEntries - 1);
    for (size_t at : {place, place ^ 1}) {
      const Entry& entry = entries_[at];
      if (entry.hash != static_cast<uint32_t>(hash >> 32) || entry.size != word.size()) continue;
      if (std::memcmp(entry.word, word.data(), word.size()) != 0) continue;
      out.insert(out.end(), entry.tokens, entry.tokens + entry.count);
      return true;
    }
    return false;
  }

  void put(std::string_view word, uint64_t hash, std::span<const Token> tokens) {
    if (tokens.size() > kTokens) return;
    const size_t place = hash & (kEntries - 1);
    Entry& entry = entries_[place];
    if (entry.size != 0) entries_[place ^ 1] = entry;
    entry.hash = static_cast<uint32_t>(hash >> 32);
    entry.size = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(tokens.begin(), tokens.end(), entry.tokens);
  }

 private:
  struct Entry {
    uint32_t hash = 0;
    uint8_t size = 0, count = 0;  // size 0: empty
    char word[kBytes];
    Token tokens[kTokens];
  };
  static_assert((sizeof(Entry) & (sizeof(Entry) - 1)) == 0 && (kEntries & (kEntries - 1)) == 0);
  std::vector<Entry> entries_;
};

class WordCache {
 public:
  // Appends the tokens of the word and returns true if they are known. *hash is for put().
  bool get(std::string_view word, uint64_t* hash, std::vector<Token>& out) const {
    if (word.size() > kLong) return false;
    *hash = hash_bytes(word.data(), word.size());
    return word.size() <= kShort ? short_.get(word, *hash, out) : long_.get(word, *hash, out);
  }
  void put(std::string_view word, uint64_t hash, std::span<const Token> tokens) {
    if (word.size() > kLong) return;
    word.size() <= kShort ? short_.put(word, hash, tokens) : long_.put(word, hash, tokens);
  }

 private:
  static constexpr size_t kShort = 14, kLong = 58;
  WordTable<kShort, 3, 1 << 16> short_;  // 2 MiB
  WordTable<kLong, 16, 1 << 12> long_;   // 512 KiB
};

}  // namespace millrace

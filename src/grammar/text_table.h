// TextTable: what every token of a vocabulary does inside a JSON string whose content is free but for its length: it
// stays inside and needs so many characters, or it says so many, ends the string, and goes on with a rest. Which of
// them are allowed is then a matter of counting, for every grammar and every bound on a length. Made once per model,
// then read only; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/token.h"
#include "base/token_mask.h"
#include "grammar/token_trie.h"

namespace millrace::grammar {

// Tokens that end a string, by what they say after its end.
struct LeavingTokens {
  struct Entry {
    Token token = 0;
    int32_t before = 0;      // what is said before the end, a number of TextTable::before()
    int32_t characters = 0;  // of that
  };
  TokenTrie rests;  // ids are places in `first`
  std::vector<uint32_t> first{0};
  std::vector<Entry> entries;  // of rest i: first[i] to first[i + 1]

  // Texts in order, each with the tokens that say it.
  void add(const std::string& rest, const std::vector<Entry>& tokens);
  void finish();
  int64_t bytes() const;

 private:
  std::vector<std::pair<std::string, int32_t>> texts_;
};

class TextTable {
 public:
  TextTable() = default;
  // The bytes of each token, and those that are nothing but whole plain characters, with how many.
  TextTable(const std::vector<std::string>& bytes, const std::vector<int>& plain);

  // Tokens that stay inside a string of at most so many more characters; -1: of any length.
  TokenMask staying(int most) const;
  const TokenMask& staying() const { return all_; }
  const LeavingTokens& leaving() const { return leaving_; }
  const TokenTrie& before() const { return before_; }  // what tokens say before they end a string, escapes undone
  size_t befores() const { return befores_; }
  int longest() const { return longest_; }  // characters of a token, at most

 private:
  void add_staying(Token token, int characters);

  static constexpr int kCounted = 16;
  TokenMask all_;
  std::vector<TokenMask> upto_;              // of at most 0, 1, ... kCounted characters
  std::vector<std::pair<int, Token>> more_;  // of more, in order
  LeavingTokens leaving_;
  TokenTrie before_;
  size_t befores_ = 0;
  int longest_ = 0;
};

}  // namespace millrace::grammar

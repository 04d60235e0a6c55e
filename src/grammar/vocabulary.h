// GrammarVocabulary: a model's tokens as bytes, arranged for masks: a trie of all of them, and what each does inside a
// JSON string. Made once per model, then read only; any thread.
//
// Control tokens have no bytes here, and a grammar never allows them but at the end; or they have control_bytes(), and
// only grammars of calls, which name them, do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"
#include "base/token_mask.h"
#include "grammar/text_table.h"
#include "grammar/token_trie.h"

namespace millrace {

class GrammarVocabulary {
 public:
  // The bytes of each token, empty where it has none (control tokens); `ends` end an answer.
  GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> ends);

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  const std::string& bytes(Token token) const { return bytes_[static_cast<size_t>(token)]; }
  const std::vector<Token>& ends() const { return ends_; }
  bool is_end(Token token) const;

  const TokenTrie& all() const { return all_; }
  const grammar::TextTable& texts() const { return texts_; }
  bool has_byte(uint8_t byte) const { return used_[byte]; }  // in some token

  // The longest of a few allowed tokens that all others begin with or begin: text that must come, as one token. -1:
  // there is none, or many are allowed.
  Token forced(const TokenMask& allowed) const;

 private:
  std::vector<std::string> bytes_;
  std::vector<Token> ends_;
  TokenTrie all_;
  grammar::TextTable texts_;
  bool used_[256] = {};
};

}  // namespace millrace

// GrammarVocabulary: a model's tokens as bytes, arranged for masks: a trie of all of them, the tokens that are nothing
// but plain characters (no quote, backslash, control or cut character) by length, and a trie of the rest. Made once per
// model, then read only; any thread.
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

namespace millrace {

// Texts with a number each, laid flat in depth-first order. A node is a byte; `skip` leads past what is below it.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint8_t depth = 0;              // of the byte, from 0; texts over 255 bytes are left out
    uint32_t skip = 0;              // first node that is not below this one
    uint32_t first = 0, count = 0;  // ids of texts that end here, in ids()
  };
  TokenTrie() = default;
  explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> texts);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  const std::vector<int32_t>& empty() const { return empty_; }  // ids of the empty text

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> ids_, empty_;
};

// Bytes that stand for a control token where it counts: no text has them.
std::string control_bytes(Token token);

class GrammarVocabulary {
 public:
  // The bytes of each token, empty where it has none (control tokens); `ends` end an answer.
  GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> ends);

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  const std::string& bytes(Token token) const { return bytes_[static_cast<size_t>(token)]; }
  const std::vector<Token>& ends() const { return ends_; }
  bool is_end(Token token) const;

  const TokenTrie& all() const { return all_; }
  const TokenTrie& rest() const { return rest_; }              // tokens that are not plain
  const TokenMask& plain() const { return plain_; }            // plain tokens
  int longest_plain() const { return longest_plain_; }         // in characters
  bool has_byte(uint8_t byte) const { return single_[byte]; }  // as a token of its own

  // The longest of a few allowed tokens that all others begin with or begin: text that must come, as one token. -1:
  // there is none, or many are allowed.
  Token forced(const TokenMask& allowed) const;

 private:
  std::vector<std::string> bytes_;
  std::vector<Token> ends_;
  TokenTrie all_, rest_;
  TokenMask plain_;
  int longest_plain_ = 0;
  bool single_[256] = {};
};

}  // namespace millrace

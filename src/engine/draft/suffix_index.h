// SuffixIndex: a suffix automaton over tokens that grows by one token at a time. It answers: of what was read last, how
// long an end occurs in the text, and what followed it there. Reading a token and adding one each take constant time on
// average, whatever the length. Plain data, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"

namespace millrace {

class SuffixIndex {
 public:
  // How far somebody's reading agrees with the text: the longest end of it that occurs there.
  struct Match {
    int32_t state = 0;
    int32_t length = 0;
  };

  SuffixIndex();
  void add(Token token);                       // to the text
  Match read(Match match, Token token) const;  // whoever is at `match` reads one more token
  Match settled(Match match) const;            // the same match after the text has grown
  int32_t after(const Match& match) const;     // place of the token that followed an occurrence; size(): none did
  std::span<const Token> text() const { return text_; }
  int32_t size() const { return static_cast<int32_t>(text_.size()); }
  int64_t bytes() const;

 private:
  struct State {
    int32_t length = 0;  // of its longest string
    int32_t link = -1;   // the state of the longest end that occurs elsewhere too
    int32_t end = -1;    // where an occurrence of its strings ends
    int32_t edges = -1;  // the first
  };
  struct Edge {
    int32_t from = 0;
    Token token = 0;
    int32_t to = 0;
    int32_t next = -1;  // of the same state
  };
  int32_t find(int32_t from, Token token) const;  // an edge; -1: none
  int32_t target(int32_t from, Token token) const;
  void connect(int32_t from, Token token, int32_t to);
  void grow_table();
  int32_t split(int32_t from, Token token, int32_t state);
  size_t place(int32_t from, Token token) const;

  std::vector<Token> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // edges by (from, token), open addressing; -1: free
  int32_t last_ = 0;            // the state of the whole text
};

}  // namespace millrace

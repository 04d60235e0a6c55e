// SuffixIndex: a suffix automaton over tokens that grows by one token at a time, in memory given to it, up to as many
// tokens as that has room for. It answers: of what was read last, how long an end occurs in the text, and what followed
// it there. Reading a token and adding one each take constant time on average, whatever the length. Plain data, one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token.h"

namespace millrace {

class SuffixIndex {
 public:
  // How far somebody's reading agrees with the text: the longest end of it that occurs there.
  struct Match {
    int32_t state = 0;
    int32_t length = 0;
  };

  // Text of n tokens has at most 2n states and 3n edges between them; edges are looked up in a table of 4n places.
  static constexpr int64_t kTokenBytes = 100;
  SuffixIndex() = default;  // without room
  // Room for so many tokens, a power of two, in `room * kTokenBytes` bytes that outlive it.
  SuffixIndex(std::byte* memory, int32_t room);
  void clear();
  bool full() const { return size_ == room_; }
  void add(Token token);                       // to the text, which is not full
  Match read(Match match, Token token) const;  // whoever is at `match` reads one more token
  Match settled(Match match) const;            // the same match after the text has grown
  int32_t after(const Match& match) const;     // place of the token that followed an occurrence; size(): none did
  std::span<const Token> text() const { return {text_, static_cast<size_t>(size_)}; }
  int32_t size() const { return size_; }
  int32_t room() const { return room_; }

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
  int32_t split(int32_t from, Token token, int32_t old);
  size_t place(int32_t from, Token token) const;

  State& state(int32_t at) { return states_[at]; }
  const State& state(int32_t at) const { return states_[at]; }

  int32_t room_ = 0, size_ = 0, state_count_ = 0, edge_count_ = 0;
  Token* text_ = nullptr;
  State* states_ = nullptr;
  Edge* edges_ = nullptr;
  int32_t* table_ = nullptr;  // edges by (from, token), open addressing; -1: free
  int32_t last_ = 0;          // the state of the whole text
};

}  // namespace millrace

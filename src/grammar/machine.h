// Machine: the automaton behind every grammar. A state is an interned set of stacks that share what they have in
// common; a stack's top consumes bytes, what is below says what comes after. step() is a function of state and byte
// only, made on first use and kept, so equal states share everything that was ever found out about them.
//
// Frames that consume bytes: `lex` (a regular language) and `text` (the inside of a JSON string, its escapes undone
// before the language sees it). All other kinds are control: their Source says which sequences of frames they stand
// for. A text can be captured: what was written goes to the frame below it.
//
// One thread at a time (the Automaton that owns it locks). Work and memory are counted; over() stays true once a limit
// was passed, and every state is dead from then on.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/expr.h"
#include "grammar/flat_map.h"

namespace millrace::grammar {

using StateId = int32_t;

struct Frame {
  enum Kind : uint8_t { end, lex, text, control };
  static constexpr int32_t kCapture = 1, kForgotten = -1, kMuddled = -2;
  // end: nothing. lex: a = language, b = 1 if it ends with kTextEnd. text: a = language, b = place inside an escape or
  // character, c = capture: 0 none, kForgotten, kMuddled (begun after a forgotten one), else its number; kCapture
  // begins one. control: kind >= control, a, b, c as its source likes.
  int32_t kind = end;
  int32_t a = 0, b = 0, c = 0;
  bool operator==(const Frame&) const = default;
  auto operator<=>(const Frame&) const = default;
};

using Sequences = std::vector<std::vector<Frame>>;  // the first frame of each is on top

class Source {
 public:
  virtual ~Source() = default;
  virtual void expand(const Frame& frame, Sequences& out) = 0;
  // A control frame below a captured text gets it; null if its beginning was forgotten (Machine::forget).
  virtual Frame receive(const Frame& frame, const std::string* captured) = 0;
};

class Machine {
 public:
  static constexpr StateId kDead = 0;

  Machine(Exprs& exprs, Source& source, std::vector<Frame> start);

  StateId start() const { return start_; }
  StateId step(StateId state, uint8_t byte);
  StateId run(StateId state, std::string_view bytes);
  // Bytes that step() may take, and maybe others: those that are not in it lead nowhere.
  const ByteSet& next_bytes(StateId state);
  // Kinds of characters (char_kinds.h) of which any number may come, in any order.
  uint8_t open_kinds(StateId state);
  bool accepts(StateId state) const { return states_[static_cast<size_t>(state)].accepts; }
  // Whether the only thing left is to end.
  bool finished(StateId state) const { return accepts(state) && states_[static_cast<size_t>(state)].nodes.size() == 1; }
  // The same state without what is being captured. What follows is the same too, as long as muddled() is false.
  StateId forget(StateId state);
  // Whether a text is being captured after one whose beginning was forgotten: what may follow is not known here.
  bool muddled(StateId state) const { return states_[static_cast<size_t>(state)].muddled; }

  struct Top {
    Frame frame;
    StateId below;
  };
  std::vector<Top> tops(StateId state) const;
  // For masks that are put together from parts: what comes after a text, a text with nothing after it, the state after
  // that, and a state without the broad texts on top (broad_text.h).
  StateId after(StateId below, int32_t capture);
  StateId alone(const Frame& frame) { return above(frame, end_); }
  StateId ended() const { return end_; }
  StateId without_texts(StateId state);

  size_t states() const { return states_.size(); }
  int64_t bytes() const;
  bool over() const { return over_ || exprs_.over(); }
  void limit(size_t states) { most_states_ = states; }
  uint64_t work() const { return work_ + exprs_.work(); }
  Exprs& exprs() { return exprs_; }

 private:
  struct Node {
    Frame frame;
    StateId below = 0;
    bool operator==(const Node&) const = default;
    auto operator<=>(const Node&) const = default;
  };
  struct State {
    std::vector<int32_t> nodes;  // ids, sorted
    bool accepts = false;
    bool captures = false, muddled = false;
    int32_t depth = 0;
    StateId forgotten = -1;
    int32_t next = -1;  // in next_bytes_
    int16_t kinds = -1;
  };
  struct Closing {
    std::vector<Node> todo, tops;
  };
  int32_t node_id(const Node& node);
  StateId make_state(std::vector<Node> nodes);
  StateId above(const Frame& frame, StateId below);  // one frame on a state
  void pop(StateId below, Closing& work);
  bool may_end(const Frame& lex);
  StateId close(Closing& work);
  const Sequences& expanded(const Frame& frame);
  void step_text(const Node& node, uint8_t byte, Closing& work);
  void end_text(const Node& node, Closing& work);
  // Adds the frame after one more character of the text, given in UTF-8, if anything can follow.
  void add_character(const Node& node, std::string_view utf8, Closing& work);
  void step_escape(const Node& node, uint8_t byte, Closing& work);
  bool escape_live(ExprId expr, int32_t escape);
  int32_t captured(int32_t capture, std::string_view more);
  uint8_t kinds_of(ExprId expr);
  bool spend(uint64_t units = 1);

  Exprs& exprs_;
  Source& source_;
  StateId start_ = kDead, end_ = kDead;
  std::vector<Node> nodes_;
  std::vector<State> states_;
  FlatMap steps_;
  std::unordered_multimap<uint64_t, int32_t> node_ids_, state_ids_;
  std::unordered_multimap<uint64_t, std::pair<Frame, Sequences>> expanded_;
  FlatMap escapes_, kinds_;
  std::deque<ByteSet> next_bytes_;
  std::vector<std::string> captures_;
  std::unordered_map<std::string, int32_t> capture_ids_;
  size_t most_states_ = 200'000;
  uint64_t work_ = 0;
  bool over_ = false;
};

}  // namespace millrace::grammar

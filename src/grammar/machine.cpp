#include "grammar/machine.h"

#include <algorithm>
#include <bit>

#include "grammar/broad_text.h"
#include "grammar/char_kinds.h"
#include "grammar/code_points.h"
#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr int32_t kMostDepth = 400;  // of stacks
constexpr size_t kMostClosing = 100'000;

uint64_t mix(uint64_t seed, uint64_t value) {
  seed ^= value + 0x9E3779B97F4A7C15ull + (seed << 6) + (seed >> 2);
  return seed * 0xBF58476D1CE4E5B9ull;
}

uint64_t hash_of(const Frame& frame) {
  uint64_t h = mix(static_cast<uint32_t>(frame.kind), static_cast<uint32_t>(frame.a));
  return mix(mix(h, static_cast<uint32_t>(frame.b)), static_cast<uint32_t>(frame.c));
}

// The place inside a string: what is being spelled.
enum Mode : int32_t { kPlain, kBackslash, kHex, kPairBackslash, kPairU, kPairHex, kCharacter };
struct Escape {
  int32_t mode = kPlain, count = 0, value = 0, high = 0;
  int32_t packed() const { return mode | count << 3 | value << 6 | high << 18; }
  static Escape of(int32_t bits) { return {bits & 7, bits >> 3 & 7, bits >> 6 & 0xFFF, bits >> 18 & 0x3FF}; }
};

int hex_value(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// One more hex digit: the next place, or a code point once it is whole (then true). A count of 7 is a dead end.
bool add_hex(Escape& escape, int digit, uint32_t& code) {
  const int value = escape.value << 4 | digit;
  if (++escape.count < 4) return escape.value = value, false;
  if (escape.mode == kHex && value >= 0xD800 && value < 0xDC00) {
    escape = {kPairBackslash, 0, 0, value - 0xD800};
    return false;
  }
  const bool low = value >= 0xDC00 && value < 0xE000;
  if (low != (escape.mode == kPairHex)) return escape.count = 7, false;
  code = low ? 0x10000 + (static_cast<uint32_t>(escape.high) << 10) + static_cast<uint32_t>(value - 0xDC00)
             : static_cast<uint32_t>(value);
  return true;
}

// Code points that an escape can still come to.
CodePoints reachable(const Escape& escape) {
  if (escape.mode == kBackslash) return all_code_points();
  CodePoints found;
  const auto astral = [&](uint32_t first_high, uint32_t last_high, uint32_t first_low, uint32_t last_low) {
    found.add(0x10000 + ((first_high - 0xD800) << 10) + (first_low - 0xDC00),
              0x10000 + ((last_high - 0xD800) << 10) + (last_low - 0xDC00));
  };
  const uint32_t high = 0xD800 + static_cast<uint32_t>(escape.high);
  const int shift = 4 * (4 - escape.count);
  const uint32_t first = static_cast<uint32_t>(escape.value) << shift, last = first | ((uint32_t{1} << shift) - 1);
  if (escape.mode == kHex) {
    found.add(first, last);  // surrogates are left out of sets
    const uint32_t from = std::max(first, 0xD800u), to = std::min(last, 0xDBFFu);
    if (from <= to) astral(from, to, 0xDC00, 0xDFFF);
  } else if (escape.mode == kPairHex) {
    const uint32_t from = std::max(first, 0xDC00u), to = std::min(last, 0xDFFFu);
    if (from <= to) astral(high, high, from, to);
  } else {
    astral(high, high, 0xDC00, 0xDFFF);
  }
  return found;
}

uint32_t short_escape(uint8_t byte) {
  switch (byte) {
    case 'b':
      return 8;
    case 'f':
      return 12;
    case 'n':
      return 10;
    case 'r':
      return 13;
    case 't':
      return 9;
    case '"':
    case '\\':
    case '/':
      return byte;
    default:
      return ~0u;
  }
}

}  // namespace

Machine::Machine(Exprs& exprs, Source& source, std::vector<Frame> start) : exprs_(exprs), source_(source) {
  states_.emplace_back();  // dead
  captures_ = {"", ""};    // none, and the empty one
  capture_ids_[""] = 1;
  end_ = make_state({Node{}});
  StateId below = end_;
  for (size_t i = start.size(); i-- > 0;) below = above(start[i], below);
  Closing work;
  pop(below, work);
  start_ = close(work);
}

bool Machine::spend(uint64_t units) {
  work_ += units;
  if (states_.size() > most_states_) over_ = true;
  return !over();
}

int32_t Machine::node_id(const Node& node) {
  const uint64_t hash = mix(hash_of(node.frame), static_cast<uint32_t>(node.below));
  auto [begin, end] = node_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (nodes_[static_cast<size_t>(it->second)] == node) return it->second;
  }
  nodes_.push_back(node);
  node_ids_.emplace(hash, static_cast<int32_t>(nodes_.size()) - 1);
  return static_cast<int32_t>(nodes_.size()) - 1;
}

StateId Machine::make_state(std::vector<Node> nodes) {
  if (nodes.empty() || over()) return kDead;
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  State state;
  for (size_t i = 0; i < nodes.size();) {
    size_t j = i + 1;
    while (j < nodes.size() && nodes[j].frame == nodes[i].frame) ++j;
    if (j > i + 1) {  // the same top over different stacks: one top over their union
      std::vector<Node> below;
      for (size_t k = i; k < j; ++k) {
        for (int32_t id : states_[static_cast<size_t>(nodes[k].below)].nodes) {
          below.push_back(nodes_[static_cast<size_t>(id)]);
        }
      }
      nodes[i].below = make_state(std::move(below));
    }
    state.nodes.push_back(node_id(nodes[i]));
    state.accepts |= nodes[i].frame.kind == Frame::end;
    state.captures |= nodes[i].frame.kind == Frame::text && nodes[i].frame.c != 0;
    state.muddled |= nodes[i].frame.kind == Frame::text && nodes[i].frame.c == Frame::kMuddled;
    state.depth = std::max(state.depth, states_[static_cast<size_t>(nodes[i].below)].depth + 1);
    i = j;
  }
  if (state.depth > kMostDepth) return kDead;
  std::sort(state.nodes.begin(), state.nodes.end());
  uint64_t hash = 0;
  for (int32_t id : state.nodes) hash = mix(hash, static_cast<uint32_t>(id));
  auto [begin, end] = state_ids_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (states_[static_cast<size_t>(it->second)].nodes == state.nodes) return it->second;
  }
  if (!spend(1 + nodes.size())) return kDead;
  states_.push_back(std::move(state));
  state_ids_.emplace(hash, static_cast<int32_t>(states_.size()) - 1);
  return static_cast<StateId>(states_.size()) - 1;
}

StateId Machine::above(const Frame& frame, StateId below) { return make_state({Node{frame, below}}); }

const Sequences& Machine::expanded(const Frame& frame) {
  const uint64_t hash = hash_of(frame);
  auto [begin, end] = expanded_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second.first == frame) return it->second.second;
  }
  Sequences found;
  source_.expand(frame, found);
  spend(1 + found.size());
  return expanded_.emplace(hash, std::make_pair(frame, std::move(found)))->second.second;
}

void Machine::pop(StateId below, Closing& work) {
  for (int32_t id : states_[static_cast<size_t>(below)].nodes) work.todo.push_back(nodes_[static_cast<size_t>(id)]);
}

bool Machine::may_end(const Frame& lex) { return exprs_.nullable(lex.b == 0 ? lex.a : exprs_.derive(lex.a, kTextEnd)); }

// Everything that can consume the next byte.
StateId Machine::close(Closing& work) {
  std::unordered_multimap<uint64_t, Node> seen;
  size_t done = 0;
  while (!work.todo.empty()) {
    const Node node = work.todo.back();
    work.todo.pop_back();
    if (node.frame.kind == Frame::end || node.frame.kind == Frame::text) {
      work.tops.push_back(node);
      continue;
    }
    if (node.frame.kind == Frame::lex) {
      if (node.frame.a != Exprs::kEmpty) work.tops.push_back(node);
      if (!may_end(node.frame)) continue;
    }
    const uint64_t hash = mix(hash_of(node.frame), static_cast<uint32_t>(node.below));
    auto [begin, end] = seen.equal_range(hash);
    if (std::any_of(begin, end, [&](const auto& entry) { return entry.second == node; })) continue;
    seen.emplace(hash, node);
    if (++done > kMostClosing || !spend()) {
      over_ = true;
      return kDead;
    }
    if (node.frame.kind == Frame::lex) {
      pop(node.below, work);
      continue;
    }
    for (const std::vector<Frame>& sequence : expanded(node.frame)) {
      StateId below = node.below;
      if (sequence.empty()) {
        pop(below, work);
        continue;
      }
      for (size_t i = sequence.size(); i-- > 1;) below = above(sequence[i], below);
      if (below != kDead) work.todo.push_back({sequence[0], below});
    }
  }
  return make_state(std::move(work.tops));
}

StateId Machine::step(StateId state, uint8_t byte) {
  if (state == kDead) return kDead;
  const uint64_t key = static_cast<uint64_t>(state) << 8 | byte;
  if (const int32_t known = steps_.find(key); known >= 0) return known;
  if (!spend()) return kDead;
  Closing work;
  const std::vector<int32_t> ids = states_[static_cast<size_t>(state)].nodes;
  for (int32_t id : ids) {
    const Node node = nodes_[static_cast<size_t>(id)];
    if (node.frame.kind == Frame::lex) {
      if (node.frame.b == 1 && byte == kTextEnd) continue;
      const ExprId next = exprs_.derive(node.frame.a, byte);
      if (next == Exprs::kNothing || !exprs_.live(next)) continue;
      work.todo.push_back({{Frame::lex, next, node.frame.b, 0}, node.below});
    } else if (node.frame.kind == Frame::text) {
      step_text(node, byte, work);
    }
  }
  const StateId next = close(work);
  if (over()) return kDead;
  steps_.put(key, next);
  return next;
}

const ByteSet& Machine::next_bytes(StateId state) {
  if (const int32_t known = states_[static_cast<size_t>(state)].next; known >= 0) {
    return next_bytes_[static_cast<size_t>(known)];
  }
  ByteSet found;
  for (int32_t id : states_[static_cast<size_t>(state)].nodes) {
    const Frame& frame = nodes_[static_cast<size_t>(id)].frame;
    if (frame.kind == Frame::end) continue;
    if (frame.kind == Frame::text && frame.b != 0) {
      found = ByteSet::all();
      break;
    }
    found.add(exprs_.first_bytes(frame.a));
    if (frame.kind != Frame::text) continue;
    found.add('"');
    found.add('\\');
  }
  states_[static_cast<size_t>(state)].next = static_cast<int32_t>(next_bytes_.size());
  return next_bytes_.emplace_back(found);
}

uint8_t Machine::kinds_of(ExprId expr) {
  if (const int32_t known = kinds_.find(static_cast<uint64_t>(expr)); known >= 0) return static_cast<uint8_t>(known);
  constexpr size_t kMostPlaces = 64, kMostCounted = 400;
  constexpr int kCharacters = 32;  // that suffix_kinds() looks at
  constexpr uint8_t kWords = kLower | kDigit | kUpper, kDense = kWords | kMark;
  const ByteSet first = exprs_.first_bytes(expr);
  constexpr int kLeast = 10;  // digits are the fewest
  uint8_t found = 0;
  if (count_bytes(first) < kLeast) return found;
  for (unsigned kinds : {kDense | kBlank | kWide, kDense | kWide, kDense | kBlank, kDense | 0, kWords | 0,
                         kLower | kDigit, kLower | kUpper, kLower | 0, kUpper | 0, kDigit | 0}) {
    if (over()) return 0;
    const ExprId character = kinds_expr(exprs_, static_cast<uint8_t>(kinds));
    ByteSet begins = exprs_.first_bytes(character);
    begins.keep(first);
    if (begins != exprs_.first_bytes(character)) continue;
    const auto stops = [&](int most, size_t places) {
      return exprs_.stops_at(expr, exprs_.repeat(character, 0, most), places);
    };
    if (stops(1, 16) != Exprs::kNever) continue;
    const int far = stops(Exprs::kMany, kMostPlaces);
    // A stop within so many bytes is one within so many characters.
    if (far != Exprs::kNever && (far <= kCharacters || stops(kCharacters, kMostCounted) != Exprs::kNever)) continue;
    found = static_cast<uint8_t>(kinds);
    break;
  }
  if (!over()) kinds_.put(static_cast<uint64_t>(expr), found);
  return found;
}

uint8_t Machine::open_kinds(StateId state) {
  if (const int16_t known = states_[static_cast<size_t>(state)].kinds; known >= 0) return static_cast<uint8_t>(known);
  constexpr size_t kMostTops = 4;
  uint8_t found = 0;
  const std::vector<int32_t> ids = states_[static_cast<size_t>(state)].nodes;
  for (size_t i = 0; i < std::min(ids.size(), kMostTops); ++i) {
    const Frame frame = nodes_[static_cast<size_t>(ids[i])].frame;
    if (frame.kind == Frame::lex || (frame.kind == Frame::text && frame.b == 0)) {
      const uint8_t kinds = kinds_of(frame.a);
      if (std::popcount(kinds) > std::popcount(found)) found = kinds;
    }
  }
  states_[static_cast<size_t>(state)].kinds = found;
  return found;
}

StateId Machine::run(StateId state, std::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != kDead; ++i) state = step(state, static_cast<uint8_t>(bytes[i]));
  return state;
}

int32_t Machine::captured(int32_t capture, std::string_view more) {
  if (capture <= 0) return capture;
  std::string text = captures_[static_cast<size_t>(capture)] + std::string(more);
  auto [found, fresh] = capture_ids_.try_emplace(std::move(text), static_cast<int32_t>(captures_.size()));
  if (fresh) captures_.push_back(found->first);
  return found->second;
}

void Machine::step_text(const Node& node, uint8_t byte, Closing& work) {
  const Escape escape = Escape::of(node.frame.b);
  if (escape.mode != kPlain && escape.mode != kCharacter) return step_escape(node, byte, work);
  const bool continuation = byte >= 0x80 && byte < 0xC0;
  if (continuation != (escape.mode == kCharacter)) return;
  if (byte == '"') return end_text(node, work);
  if (byte == kTextEnd) return;  // ends the language, and is in no text
  Node next = node;
  if (byte == '\\') {
    next.frame.b = Escape{kBackslash}.packed();
    if (escape_live(next.frame.a, next.frame.b)) work.todo.push_back(next);
    return;
  }
  if (byte < 0x20) return;
  next.frame.a = exprs_.derive(node.frame.a, byte);
  if (next.frame.a == Exprs::kNothing || !exprs_.live(next.frame.a)) return;
  Escape place;
  const int left = continuation ? escape.count - 1 : byte < 0x80 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  if (left > 0) place = {kCharacter, left};
  next.frame.b = place.packed();
  const char as_char = static_cast<char>(byte);
  next.frame.c = captured(node.frame.c, {&as_char, 1});
  work.todo.push_back(next);
}

void Machine::end_text(const Node& node, Closing& work) {
  if (!exprs_.nullable(exprs_.derive(node.frame.a, kTextEnd))) return;
  if (node.frame.c == 0) return pop(node.below, work);
  const std::string text = node.frame.c > 0 ? captures_[static_cast<size_t>(node.frame.c)] : std::string();
  const std::vector<int32_t> ids = states_[static_cast<size_t>(node.below)].nodes;
  for (int32_t id : ids) {
    const Node below = nodes_[static_cast<size_t>(id)];
    work.todo.push_back({source_.receive(below.frame, node.frame.c > 0 ? &text : nullptr), below.below});
  }
}

void Machine::add_character(const Node& node, std::string_view utf8, Closing& work) {
  Node next = node;
  next.frame.b = 0;
  for (char c : utf8) next.frame.a = exprs_.derive(next.frame.a, static_cast<uint8_t>(c));
  if (next.frame.a == Exprs::kNothing || !exprs_.live(next.frame.a)) return;
  next.frame.c = captured(node.frame.c, utf8);
  work.todo.push_back(next);
}

void Machine::step_escape(const Node& node, uint8_t byte, Closing& work) {
  Escape escape = Escape::of(node.frame.b);
  Node next = node;
  std::string utf8;
  if (escape.mode == kBackslash && byte != 'u') {
    const uint32_t code = short_escape(byte);
    if (code == ~0u) return;
    append_utf8(utf8, code);
    return add_character(node, utf8, work);
  }
  if (escape.mode == kBackslash) {
    escape = {kHex};
  } else if (escape.mode == kPairBackslash || escape.mode == kPairU) {
    if (byte != (escape.mode == kPairU ? 'u' : '\\')) return;
    escape.mode = escape.mode == kPairU ? kPairHex : kPairU;
  } else {
    const int digit = hex_value(byte);
    uint32_t code = 0;
    if (digit < 0) return;
    if (add_hex(escape, digit, code)) {
      append_utf8(utf8, code);
      return add_character(node, utf8, work);
    }
    if (escape.count == 7) return;
  }
  next.frame.b = escape.packed();
  if (escape_live(next.frame.a, next.frame.b)) work.todo.push_back(next);
}

// Whether an escape that has begun can be ended so that the text can go on.
bool Machine::escape_live(ExprId expr, int32_t bits) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(bits)) << 32 | static_cast<uint32_t>(expr);
  if (const int32_t known = escapes_.find(key); known >= 0) return known == 1;
  ByteSet all;
  all.add(0, 0xFF);
  const ExprId rest = exprs_.repeat(exprs_.bytes(all), 0, Exprs::kMany);
  const ExprId next = exprs_.cat(utf8_expr(exprs_, reachable(Escape::of(bits))), rest);
  const bool found = exprs_.live(exprs_.both({expr, next}));
  if (!over()) escapes_.put(key, found ? 1 : 0);
  return found;
}

StateId Machine::forget(StateId id) {
  if (!states_[static_cast<size_t>(id)].captures) return id;
  if (states_[static_cast<size_t>(id)].forgotten >= 0) return states_[static_cast<size_t>(id)].forgotten;
  std::vector<Node> nodes;
  for (int32_t node : states_[static_cast<size_t>(id)].nodes) {
    nodes.push_back(nodes_[static_cast<size_t>(node)]);
    if (nodes.back().frame.kind == Frame::text && nodes.back().frame.c > 0) nodes.back().frame.c = Frame::kForgotten;
  }
  const StateId plain = make_state(std::move(nodes));
  states_[static_cast<size_t>(id)].forgotten = plain;
  return plain;
}

std::vector<Machine::Top> Machine::tops(StateId state) const {
  std::vector<Top> found;
  for (int32_t id : states_[static_cast<size_t>(state)].nodes) {
    found.push_back({nodes_[static_cast<size_t>(id)].frame, nodes_[static_cast<size_t>(id)].below});
  }
  return found;
}

StateId Machine::without_texts(StateId state) {
  std::vector<Node> nodes;
  for (int32_t id : states_[static_cast<size_t>(state)].nodes) {
    const Node& node = nodes_[static_cast<size_t>(id)];
    if (node.frame.kind != Frame::end && !is_broad(exprs_, node.frame)) nodes.push_back(node);
  }
  return make_state(std::move(nodes));
}

StateId Machine::after(StateId below, int32_t capture) {
  Closing work;
  Node ended{{Frame::text, text_end(exprs_), 0, capture}, below};
  end_text(ended, work);
  return close(work);
}

int64_t Machine::bytes() const {
  size_t total = nodes_.size() * (sizeof(Node) + 40) + states_.size() * (sizeof(State) + 64) + steps_.bytes() +
                 escapes_.bytes() + kinds_.bytes() + next_bytes_.size() * sizeof(ByteSet) + expanded_.size() * 200;
  return static_cast<int64_t>(total) + exprs_.bytes_used();
}

}  // namespace millrace::grammar

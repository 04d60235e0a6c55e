// Exprs: regular languages over bytes as hash-consed expressions, stepped by derivatives. An expression is an id; equal
// ids are equal expressions, so an id is a state of a lazily built DFA: derive() is its transition, nullable() says
// whether it accepts, live() whether anything can still be accepted. Intersection and complement are nodes like any
// other, and counted repetition is a counter inside a node, never unrolled.
//
// One arena per grammar; not safe for several threads at once. Work is counted: past the limit every operation gives
// the empty language and over() says so, which callers turn into an error. Nothing depends on time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/flat_map.h"

namespace millrace::grammar {

using ExprId = int32_t;

struct ByteSet {
  std::array<uint64_t, 4> words{};
  void add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  void add(uint8_t first, uint8_t last) {
    for (unsigned b = first; b <= last; ++b) add(static_cast<uint8_t>(b));
  }
  bool has(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63)) & 1; }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  void add(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] |= other.words[i];
  }
  void keep(const ByteSet& other) {
    for (size_t i = 0; i < 4; ++i) words[i] &= other.words[i];
  }
  static ByteSet all() { return {{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}}}; }
  bool operator==(const ByteSet&) const = default;
};

class Exprs {
 public:
  static constexpr ExprId kNothing = 0;  // the empty language
  static constexpr ExprId kEmpty = 1;    // the empty text
  static constexpr int kMany = -1;       // no upper bound of a repetition

  Exprs();

  // Only these bytes can be written: others are left out of every set made from now on.
  void can_write(const ByteSet& bytes) { writable_ = bytes; }
  ExprId bytes(const ByteSet& set);
  ExprId literal(std::string_view text);
  ExprId literals(std::vector<std::string> texts);  // one of them; shares prefixes
  ExprId cat(ExprId first, ExprId then);
  ExprId cat(std::initializer_list<ExprId> parts);
  ExprId alt(std::vector<ExprId> parts);
  ExprId both(std::vector<ExprId> parts);  // intersection
  ExprId negate(ExprId inner);             // every other string of bytes
  ExprId repeat(ExprId inner, int least, int most);
  ExprId maybe(ExprId inner) { return alt({kEmpty, inner}); }
  // Decimal numerals whose value times 10^places is a whole multiple of `step`; other bytes end it. Syntax is not
  // checked: intersect with numerals.
  ExprId multiple(uint64_t step, int places);

  ExprId derive(ExprId expr, uint8_t byte);
  bool nullable(ExprId expr) const { return nodes_[static_cast<size_t>(expr)].nullable; }
  bool live(ExprId expr);
  bool accepts(ExprId expr, std::string_view text);
  // Whether at least `count` different texts are in the language.
  bool has_at_least(ExprId expr, size_t count);
  // If the language is `char{least,most}` and a final byte 0xFF for the given char, the bounds.
  bool is_window(ExprId expr, ExprId character, int& least, int& most) const;
  // Whether the language is all texts (of at least so many characters) and kTextEnd, but for finitely many.
  bool is_nearly_all(ExprId expr, ExprId character) const;
  // The language of all texts. From now on what is in it anyway is not kept beside it, and of what repeats before it
  // the fewest times only.
  void know_all_texts(ExprId all) { all_texts_ = all; }
  // If the language is bounded in its characters from above, beside other things: without that bound, and the bounds.
  bool is_bounded(ExprId expr, ExprId character, ExprId& unbounded, int& least, int& most);
  // After whatever texts of the language of `texts`, which repeats, something can follow; looking at few places.
  bool always_goes_on(ExprId expr, ExprId texts);
  // From wherever one can come to from here, an end is at most so many bytes away; -1: that takes too long to tell.
  int farthest_end(ExprId expr);

  void limit(uint64_t work) { limit_ = work; }
  uint64_t work() const { return work_; }
  bool over() const { return over_; }
  void start_over(uint64_t work) { limit_ = work_ + work, over_ = false; }
  size_t size() const { return nodes_.size(); }
  int64_t bytes_used() const;
  // Bytes that a text of the language can begin with, and maybe others.
  ByteSet first_bytes(ExprId expr);
  // Whether something can follow every text of another language; looking at more than so many places, false.
  bool goes_on_after_all(ExprId expr, ExprId texts, size_t most) { return stops_at(expr, texts, most) == kNever; }
  // The fewest bytes of such a text after which nothing can follow; kUnknown: more places than so many.
  static constexpr int kNever = -1, kUnknown = 1 << 30;
  int stops_at(ExprId expr, ExprId texts, size_t most);
  // One byte of every class that the expression's next step tells apart, the end of a text first.
  const std::vector<uint8_t>& classes(ExprId expr);

 private:
  enum class Kind : uint8_t { nothing, empty, set, cat, alt, both, negate, repeat, multiple };
  struct Node {
    Kind kind = Kind::nothing;
    bool nullable = false;
    bool finite = true;           // of the language
    bool plain = true;            // no intersection or complement inside: alive unless it is kNothing
    int32_t a = 0, b = 0, c = 0;  // by kind: ids, bounds, index into sets_ or lists_
    uint64_t x = 0, y = 0;        // multiple: step, remainder
    std::vector<ExprId> list;     // alt, both: sorted
  };
  ExprId intern(Node node);
  uint64_t hash_of(const Node& node) const;
  bool same(const Node& a, const Node& b) const;
  ExprId derive_now(ExprId expr, uint8_t byte);
  ExprId derive_multiple(const Node& node, uint8_t byte);
  ExprId derive_list(ExprId expr, uint8_t byte);
  void flatten(Kind kind, ExprId part, std::vector<ExprId>& out) const;
  void merge_heads(std::vector<ExprId>& parts);
  void drop_contained(std::vector<ExprId>& parts) const;
  void first_sets(ExprId expr, std::vector<int32_t>& out);
  std::vector<uint8_t> split(const std::vector<int32_t>& sets) const;
  ExprId trie(std::span<const std::string> sorted, size_t depth);
  bool spend(uint64_t units = 1);

  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::unordered_multimap<uint64_t, ExprId> interned_;
  FlatMap derived_;
  std::map<std::vector<int32_t>, std::vector<uint8_t>> classes_;  // by the sets that tell bytes apart
  FlatMap first_index_;
  std::vector<ByteSet> first_bytes_;
  size_t list_bytes_ = 0;
  std::vector<int8_t> live_;   // -1 unknown, 0, 1
  std::vector<int32_t> mark_;  // last walk that came by, by expression
  int32_t walk_ = 0;
  ByteSet writable_ = ByteSet::all();
  ExprId all_texts_ = kNothing;
  FlatMap going_on_, ends_at_;  // what always_goes_on() and farthest_end() found out
  uint64_t work_ = 0, limit_ = uint64_t{1} << 26;
  bool over_ = false;
};

}  // namespace millrace::grammar

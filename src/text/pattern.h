// Pattern: what a tokenizer splits or replaces at (a regular expression, a literal string or a kind of character), and
// split(): the pieces of a text by a pattern, as Hugging Face's tokenizers define them. Immutable; any thread, each
// with its own RegexScratch. Texts are valid UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "text/regex.h"
#include "text/scanner.h"

namespace millrace {

// How many times as long the steps of one file may make a text. A hostile one could grow it without end by replacing
// little with much, step after step; real ones stay below 50.
inline constexpr double kMostGrowth = 64;

class Pattern {
 public:
  using CharTest = bool (*)(uint32_t code);

  static Result<Pattern> regex(std::string_view expression);
  static Pattern literal(std::string_view text);
  static Pattern characters(std::string_view name, CharTest test);  // each such character by itself
  static Pattern scanned(std::string_view name, Scanner scanner);
  // {"Regex": "..."} or {"String": "..."}
  static Result<Pattern> from_json(const Json& json);

  Span find(std::string_view text, size_t from, RegexScratch& scratch) const;
  const std::string& literal_text() const { return literal_; }  // empty if it is no literal
  // How many times as long a text can become if everything found is replaced by this.
  double growth(std::string_view content) const;
  // For recognising it: "regex:...", "string:..." or the name of a kind of characters.
  const std::string& source() const { return source_; }

 private:
  Span find_character(std::string_view text, size_t from) const;

  Scanner scanner_ = nullptr;
  CharTest test_ = nullptr;
  Regex regex_;
  bool is_regex_ = false;
  std::string literal_, source_;
};

// All matches and what lies between them, in order and without gaps: visit(begin, end, is_match). An empty match counts
// unless it directly follows the match before it.
template <class Visit>
void for_each_part(std::string_view text, const Pattern& pattern, RegexScratch& scratch, Visit&& visit) {
  if (text.empty()) return;  // an empty text has no matches, not even empty ones
  size_t done = 0, from = 0, last_end = std::string_view::npos;
  while (from <= text.size()) {
    Span match = pattern.find(text, from, scratch);
    if (!match) break;
    if (match.begin == match.end && match.end == last_end) {
      if (from >= text.size()) break;
      from += static_cast<size_t>(1);
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
      continue;
    }
    if (match.begin > done) visit(done, match.begin, false);
    visit(match.begin, match.end, true);
    done = from = last_end = match.end;
  }
  if (done < text.size()) visit(done, text.size(), false);
}

// What becomes of the matches: pieces of their own, nothing, or parts of their neighbours.
enum class Split : uint8_t { isolated, removed, contiguous, merged_with_previous, merged_with_next };

Result<Split> split_from_name(std::string_view name);  // "Isolated", "MergedWithNext" ...

// The pieces that are not empty, in order: piece(begin, end). `invert` swaps matches and the rest.
template <class Piece>
void split(std::string_view text, const Pattern& pattern, Split how, bool invert, RegexScratch& scratch,
           Piece&& piece) {
  if (how == Split::isolated || how == Split::removed) {
    for_each_part(text, pattern, scratch, [&](size_t begin, size_t end, bool match) {
      if (begin != end && (how == Split::isolated || match == invert)) piece(begin, end);
    });
    return;
  }
  // The others join neighbours: keep one piece open until it is clear that nothing joins it.
  bool open = false, last_match = false;
  size_t start = 0, stop = 0;
  for_each_part(text, pattern, scratch, [&](size_t begin, size_t end, bool found) {
    const bool match = found != invert;
    bool joins = false;
    if (how == Split::contiguous) joins = match == last_match;
    if (how == Split::merged_with_previous) joins = match && !last_match;
    if (how == Split::merged_with_next) joins = !match && last_match;
    if (open && joins) {
      stop = end;
    } else {
      if (open && start != stop) piece(start, stop);
      start = begin, stop = end, open = true;
    }
    last_match = match;
  });
  if (open && start != stop) piece(start, stop);
}

}  // namespace millrace

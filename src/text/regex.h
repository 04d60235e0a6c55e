// Regular expressions as tokenizer files write them (Oniguruma's syntax, which Hugging Face's tokenizers use), run by
// PCRE2: compiled to machine code where the system allows that, interpreted where not. Patterns are translated first,
// so that \s, \w, \p{...} and friends mean what they mean there, with the characters of Unicode 16. A Regex is
// immutable and may be used from any thread; each thread brings its own RegexScratch. No pattern can hang: a search
// that takes too many steps gives up, and after a few of those the scratch refuses to search until it is reset.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// Byte offsets into a text; begin == npos means no match.
struct Span {
  size_t begin = std::string_view::npos, end = 0;
  explicit operator bool() const { return begin != std::string_view::npos; }
};

class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;
  void reset() { failures_ = 0; }

 private:
  friend class Regex;
  struct Parts;
  std::unique_ptr<Parts> parts_;
  int failures_ = 0;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  // The leftmost match that starts at or after `from`. The text is valid UTF-8 and `from` is the start of a character.
  Span find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  std::shared_ptr<const void> code_;
};

// The pattern in PCRE2's syntax, for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace millrace

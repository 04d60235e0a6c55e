// Regular expressions as tokenizer files write them (Oniguruma's syntax, which Hugging Face's tokenizers use), run by
// PCRE2: compiled to machine code where the system allows that, interpreted where not. Patterns are translated first,
// so that \s, \w, \p{...} and friends mean what they mean there, with the characters of Unicode 16. A Regex is
// immutable and may be used from any thread; each thread brings its own RegexScratch. No pattern can hang: what the
// searches in one text may cost is bounded by its length; once that is spent the scratch finds nothing and says why,
// until it is reset.
#pragma once

#include <cstdint>
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

  static constexpr int64_t kSteps = 60'000'000;  // seconds, where each is dear
  // For a text of so many bytes: from here on searches may take these steps, and some more for every byte.
  void reset(size_t text_bytes, int64_t steps = kSteps);
  // An error if searches found nothing because they had become too costly.
  Result<void> status() const;

 private:
  friend class Regex;
  struct Parts;
  enum class Spent : uint8_t { nothing, steps, time, memory };

  std::unique_ptr<Parts> parts_;
  size_t text_bytes_ = 0;
  int64_t most_ = kSteps, left_ = kSteps;
  Spent spent_ = Spent::nothing;
};

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  // The leftmost match that starts at or after `from`. The text is valid UTF-8 and `from` is the start of a character.
  Span find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  int match(std::string_view text, size_t from, uint32_t steps, RegexScratch& scratch) const;
  int match_at(std::string_view text, size_t from, RegexScratch& scratch) const;

  std::shared_ptr<const void> code_;
};

// The pattern in PCRE2's syntax, for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace millrace

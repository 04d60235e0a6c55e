#include "text/scanner.h"

#include "base/check.h"
#include "text/unicode.h"

namespace millrace {
namespace {

using enum Category;
constexpr CharClass kAll = ~CharClass{0};
constexpr CharClass kOther = kAll & ~(kSpace | kLetter | kNumber);  // [^\s\p{L}\p{N}]
constexpr CharClass kUpper = class_of(Lu, Lt, Lm, Lo) | kMark;
constexpr CharClass kLower = class_of(Ll, Lm, Lo) | kMark;

// A place in a text, with the categories at hand.
class Reader {
 public:
  explicit Reader(std::string_view text)
      : text_(text.data()), size_(text.size()), table_(CategoryTable::get()), ascii_(table_.ascii()) {}

  size_t size() const { return size_; }
  bool done(size_t at) const { return at >= size_; }
  char byte(size_t at) const { return at < size_ ? text_[at] : '\0'; }

  // The class bit of the character at `at` and its length; nothing (0) at the end.
  CharClass at(size_t at, size_t* bytes) const {
    if (at >= size_) return *bytes = 0, 0;
    auto lead = static_cast<unsigned char>(text_[at]);
    if (lead < 0x80) return *bytes = 1, CharClass{1} << ascii_[lead];
    return class_of(table_.of(code_at(text_ + at, bytes)));
  }
  bool is(size_t at, CharClass chars) const {
    size_t bytes;
    return (this->at(at, &bytes) & chars) != 0;
  }
  size_t after(size_t at) const { return at + char_bytes(text_[at]); }
  // The end of the run of such characters that begins at `at`, of at most `most` characters.
  size_t run(size_t at, CharClass chars, size_t most = SIZE_MAX) const {
    size_t bytes;
    while (most-- > 0 && (this->at(at, &bytes) & chars) != 0) at += bytes;
    return at;
  }
  // The end of the run of these ASCII characters.
  size_t run_of(size_t at, std::string_view bytes) const {
    while (at < size_ && bytes.find(text_[at]) != bytes.npos) ++at;
    return at;
  }

 private:
  const char* text_;
  size_t size_;
  const CategoryTable& table_;
  const uint8_t* ascii_;
};

char lower(char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); }

// 's 't 're 've 'm 'll 'd, at an apostrophe: the end, or `at` if none stands there. Without case, the long s counts as
// s.
size_t contraction(const Reader& text, size_t at, bool any_case) {
  if (text.byte(at) != '\'') return at;
  char first = text.byte(at + 1), second = text.byte(at + 2);
  if (any_case) {
    if (first == '\xC5' && second == '\xBF') return at + 3;
    first = lower(first), second = lower(second);
  }
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  return at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at a white space: through the last line end of the run if there is one, else all of it at
// the end of the text, else all but its last character (which then belongs to the word that follows), but never
// nothing.
size_t white_space(const Reader& text, size_t at, bool line_ends) {
  size_t end = at, last = at, lines = 0, bytes;
  while ((text.at(end, &bytes) & kSpace) != 0) {
    if (text.byte(end) == '\n' || text.byte(end) == '\r') lines = end + 1;
    last = end;
    end += bytes;
  }
  if (line_ends && lines > 0) return lines;
  if (text.done(end) || last == at) return end;
  return last;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
Span scan_gpt2(std::string_view input, size_t from) {
  const Reader text(input);
  if (text.done(from)) return {};
  if (size_t end = contraction(text, from, false); end != from) return {from, end};
  size_t bytes, start = text.byte(from) == ' ' ? from + 1 : from;
  CharClass kind = text.at(start, &bytes);
  if ((kind & kLetter) != 0) return {from, text.run(start + bytes, kLetter)};
  if ((kind & kNumber) != 0) return {from, text.run(start + bytes, kNumber)};
  if ((kind & kOther) != 0) return {from, text.run(start + bytes, kOther)};
  return {from, white_space(text, from, false)};
}

// What stands after the words in the family of cl100k, at a character that begins no word.
template <size_t kDigits, CharClass kSigns, bool kSlash>
Span scan_rest(const Reader& text, size_t from) {
  size_t bytes;
  CharClass kind = text.at(from, &bytes);
  if ((kind & kNumber) != 0) return {from, text.run(from, kNumber, kDigits)};
  size_t start = text.byte(from) == ' ' ? from + 1 : from;
  if (text.is(start, kSigns)) {
    return {from, text.run_of(text.run(start, kSigns), kSlash ? "\r\n/" : "\r\n")};
  }
  return {from, white_space(text, from, true)};
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// and its relatives: other counts of digits, marks as parts of words.
template <size_t kDigits, CharClass kWord>
Span scan_cl100k(std::string_view input, size_t from) {
  const Reader text(input);
  if (text.done(from)) return {};
  if (size_t end = contraction(text, from, true); end != from) return {from, end};
  size_t bytes;
  CharClass kind = text.at(from, &bytes);
  const char byte = text.byte(from);
  if ((kind & (kLetter | kNumber)) == 0 && byte != '\r' && byte != '\n' && text.is(from + bytes, kWord)) {
    return {from, text.run(from + bytes, kWord)};
  }
  if ((kind & kWord) != 0) return {from, text.run(from + bytes, kWord)};
  return scan_rest<kDigits, kOther & ~kWord, false>(text, from);
}

// U*L+ or else U+L* at `at`, where U are the upper-case letters and L the lower-case ones and some are both: the end,
// or `at` if neither matches.
size_t cased_word(const Reader& text, size_t at, bool lower_needed) {
  size_t end = at, bytes, both = at;  // `both`: the end of the last character of the run that could be lower case too
  for (CharClass kind; ((kind = text.at(end, &bytes)) & kUpper) != 0;) {
    end += bytes;
    if ((kind & kLower) != 0) both = end;
  }
  if (!lower_needed) return end;
  size_t lower_end = text.run(end, kLower);
  return lower_end != end ? lower_end : both;
}

// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|...)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|...
template <size_t kDigits, bool kContractions>
Span scan_o200k(std::string_view input, size_t from) {
  const Reader text(input);
  if (text.done(from)) return {};
  size_t bytes;
  CharClass kind = text.at(from, &bytes);
  const char byte = text.byte(from);
  const bool sign = (kind & (kLetter | kNumber)) == 0 && byte != '\r' && byte != '\n';
  for (bool lower_needed : {true, false}) {
    for (bool with_sign : {true, false}) {
      if (with_sign && !sign) continue;
      size_t start = with_sign ? from + bytes : from;
      size_t end = cased_word(text, start, lower_needed);
      if (end != start) return {from, kContractions ? contraction(text, end, true) : end};
    }
  }
  return scan_rest<kDigits, kOther, true>(text, from);
}

// [!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ of DeepSeek V3
Span scan_deepseek3(std::string_view input, size_t from) {
  const Reader text(input);
  constexpr CharClass kSigns = kPunctuation | kSymbol, kWord = kLetter | kMark;
  auto is_latin = [](char c) { return lower(c) >= 'a' && lower(c) <= 'z'; };
  size_t bytes;
  for (size_t at = from; !text.done(at); at += bytes) {
    CharClass kind = text.at(at, &bytes);
    const char byte = text.byte(at);
    if (bytes == 1 && (kind & kSigns) != 0 && is_latin(text.byte(at + 1))) {
      size_t end = at + 1;
      while (is_latin(text.byte(end))) ++end;
      return {at, end};
    }
    if ((kind & (kLetter | kSigns)) == 0 && byte != '\r' && byte != '\n' && text.is(at + bytes, kWord)) {
      return {at, text.run(at + bytes, kWord)};
    }
    if ((kind & kWord) != 0) return {at, text.run(at, kWord)};
    size_t start = byte == ' ' ? at + 1 : at;
    if (text.is(start, kSigns)) return {at, text.run_of(text.run(start, kSigns), "\r\n")};
    if ((kind & kSpace) != 0) return {at, white_space(text, at, true)};
  }
  return {};
}

template <size_t kDigits>
Span scan_numbers(std::string_view input, size_t from) {
  const Reader text(input);
  size_t bytes;
  for (size_t at = from; !text.done(at); at += bytes) {
    if ((text.at(at, &bytes) & kNumber) != 0) return {at, text.run(at, kNumber, kDigits)};
  }
  return {};
}

bool is_cjk(uint32_t code) { return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF); }

Span scan_cjk(std::string_view text, size_t from) {
  size_t bytes = 0;
  auto cjk_at = [&](size_t at) {
    if (static_cast<unsigned char>(text[at]) < 0xE3) return bytes = char_bytes(text[at]), false;
    return is_cjk(code_at(text.data() + at, &bytes));
  };
  for (size_t at = from; at < text.size(); at += bytes) {
    if (!cjk_at(at)) continue;
    size_t end = at + bytes;
    while (end < text.size() && cjk_at(end)) end += bytes;
    return {at, end};
  }
  return {};
}

// \s+$ : white space in front of a line end or the end of the text. A run that reaches the end of a line only before
// its last line end matches up to there; tried naively from every place of a long run this takes quadratic time.
Span scan_trailing_space(std::string_view input, size_t from) {
  const Reader text(input);
  size_t bytes;
  for (size_t at = from; !text.done(at); at += bytes) {
    if ((text.at(at, &bytes) & kSpace) == 0) continue;
    size_t end = at, line = at, step;
    while ((text.at(end, &step) & kSpace) != 0) {
      if (text.byte(end) == '\n') line = end;
      end += step;
    }
    if (text.done(end)) return {at, end};
    if (line != at) return {at, line};
    bytes = end - at;
  }
  return {};
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CASED R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define CASED_UPPER R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define SIGNS R"( ?[^\s\p{L}\p{N}]+)"

constexpr KnownPattern kKnown[] = {
    {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", scan_gpt2},
    {"cl100k", CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" SIGNS R"([\r\n]*|)" SPACES,
     scan_cl100k<3, kLetter>},
    {"qwen2", CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" SIGNS R"([\r\n]*|)" SPACES, scan_cl100k<1, kLetter>},
    {"cl100k-number", CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|)" SIGNS R"([\r\n]*|)" SPACES,
     scan_cl100k<SIZE_MAX, kLetter>},
    {"qwen3.5", CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES,
     scan_cl100k<1, kLetter | kMark>},
    {"o200k", CASED CONTRACTIONS "?|" CASED_UPPER CONTRACTIONS R"(?|\p{N}{1,3}|)" SIGNS R"([\r\n/]*|)" SPACES,
     scan_o200k<3, true>},
    {"tekken", CASED "|" CASED_UPPER R"(|\p{N}|)" SIGNS R"([\r\n/]*|)" SPACES, scan_o200k<1, false>},
    {"deepseek-3",
     R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
     "\r\n"
     R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
     "\r\n"
     R"(]*|\s*[)"
     "\r\n"
     R"(]+|\s+(?!\S)|\s+)",
     scan_deepseek3},
    {"number-1-3", R"(\p{N}{1,3})", scan_numbers<3>},
    {"number", R"(\p{N})", scan_numbers<1>},
    {"numbers", R"(\p{N}+)", scan_numbers<SIZE_MAX>},
    {"cjk", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", scan_cjk},
    {"trailing-space", R"(\s+$)", scan_trailing_space},
};

}  // namespace

Scanner find_scanner(std::string_view pattern) {
  for (const KnownPattern& known : kKnown) {
    if (known.pattern == pattern) return known.scanner;
  }
  return nullptr;
}

const KnownPattern* known_patterns(size_t* count) {
  *count = std::size(kKnown);
  return kKnown;
}

std::string_view known_pattern(std::string_view name) {
  for (const KnownPattern& known : kKnown) {
    if (known.name == name) return known.pattern;
  }
  CHECK(false, "no pattern named {}", name);
}

}  // namespace millrace

// Characters: UTF-8 in and out, the general categories of Unicode 16.0 (what the regular expressions of Hugging Face's
// tokenizers go by, whatever version the system's libraries have), and the normal forms as those tokenizers compute
// them. Functions without state and tables that never change; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// General categories, numbered as in unicode_categories.cpp. `space_control` are the controls that are white space.
enum class Category : uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  space_control
};

// A set of categories, one bit each.
using CharClass = uint32_t;
constexpr CharClass class_of(Category category) { return CharClass{1} << static_cast<int>(category); }
template <class... Rest>
constexpr CharClass class_of(Category first, Rest... rest) {
  return class_of(first) | class_of(rest...);
}
constexpr CharClass kLetter = class_of(Category::Lu, Category::Ll, Category::Lt, Category::Lm, Category::Lo);
constexpr CharClass kMark = class_of(Category::Mn, Category::Mc, Category::Me);
constexpr CharClass kNumber = class_of(Category::Nd, Category::Nl, Category::No);
constexpr CharClass kPunctuation =
    class_of(Category::Pc, Category::Pd, Category::Ps, Category::Pe, Category::Pi, Category::Pf, Category::Po);
constexpr CharClass kSymbol = class_of(Category::Sm, Category::Sc, Category::Sk, Category::So);
constexpr CharClass kSpace = class_of(Category::Zs, Category::Zl, Category::Zp, Category::space_control);

extern const uint32_t kCategoryRanges[];
extern const size_t kCategoryRangeCount;

// The categories of all code points, in pages of 256.
class CategoryTable {
 public:
  static const CategoryTable& get();
  Category of(uint32_t code) const { return static_cast<Category>(pages_[(index_[code >> 8] << 8) | (code & 255)]); }
  bool in(uint32_t code, CharClass chars) const { return (chars >> static_cast<int>(of(code))) & 1; }
  const uint8_t* ascii() const { return pages_.data(); }  // the first page

 private:
  CategoryTable();
  std::basic_string<uint8_t> pages_;
  uint16_t index_[0x1100];
};

// \w of the regex crate and of Oniguruma (which leaves out the two joiners).
bool is_word(uint32_t code, bool joiners);
// What the Punctuation and Bert pre-tokenizers split at: ASCII punctuation, and category P as it was in Unicode 8.
bool is_split_punctuation(uint32_t code);

// --- UTF-8. "Valid" means no surrogates, no overlong forms, nothing above U+10FFFF.

// The code point at `text`, which must be valid and not at its end; *bytes is its length.
inline uint32_t code_at(const char* text, size_t* bytes) {
  const auto* byte = reinterpret_cast<const unsigned char*>(text);
  uint32_t lead = byte[0];
  if (lead < 0x80) return *bytes = 1, lead;
  if (lead < 0xE0) return *bytes = 2, (lead & 0x1F) << 6 | (byte[1] & 0x3Fu);
  if (lead < 0xF0) return *bytes = 3, (lead & 0x0F) << 12 | (byte[1] & 0x3Fu) << 6 | (byte[2] & 0x3Fu);
  *bytes = 4;
  return (lead & 0x07) << 18 | (byte[1] & 0x3Fu) << 12 | (byte[2] & 0x3Fu) << 6 | (byte[3] & 0x3Fu);
}
// Bytes of the character that starts with this byte, in valid text.
inline size_t char_bytes(char lead) {
  auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
inline bool is_char_start(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

void append_utf8(std::string& out, uint32_t code);
bool is_valid_utf8(std::string_view text);
// Appends the text with U+FFFD for every maximal part that is not UTF-8, as Rust and Python do. With `more` set, an
// unfinished character at the end is left alone. Returns how many bytes were used.
size_t append_valid_utf8(std::string& out, std::string_view text, bool more = false);

// --- Normal forms and case, as Hugging Face's tokenizers have them: decompositions, combining classes and marks are
// those of Unicode 9 (newer characters stay as they are), lower case is that of Unicode 17 without context. The text is
// valid.
enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalize(std::string_view text, NormalForm form, size_t most = SIZE_MAX);
std::string lowercase(std::string_view text);
bool is_combining_mark(uint32_t code);
// How many bytes the extended grapheme cluster at the start of the text has. The text is valid and not empty.
size_t grapheme_bytes(std::string_view text);

}  // namespace millrace

#include "text/unicode.h"

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

enum class Utf8State { good, unfinished, bad };

// Looks at the character at the start of the bytes. *bytes is its length or, where it is not valid, that of the longest
// part that could have begun a character (at least 1).
Utf8State check_char(const unsigned char* byte, size_t left, size_t* bytes) {
  const unsigned lead = byte[0];
  *bytes = 1;
  if (lead < 0x80) return Utf8State::good;
  if (lead < 0xC2 || lead > 0xF4) return Utf8State::bad;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i, low = 0x80, high = 0xBF) {
    if (i >= left) return Utf8State::unfinished;
    if (byte[i] < low || byte[i] > high) return Utf8State::bad;
    *bytes = i + 1;
  }
  return Utf8State::good;
}

// How many of the first bytes are ASCII, counted in eights.
size_t ascii_prefix(const char* text, size_t size) {
  size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    uint64_t word;
    std::memcpy(&word, text + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return at;
}

// Bytes from the start that are valid UTF-8.
size_t valid_prefix(std::string_view text) {
  size_t at = 0, bytes = 0;
  while (at < text.size()) {
    at += ascii_prefix(text.data() + at, text.size() - at);
    if (at >= text.size()) break;
    const auto* byte = reinterpret_cast<const unsigned char*>(text.data()) + at;
    if (check_char(byte, text.size() - at, &bytes) != Utf8State::good) return at;
    at += bytes;
  }
  return at;
}

struct Range {
  uint32_t first, last;
};

// Punctuation (category P) that came after Unicode 8, which the crate behind those pre-tokenizers knows.
constexpr Range kNewerPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E},
    {0x10EAD, 0x10EAD}, {0x10ED0, 0x10ED0}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x113D4, 0x113D5},
    {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2},
    {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};

}  // namespace

CategoryTable::CategoryTable() {
  constexpr uint8_t kAlternating = 31;
  std::basic_string<uint8_t> page(256, 0);
  size_t range = 0;
  for (uint32_t start = 0; start < 0x110000; start += 256) {
    for (uint32_t code = start; code < start + 256; ++code) {
      while (range + 1 < kCategoryRangeCount && kCategoryRanges[range + 1] >> 5 <= code) ++range;
      auto category = static_cast<uint8_t>(kCategoryRanges[range] & 31);
      if (category == kAlternating) {
        bool upper = (code - (kCategoryRanges[range] >> 5)) % 2 == 0;
        category = static_cast<uint8_t>(upper ? Category::Lu : Category::Ll);
      }
      page[code - start] = category;
    }
    // Most of the code space repeats one of the last pages, so a short look back keeps the table small.
    size_t pages = pages_.size() / 256, found = pages;
    for (size_t back = 1; back <= std::min<size_t>(pages, 8); ++back) {
      if (pages_.compare((pages - back) * 256, 256, page) == 0) found = pages - back;
    }
    if (found == pages) pages_ += page;
    index_[start >> 8] = static_cast<uint16_t>(found);
  }
}

const CategoryTable& CategoryTable::get() {
  static const CategoryTable table;
  return table;
}

bool is_word(uint32_t code, bool joiners) {
  constexpr CharClass kWord = kLetter | kMark | class_of(Category::Nd, Category::Nl, Category::Pc);
  if (CategoryTable::get().in(code, kWord)) return true;
  if (code == 0x200C || code == 0x200D) return joiners;
  // Symbols that count as alphabetic: letters in circles and squares.
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

bool is_split_punctuation(uint32_t code) {
  if (code < 128)
    return (code > 32 && code < 48) || (code > 57 && code < 65) || (code > 90 && code < 97) ||
           (code > 122 && code < 127);
  if (code == 0x166D || code == 0x111C9) return true;  // were P in Unicode 8, are something else now
  if (!CategoryTable::get().in(code, kPunctuation)) return false;
  return std::none_of(std::begin(kNewerPunctuation), std::end(kNewerPunctuation),
                      [code](const Range& range) { return code >= range.first && code <= range.last; });
}

void append_utf8(std::string& out, uint32_t code) {
  auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F)), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

size_t append_valid_utf8(std::string& out, std::string_view text, bool more) {
  size_t at = 0, bytes = 0;
  while (at < text.size()) {
    size_t good = valid_prefix(text.substr(at));
    out.append(text, at, good);
    at += good;
    if (at == text.size()) break;
    const auto* byte = reinterpret_cast<const unsigned char*>(text.data()) + at;
    Utf8State state = check_char(byte, text.size() - at, &bytes);
    if (state == Utf8State::unfinished && more) break;
    out += "\xEF\xBF\xBD";
    at += bytes;
  }
  return at;
}

}  // namespace millrace

#include "text/template/code_points.h"

#include <string.h>  // memmem, which std:: does not name
#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <vector>

namespace millrace::jinja {
namespace {

struct Range {
  char32_t first, last;
};

bool within(std::span<const Range> ranges, char32_t c) {
  auto above = std::upper_bound(ranges.begin(), ranges.end(), c, [](char32_t key, Range r) { return key < r.first; });
  return above != ranges.begin() && c <= std::prev(above)->last;
}

// Digits that are no decimals (superscripts, circled digits and the like).
constexpr Range kOtherDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                  {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                  {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                  {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                  {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Ideographs that stand for numbers: numeric, though their category is letter.
constexpr char32_t kNumberIdeographs[] = {
    0x3405,  0x3483,  0x382A,  0x3B4D,  0x4E00,  0x4E03,  0x4E07,  0x4E09,  0x4E5D,  0x4E8C,  0x4E94,  0x4E96,
    0x4EBF,  0x4EC0,  0x4EDF,  0x4EE8,  0x4F0D,  0x4F70,  0x5104,  0x5146,  0x5169,  0x516B,  0x516D,  0x5341,
    0x5343,  0x5344,  0x5345,  0x534C,  0x53C1,  0x53C2,  0x53C3,  0x53C4,  0x56DB,  0x58F1,  0x58F9,  0x5E7A,
    0x5EFE,  0x5EFF,  0x5F0C,  0x5F0D,  0x5F0E,  0x5F10,  0x62FE,  0x634C,  0x67D2,  0x6F06,  0x7396,  0x767E,
    0x8086,  0x842C,  0x8CAE,  0x8CB3,  0x8D30,  0x9621,  0x9646,  0x964C,  0x9678,  0x96F6,  0xF96B,  0xF973,
    0xF978,  0xF9B2,  0xF9D1,  0xF9D3,  0xF9FD,  0x20001, 0x20064, 0x200E2, 0x20121, 0x2092A, 0x20983, 0x2098C,
    0x2099C, 0x20AEA, 0x20AFD, 0x20B19, 0x22390, 0x22998, 0x23B1B, 0x2626D, 0x2F890};

// Unicode's Other_Lowercase and Other_Uppercase.
constexpr Range kOtherLower[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
constexpr Range kOtherUpper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

bool valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t c = 0;
    auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                                 static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    if (used <= 0) return false;
    i += static_cast<size_t>(used);
  }
  return true;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (char byte : text) count += is_continuation(byte) ? 0 : 1;
  return count;
}

size_t byte_offset(std::string_view text, size_t code_points) {
  size_t i = 0;
  while (code_points > 0 && i < text.size()) {
    ++i;
    while (i < text.size() && is_continuation(text[i])) ++i;
    --code_points;
  }
  return i;
}

char32_t next_code_point(std::string_view text, size_t& offset) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i])); };
  char32_t first = byte(0);
  size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  length = std::min(length, text.size() - offset);
  char32_t c = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3F);
  offset += length;
  return c;
}

char32_t previous_code_point(std::string_view text, size_t& offset) {
  do --offset;
  while (offset > 0 && is_continuation(text[offset]));
  size_t at = offset;
  return next_code_point(text, at);
}

void append_code_point(std::string& out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || within(kOtherDigits, c); }

bool is_numeric(char32_t c) {
  auto kind = category(c);
  return (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO) ||
         std::binary_search(std::begin(kNumberIdeographs), std::end(kNumberIdeographs), c);
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || within(kOtherLower, c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || within(kOtherUpper, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

bool is_identifier_start(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  if (c < 0x80) return is_identifier_start(c) || (c >= '0' && c <= '9');
  auto kind = category(c);
  return is_identifier_start(c) || kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC ||
         kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_PC;
}

namespace {

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const LongMapping* mapping = find_long_mapping(c)) {
    for (char32_t part : mapping->upper) {
      if (part != 0) append_code_point(out, part);
    }
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) return append_upper(out, c);
  if (const LongMapping* mapping = find_long_mapping(c)) {
    for (char32_t part : mapping->title) {
      if (part != 0) append_code_point(out, part);
    }
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

// Marks, modifiers and some punctuation do not count when Unicode asks what stands beside a sigma.
bool is_case_ignorable(char32_t c) {
  if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
  auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == 0xB7 || c == 0x2019;
}

// A capital sigma becomes a final one at the end of a word. `at` is its first byte, `after` the byte behind it.
bool is_final_sigma(std::string_view text, size_t at, size_t after) {
  bool letter_before = false;
  while (at > 0) {
    char32_t c = previous_code_point(text, at);
    if (is_case_ignorable(c)) continue;
    letter_before = is_cased(c);
    break;
  }
  if (!letter_before) return false;
  while (after < text.size()) {
    char32_t c = next_code_point(text, after);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, char32_t c, std::string_view text, size_t at, size_t after) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    append_code_point(out, is_final_sigma(text, at, after) ? 0x3C2 : 0x3C3);
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_ascii(std::string_view text) {
  unsigned char all = 0;
  for (char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

// Applies a mapping to every code point: f(out, code point, first byte, byte behind).
template <class F>
std::string map_code_points(std::string_view text, F f) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t at = i;
    char32_t c = next_code_point(text, i);
    f(out, c, at, i);
  }
  return out;
}

}  // namespace

bool is_lower_text(std::string_view text) {
  bool cased = false;
  for (size_t i = 0; i < text.size();) {
    char32_t c = next_code_point(text, i);
    if (is_upper(c) || is_title(c)) return false;
    cased = cased || is_lower(c);
  }
  return cased;
}

bool is_upper_text(std::string_view text) {
  bool cased = false;
  for (size_t i = 0; i < text.size();) {
    char32_t c = next_code_point(text, i);
    if (is_lower(c) || is_title(c)) return false;
    cased = cased || is_upper(c);
  }
  return cased;
}

std::string upper(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return out;
  }
  return map_code_points(text, [](std::string& out, char32_t c, size_t, size_t) { append_upper(out, c); });
}

std::string lower(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  return map_code_points(
      text, [&](std::string& out, char32_t c, size_t at, size_t after) { append_lower(out, c, text, at, after); });
}

std::string title(std::string_view text) {
  bool in_word = false;
  return map_code_points(text, [&](std::string& out, char32_t c, size_t at, size_t after) {
    if (in_word) {
      append_lower(out, c, text, at, after);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  });
}

std::string capitalize(std::string_view text) {
  return map_code_points(text, [&](std::string& out, char32_t c, size_t at, size_t after) {
    if (at == 0) {
      append_title(out, c);
    } else {
      append_lower(out, c, text, at, after);
    }
  });
}

std::string swap_case(std::string_view text) {
  return map_code_points(text, [&](std::string& out, char32_t c, size_t at, size_t after) {
    if (is_upper(c)) {
      append_lower(out, c, text, at, after);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_code_point(out, c);
    }
  });
}

std::string case_fold(std::string_view text) {
  return map_code_points(text, [](std::string& out, char32_t c, size_t, size_t) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i) append_code_point(out, static_cast<char32_t>(folded[i]));
  });
}

std::string_view strip_left(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    size_t next = i;
    if (!is_space(next_code_point(text, next))) break;
    i = next;
  }
  return text.substr(i);
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t before = end;
    if (!is_space(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(0, end);
}

std::optional<size_t> find_first(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::nullopt;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::nullopt;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// Knuth, Morris and Pratt's search, from the end towards the start.
std::optional<size_t> find_last(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  if (needle.size() > text.size()) return std::nullopt;
  const size_t n = needle.size();
  auto at = [&](size_t i) { return needle[n - 1 - i]; };
  std::vector<uint32_t> border(n, 0);
  for (size_t i = 1, k = 0; i < n; ++i) {
    while (k > 0 && at(i) != at(k)) k = border[k - 1];
    if (at(i) == at(k)) ++k;
    border[i] = static_cast<uint32_t>(k);
  }
  for (size_t i = text.size(), k = 0; i-- > 0;) {
    while (k > 0 && text[i] != at(k)) k = border[k - 1];
    if (text[i] == at(k)) ++k;
    if (k == n) return i;
  }
  return std::nullopt;
}

}  // namespace millrace::jinja

#include "grammar/char_kinds.h"

#include "grammar/code_points.h"

namespace millrace::grammar {

namespace {

constexpr int kMostCharacters = 32;

struct Range {
  uint32_t first, last;
};
// Controls, spaces and marks that have no width, past ASCII: what classes of expressions tell from other characters.
constexpr Range kNotWide[] = {{0x80, 0xA0},     {0xAD, 0xAD},     {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200F},
                              {0x2028, 0x202F}, {0x205F, 0x206F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFF}};

uint8_t kind_of(uint32_t code) {
  if (code >= 'a' && code <= 'z') return kLower;
  if (code >= '0' && code <= '9') return kDigit;
  if (code >= 'A' && code <= 'Z') return kUpper;
  if (code == ' ') return kBlank;
  if (code < 0x20 || code == '"' || code == '\\' || code == 0x7F) return kOdd;
  if (code < 0x80) return kMark;
  for (const Range& range : kNotWide) {
    if (code >= range.first && code <= range.last) return kOdd;
  }
  return kWide;
}

// The character at a place, whole and well formed; its bytes, or 0.
size_t decode(std::string_view text, size_t at, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return code = first, 1;
  const size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  code = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : length;
}

}  // namespace

void suffix_kinds(std::string_view text, std::vector<uint8_t>& out) {
  out.assign(text.size() + 1, kOdd);
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t length = decode(text, at, code);
    if (length == 0) {
      starts.clear();  // nothing before it is whole to the end; what comes after may be
      ++at;
      continue;
    }
    starts.push_back(at);
    at += length;
  }
  out[text.size()] = 0;
  uint8_t so_far = 0;
  int characters = 0;
  for (size_t i = starts.size(); i-- > 0 && characters < kMostCharacters; ++characters) {
    uint32_t code = 0;
    decode(text, starts[i], code);
    so_far |= kind_of(code);
    out[starts[i]] = so_far;
  }
}

ExprId kinds_expr(Exprs& exprs, uint8_t kinds) {
  CodePoints points;
  if ((kinds & kLower) != 0) points.add('a', 'z');
  if ((kinds & kDigit) != 0) points.add('0', '9');
  if ((kinds & kUpper) != 0) points.add('A', 'Z');
  for (uint32_t code = 0x20; code < 0x7F; ++code) {
    if ((kind_of(code) & (kMark | kBlank) & kinds) != 0) points.add(code, code);
  }
  uint32_t from = 0x80;
  for (const Range& range : kNotWide) {
    if ((kinds & kWide) != 0 && from < range.first) points.add(from, range.first - 1);
    from = range.last + 1;
  }
  if ((kinds & kWide) != 0) points.add(from, 0x10FFFF);
  return utf8_expr(exprs, points);
}

}  // namespace millrace::grammar

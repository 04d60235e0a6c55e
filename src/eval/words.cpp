#include "eval/words.h"

#include <algorithm>

namespace millrace {
namespace {

// The code point at `at` and how many bytes it takes; a broken byte stands for itself in a range of its own.
struct Decoded {
  char32_t point;
  size_t bytes;
};

Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  const Decoded broken = {static_cast<char32_t>(0xDC00 + lead), 1};
  if (length == 0 || at + length > text.size()) return broken;
  char32_t point = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return broken;
    point = point << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
  if (overlong || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return broken;
  return {point, length};
}

void append(char32_t point, std::string& out) {
  auto put = [&](char32_t value) { out += static_cast<char>(value); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F)), put(0x80 | (point >> 6 & 0x3F)),
        put(0x80 | (point & 0x3F));
  }
}

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0xC0 && c <= 0xDE) return c == 0xD7 ? c : c + 32;
  if (c == 0x178) return 0xFF;
  if ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E)) return c % 2 == 1 ? c + 1 : c;
  if (c >= 0x100 && c <= 0x177 && c != 0x130 && c != 0x138 && c != 0x149) return c | 1;
  if (c >= 0x391 && c <= 0x3AB && c != 0x3A2) return c + 32;
  if (c >= 0x410 && c <= 0x42F) return c + 32;
  if (c >= 0x400 && c <= 0x40F) return c + 80;
  if (c >= 0x460 && c <= 0x481) return c | 1;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  if (c >= 0x1E00 && c <= 0x1EFF && !(c >= 0x1E96 && c <= 0x1E9F)) return c | 1;
  if (c == 0x212A) return 'k';  // the Kelvin sign
  return c;
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    points += next.point;
    at += next.bytes;
  }
  return points;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  size_t start = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    const bool space = is_space(next.point);
    if (space && inside) words.emplace_back(text.substr(start, at - start));
    if (!space && !inside) start = at;
    inside = !space;
    at += next.bytes;
  }
  if (inside) words.emplace_back(text.substr(start));
  return words;
}

std::string_view without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    at += next.bytes;
    if (!is_space(next.point)) end = at;
  }
  return text.substr(0, end);
}

std::string lower_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Decoded next = decode(text, at);
    if (next.point == 0x130) {
      out += "i\xCC\x87";  // the one letter that becomes two
    } else if (next.point >= 0xDC00 && next.point < 0xDD00) {
      out += text[at];
    } else {
      append(lower(next.point), out);
    }
    at += next.bytes;
  }
  return out;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
    at = end + 1;
  }
  return lines;
}

}  // namespace millrace

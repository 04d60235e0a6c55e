#include "server/quoted.h"

#include <fmt/format.h>

#include <iterator>

namespace millrace {
namespace {

// Length of the valid UTF-8 character at the front of the text, 0 if there is none.
size_t character(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (first == 0xE0 && byte(1) < 0xA0) return 0;  // longer than need be
  if (first == 0xED && byte(1) > 0x9F) return 0;  // half of a surrogate pair
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;  // beyond the last character
  return length;
}

// Bytes at the front of the text that stand for themselves in a JSON string and need no look at their neighbours.
size_t plain_bytes(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && text[count] >= 0x20 && text[count] < 0x7F && text[count] != '"' && text[count] != '\\')
    ++count;
  return count;
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    if (const size_t plain = plain_bytes(text); plain > 0) {
      out += text.substr(0, plain);
      text.remove_prefix(plain);
      continue;
    }
    const auto first = static_cast<unsigned char>(text[0]);
    if (first == '"' || first == '\\') {
      out += '\\';
      out += text[0];
    } else if (first == '\n') {
      out += "\\n";
    } else if (first < 0x20 || first == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", first);
    } else if (const size_t length = character(text); length > 0) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(1);
  }
  out += '"';
}

std::string quoted_text(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace millrace

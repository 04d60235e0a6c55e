#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace millrace {
namespace {

constexpr bool prints(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<uint16_t, 256> chars{};
  std::array<int16_t, 512> bytes{};

  constexpr Alphabet() {
    for (auto& byte : bytes) byte = -1;
    unsigned next = 256;  // bytes that do not print get the characters from U+0100 on
    for (unsigned byte = 0; byte < 256; ++byte) {
      chars[byte] = static_cast<uint16_t>(prints(byte) ? byte : next++);
      bytes[chars[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

uint32_t byte_level_char(uint8_t byte) { return kAlphabet.chars[byte]; }

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char byte : bytes) append_utf8(out, byte_level_char(static_cast<uint8_t>(byte)));
  return out;
}

bool append_from_byte_level(std::string& out, std::string_view text) {
  const size_t before = out.size();
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += bytes) {
    uint32_t code = code_at(text.data() + at, &bytes);
    int byte = code < kAlphabet.bytes.size() ? kAlphabet.bytes[code] : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(byte));
  }
  return true;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string out;
  if (!append_from_byte_level(out, text)) return std::nullopt;
  return out;
}

}  // namespace millrace

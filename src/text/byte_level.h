// GPT-2's alphabet: every byte as a printable character, so that a vocabulary of byte strings can be written as text.
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// The character that stands for a byte.
uint32_t byte_level_char(uint8_t byte);
// Every byte as its character. The text may be any bytes.
std::string to_byte_level(std::string_view bytes);
// The bytes behind such characters; nothing if one of them is not of the alphabet. The text is valid UTF-8.
std::optional<std::string> from_byte_level(std::string_view text);
// The same, appended; false (and `out` unchanged) if a character is not of the alphabet.
bool append_from_byte_level(std::string& out, std::string_view text);

}  // namespace millrace

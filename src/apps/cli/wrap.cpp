#include "apps/cli/wrap.h"

#include <algorithm>
#include <cwchar>

namespace millrace::apps {
namespace {

size_t bytes_of(unsigned char first) {
  return first < 0x80 ? 1 : (first & 0xE0) == 0xC0 ? 2 : (first & 0xF0) == 0xE0 ? 3 : (first & 0xF8) == 0xF0 ? 4 : 1;
}

uint32_t code_point(std::string_view character) {
  if (character.size() <= 1) return character.empty() ? 0 : static_cast<unsigned char>(character[0]);
  uint32_t code = static_cast<unsigned char>(character[0]) & (0xFFu >> (character.size() + 1));
  for (char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return code;
}

}  // namespace

int character_width(std::string_view character) {
  const uint32_t code = code_point(character);
  if (code < 0x300) return code < 0x20 || (code >= 0x7F && code < 0xA0) ? 0 : 1;
  const int width = ::wcwidth(static_cast<wchar_t>(code));
  return width < 0 ? 1 : width;
}

std::string Wrap::push(std::string_view text) {
  if (columns_ <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t count = std::min(bytes_of(static_cast<unsigned char>(text[0])), text.size());
    take(text.substr(0, count), out);
    text.remove_prefix(count);
  }
  return out;
}

void Wrap::place_word(std::string& out) {
  if (word_.empty()) return;
  const int spaces = static_cast<int>(spaces_.size());
  if (!as_is() && column_ > 0 && column_ + spaces + word_width_ > columns_) {
    out += '\n';
    column_ = 0;
  } else {
    out += spaces_;
    column_ += spaces;
  }
  out += word_;
  column_ += word_width_;
  if (column_ > columns_) column_ %= columns_;  // the terminal broke it
  spaces_.clear();
  word_.clear();
  word_width_ = 0;
}

void Wrap::end_line(std::string& out) {
  place_word(out);
  out += spaces_ + "\n";
  spaces_.clear();
  column_ = 0;
  const size_t first = line_.find_first_not_of(' ');
  if (first != line_.npos && line_.compare(first, 3, "```") == 0) fenced_ = !fenced_;
  line_.clear();
}

void Wrap::take(std::string_view character, std::string& out) {
  if (character == "\n") return end_line(out);
  if (line_.size() < 16) line_ += character;
  if (character == " " || character == "\t") {
    place_word(out);
    spaces_ += character;
    return;
  }
  const int width = character_width(character);
  if (width == 2) place_word(out);  // between such characters a line may break anywhere
  word_ += character;
  word_width_ += width;
  if (width == 2 || word_width_ >= columns_) place_word(out);
}

std::string Wrap::flush() {
  std::string out;
  if (columns_ <= 0) return out;
  place_word(out);
  out += spaces_;
  column_ += static_cast<int>(spaces_.size());
  spaces_.clear();
  return out;
}

}  // namespace millrace::apps

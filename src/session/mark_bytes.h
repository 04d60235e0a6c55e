// Marks in answers, as bytes: SoughtMark finds one as bytes come, hex() and from_hex() write it down for another
// process. Values; any thread.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

// A text that is looked for byte by byte: how much of it the bytes so far end with.
class SoughtMark {
 public:
  explicit SoughtMark(std::string text) : text_(std::move(text)), shorter_(text_.size() + 1, 0) {
    for (size_t i = 1, same = 0; i < text_.size(); ++i) {
      while (same > 0 && text_[i] != text_[same]) same = shorter_[same];
      if (text_[i] == text_[same]) ++same;
      shorter_[i + 1] = same;
    }
  }
  size_t size() const { return text_.size(); }
  char at(size_t place) const { return text_[place]; }
  size_t next(size_t matched, char c) const {
    if (matched == text_.size()) matched = shorter_[matched];
    while (matched > 0 && text_[matched] != c) matched = shorter_[matched];
    return !text_.empty() && text_[matched] == c ? matched + 1 : 0;
  }

 private:
  std::string text_;
  std::vector<size_t> shorter_;  // by length: the longest beginning that it also ends with
};

inline std::string hex(std::string_view bytes) {
  std::string out = bytes.empty() ? "-" : "";
  for (char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

inline Result<std::string> from_hex(std::string_view text) {
  std::string out;
  if (text == "-") return out;
  for (size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    const auto [rest, failure] = std::from_chars(text.data() + i, text.data() + std::min(i + 2, text.size()), byte, 16);
    if (failure != std::errc() || rest != text.data() + i + 2) return error(Code::corrupt, "no bytes");
    out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace millrace

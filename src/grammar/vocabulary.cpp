#include "grammar/vocabulary.h"

#include <algorithm>
#include <bit>

#include "grammar/grammar.h"

namespace millrace {

namespace {

// Characters of a text that is nothing but whole plain ones, else -1.
int plain_characters(std::string_view text) {
  int count = 0;
  for (size_t i = 0; i < text.size();) {
    const uint8_t first = static_cast<uint8_t>(text[i]);
    if (first < 0x20 || first == '"' || first == '\\') return -1;
    const size_t length = first < 0x80   ? 1
                          : first < 0xC2 ? 0
                          : first < 0xE0 ? 2
                          : first < 0xF0 ? 3
                          : first < 0xF5 ? 4
                                         : 0;
    if (length == 0 || i + length > text.size()) return -1;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<uint8_t>(text[i + k]) & 0xC0) != 0x80) return -1;
    }
    // Overlong forms, surrogates, and what is past the last code point.
    const uint8_t second = length > 1 ? static_cast<uint8_t>(text[i + 1]) : 0;
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F)) {
      return -1;
    }
    i += length;
    ++count;
  }
  return count;
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> ends)
    : bytes_(std::move(bytes)), ends_(std::move(ends)) {
  std::sort(ends_.begin(), ends_.end());
  for (Token end : ends_) {
    if (end >= 0 && end < size()) bytes_[static_cast<size_t>(end)].clear();
  }
  std::vector<std::pair<std::string, int32_t>> all;
  std::vector<int> plain;
  for (Token token = 0; token < size(); ++token) {
    const std::string& text = this->bytes(token);
    plain.push_back(text.empty() ? -1 : plain_characters(text));
    if (text.empty()) continue;
    all.push_back({text, token});
    for (char c : text) used_[static_cast<uint8_t>(c)] = true;
  }
  all_ = TokenTrie(std::move(all));
  texts_ = grammar::TextTable(bytes_, plain);
}

bool GrammarVocabulary::is_end(Token token) const { return std::binary_search(ends_.begin(), ends_.end(), token); }

std::string control_bytes(Token token) {
  std::string bytes = "\xFE";
  for (int shift = 18; shift >= 0; shift -= 6) bytes += static_cast<char>(0x80 | (token >> shift & 0x3F));
  return bytes;
}

Token GrammarVocabulary::forced(const TokenMask& allowed) const {
  constexpr int64_t kMost = 256;
  if (allowed.count() > kMost) return -1;
  std::vector<Token> tokens;
  for (size_t word = 0; word < allowed.words.size(); ++word) {
    for (uint64_t left = allowed.words[word]; left != 0; left &= left - 1)
      tokens.push_back(static_cast<Token>(word * 64 + static_cast<size_t>(std::countr_zero(left))));
  }
  Token best = -1;
  for (Token token : tokens) {
    if (bytes(token).empty()) return -1;  // the answer may end here
    if (best >= 0 && bytes(token).size() <= bytes(best).size()) continue;
    const bool must = std::all_of(tokens.begin(), tokens.end(), [&](Token other) {
      return bytes(token).starts_with(bytes(other)) || bytes(other).starts_with(bytes(token));
    });
    if (must) best = token;
  }
  return best;
}

}  // namespace millrace

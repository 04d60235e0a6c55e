#include "grammar/vocabulary.h"

#include <algorithm>
#include <bit>

namespace millrace {

namespace {

constexpr int kMostPlain = 32;  // characters of a token that counts as plain

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

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> texts) {
  std::erase_if(texts, [](const auto& text) { return text.first.size() > 255; });
  std::sort(texts.begin(), texts.end());
  std::vector<size_t> path;  // nodes on the way to the last text
  std::string_view last;
  for (const auto& [text, id] : texts) {
    if (text.empty()) {
      empty_.push_back(id);
      continue;
    }
    size_t common = 0;
    while (common < last.size() && common < text.size() && last[common] == text[common]) ++common;
    while (path.size() > common) {
      nodes_[path.back()].skip = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(nodes_.size());
      nodes_.push_back({static_cast<uint8_t>(text[i]), static_cast<uint8_t>(i), 0, 0, 0});
    }
    Node& node = nodes_[path.back()];
    if (node.count == 0) node.first = static_cast<uint32_t>(ids_.size());
    ids_.push_back(id);
    ++node.count;
    last = text;
  }
  for (size_t index : path) nodes_[index].skip = static_cast<uint32_t>(nodes_.size());
}

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> bytes, std::vector<Token> ends)
    : bytes_(std::move(bytes)), ends_(std::move(ends)), plain_(static_cast<int32_t>(bytes_.size())) {
  std::sort(ends_.begin(), ends_.end());
  for (Token end : ends_) {
    if (end >= 0 && end < size()) bytes_[static_cast<size_t>(end)].clear();
  }
  std::vector<std::pair<std::string, int32_t>> all, rest;
  for (Token token = 0; token < size(); ++token) {
    const std::string& text = this->bytes(token);
    if (text.empty()) continue;
    all.push_back({text, token});
    if (text.size() == 1) single_[static_cast<uint8_t>(text[0])] = true;
    const int characters = plain_characters(text);
    if (characters < 0 || characters > kMostPlain) {
      rest.push_back({text, token});
    } else {
      plain_.add(token);
      longest_plain_ = std::max(longest_plain_, characters);
    }
  }
  all_ = TokenTrie(std::move(all));
  rest_ = TokenTrie(std::move(rest));
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

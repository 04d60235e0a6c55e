#include "text/added_tokens.h"

#include "text/unicode.h"

namespace millrace {
namespace {

bool is_space(uint32_t code) { return CategoryTable::get().in(code, kSpace); }

size_t char_before(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && !is_char_start(text[at]));
  return at;
}

}  // namespace

Result<void> AddedTokens::add(const AddedToken& token, std::string_view looked_for) {
  if (looked_for.empty()) return {};
  if (looked_for.size() > kLongest) {
    return error(Code::invalid, "added token {} has {} bytes, more than the limit of {}", token.id, looked_for.size(),
                 kLongest);
  }
  starts_[static_cast<unsigned char>(looked_for[0])] = true;
  trie_.add(looked_for, static_cast<Token>(tokens_.size()));
  tokens_.push_back(token);
  return {};
}

AddedTokens::Match AddedTokens::next(std::string_view text, size_t from, bool specials) const {
  for (size_t start = from; start < text.size(); ++start) {
    if (!starts_[static_cast<unsigned char>(text[start])]) continue;
    Match match;
    uint32_t node = Trie::kRoot;
    for (size_t at = start; at < text.size(); ++at) {
      node = trie_.child(node, text[at]);
      if (node == Trie::kNone) break;
      const Token index = trie_.token(node);
      if (index == kNoToken) continue;
      const AddedToken& token = tokens_[static_cast<size_t>(index)];
      if (skip_hidden_ && token.special && !specials) continue;
      match = {start, at + 1, &token};
    }
    if (match.token != nullptr) return match;
  }
  return {};
}

bool AddedTokens::accept(std::string_view text, size_t done, bool specials, Match& match) const {
  const AddedToken& token = *match.token;
  if (token.special && !specials) return false;
  size_t bytes = 0;
  if (token.single_word) {
    if (match.begin > 0 && is_word(code_at(text.data() + char_before(text, match.begin), &bytes), true)) return false;
    if (match.end < text.size() && is_word(code_at(text.data() + match.end, &bytes), true)) return false;
  }
  if (token.left_strip && match.begin < done) match.begin = done;
  while (token.left_strip && match.begin > done) {
    size_t before = char_before(text, match.begin);
    if (!is_space(code_at(text.data() + before, &bytes))) break;
    match.begin = before;
  }
  while (token.right_strip && match.end < text.size() && is_space(code_at(text.data() + match.end, &bytes))) {
    match.end += bytes;
  }
  return true;
}

}  // namespace millrace

// AddedTokens: tokens that are found in the text itself before anything else is done to it: control tokens like
// <|im_end|> and words a vocabulary was extended with. Of several at one place the longest wins, and the leftmost goes
// first. Filled once, then read from any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "text/unigram.h"

namespace millrace {

struct AddedToken {
  Token id = kNoToken;
  std::string text;
  bool special = false;      // control: only where the caller asks for them, and left out of decoded text on request
  bool normalized = false;   // looked for after normalisation, in its normalised form
  bool single_word = false;  // only where no word character touches it
  bool left_strip = false, right_strip = false;  // takes the white space beside it along
};

class AddedTokens {
 public:
  static constexpr size_t kLongest = 4096;  // bytes; what one place in a text may cost

  // Tokens to look for, by the text they are looked for with. Specials that are not asked for still hide what overlaps
  // them (as in Hugging Face's tokenizers) unless `skip_hidden` is set (as in llama.cpp).
  void set_skip_hidden() { skip_hidden_ = true; }
  Result<void> add(const AddedToken& token, std::string_view looked_for);
  bool empty() const { return tokens_.empty(); }

  // Cuts the text into tokens and what lies between: part(begin, end, id), id == kNoToken for text.
  template <class OnPart>
  void find(std::string_view text, bool specials, OnPart&& part) const {
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      Match match = next(text, from, specials);
      if (match.token == nullptr) break;
      from = match.end;
      if (!accept(text, done, specials, match)) continue;
      if (match.begin > done) part(done, match.begin, kNoToken);
      // White space that a token took along may hold the next one in Hugging Face's tokenizers; then it is empty.
      if (match.begin < match.end) part(match.begin, match.end, match.token->id);
      done = match.end;
      if (skip_hidden_) from = done;
    }
    if (done < text.size()) part(done, text.size(), kNoToken);
  }

 private:
  struct Match {
    size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;
  };
  Match next(std::string_view text, size_t from, bool specials) const;
  // Whether the match counts; moves its ends over the white space it takes along, not before `done`.
  bool accept(std::string_view text, size_t done, bool specials, Match& match) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;  // to indices of tokens_
  std::array<bool, 256> starts_{};
  bool skip_hidden_ = false;
};

}  // namespace millrace

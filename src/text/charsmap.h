// Charsmap: SentencePiece's precompiled replacement rules, a double-array trie of byte strings and their replacements.
// Two readings of it exist: SentencePiece takes the longest rule at every place, Hugging Face's tokenizers look at one
// grapheme cluster or character at a time and take the shortest. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

class Charsmap {
 public:
  static Result<Charsmap> from_bytes(std::string_view bytes);
  static Result<Charsmap> from_base64(std::string_view text);

  // As Hugging Face's tokenizers read it. The text is valid UTF-8. Stops once there are more than `most` bytes.
  std::string by_grapheme(std::string_view text, size_t most = SIZE_MAX) const;
  // A text becomes at most so many times as long.
  double growth() const { return growth_; }
  // The replacement of the longest rule at the start of the text and how many bytes it covers (0: none does).
  std::string_view longest(std::string_view text, size_t* covered) const;

 private:
  // Calls found(covered, offset of the replacement) for every rule at the start of the text, short ones first, until it
  // returns false.
  template <class Found>
  void rules(std::string_view text, Found&& found) const;
  double find_growth() const;
  std::string_view replacement(uint32_t offset) const;
  bool replace_shortest(std::string_view text, std::string& out) const;

  std::vector<uint32_t> units_;  // the trie
  std::string replacements_;     // zero-terminated
  double growth_ = 1;
};

}  // namespace millrace

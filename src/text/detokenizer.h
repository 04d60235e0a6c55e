// Detokenizer: the text of tokens as they come, one answer's, on one thread. It never gives out part of a character,
// and all it gave together is what Tokenizer::decode gives for all tokens.
#pragma once

#include <string>

#include "base/token.h"
#include "text/decoder.h"
#include "text/tokenizer.h"

namespace millrace {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {});

  // The text that is certain now; may be empty, as when a character is spread over tokens.
  std::string push(Token token);
  void push(Token token, std::string& out);
  // What was still held back, at the end. After it the Detokenizer is used up.
  std::string finish();

 private:
  std::shared_ptr<const struct TokenizerParts> parts_;
  bool skip_special_;
  DecodeStream stream_;
};

}  // namespace millrace

// WordPiece: a word is its longest beginning that is a token, then the longest continuation of what is left, and so on;
// if something is left over, the whole word is unknown (BERT). Immutable once built; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/model.h"
#include "text/unigram.h"
#include "text/vocabulary.h"

namespace millrace {

class WordPiece : public PieceModel {
 public:
  explicit WordPiece(Token unknown, size_t most_characters) : unknown_(unknown), most_(most_characters) {}

  void add_start(std::string_view text, Token id) { starts_.add(text, id); }   // may begin a word
  void add_inside(std::string_view text, Token id) { inside_.add(text, id); }  // may go on with one

  void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const override;

 private:
  Trie starts_, inside_;
  Token unknown_;
  size_t most_;  // characters of a word; a longer one is unknown
};

// A BERT tokenizer.json for the lines of a vocab.txt, as the settings of tokenizer_config.json say.
Result<Json> tokenizer_of_words(std::string_view vocab_txt, const Json& tokenizer_config);

}  // namespace millrace

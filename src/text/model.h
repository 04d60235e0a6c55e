// PieceModel: turns one piece of text into tokens. The piece is what a pre-tokenizer made; models know nothing of
// special tokens. Immutable once built; encode may be called from any thread, each with its own MergeSpace.
#pragma once

#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/merge.h"

namespace millrace {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  // Appends the tokens of a piece that is not empty.
  virtual void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const = 0;
};

}  // namespace millrace

// Drafter: guesses how a sequence goes on. Guesses are just more tokens for a step to compute; the step keeps those
// that it would have chosen itself, so a bad guess costs time and never changes an answer. Engine thread only.
#pragma once

#include <vector>

#include "engine/sequence.h"

namespace millrace {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Appends at most `limit` tokens that may follow sequence.tokens.
  virtual void propose(const Sequence& sequence, int limit, std::vector<Token>& out) = 0;
};

}  // namespace millrace

// Constraint: what an answer must be, as the engine sees it: which tokens may come next in a state, and the state after
// a token. States are numbers that mean the same for every answer under the constraint, so the engine keeps one for
// each token chosen, by position, and repeated steps, preemption and drafts find the same masks. Shared by sequences
// and threads; a state's mask and successors never change.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "base/token_mask.h"

namespace millrace {

class Constraint {
 public:
  using State = int32_t;
  virtual ~Constraint() = default;

  virtual State start() const = 0;
  // After a token that allowed() had; of any other what comes back has no mask.
  virtual State next(State state, Token token) = 0;
  virtual Result<std::shared_ptr<const TokenMask>> allowed(State state) = 0;
  virtual bool ends(State state) = 0;  // the answer may end here
  // What makes the same constraint again in another process; never empty.
  virtual std::string source() const = 0;
  // A token that begins text which must come here, though it could be cut into other tokens: a guess. -1: none.
  virtual Token forced(State /*state*/) { return -1; }
};

// The states of one answer, by position.
class ConstraintStates {
 public:
  // The mask for the token after `answer`, which is what was chosen so far. States of tokens that were taken back go.
  Result<std::shared_ptr<const TokenMask>> mask(Constraint& constraint, std::span<const Token> answer) {
    size_t same = std::min(tokens_.size(), answer.size());
    while (same > 0 && tokens_[same - 1] != answer[same - 1]) --same;
    if (states_.empty()) states_.push_back(constraint.start());
    tokens_.resize(same);
    states_.resize(same + 1);
    for (size_t i = same; i < answer.size(); ++i) {
      states_.push_back(constraint.next(states_.back(), answer[i]));
      tokens_.push_back(answer[i]);
    }
    return constraint.allowed(states_.back());
  }
  // After mask(): the guess for that token.
  Token forced(Constraint& constraint) const { return constraint.forced(states_.back()); }

 private:
  std::vector<Token> tokens_;
  std::vector<Constraint::State> states_;  // one more than tokens
};

}  // namespace millrace

// Needle: whether a model still has what it read. A few tokens of the text are put somewhere into a longer stretch of
// it; the stretch ends with the first of them, and the rest is asked for. Where they can be read, a model that copies
// says them; where they were forgotten, it can only guess. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/executor.h"

namespace millrace {

struct NeedleAsk {
  int32_t length = 512;         // tokens of a stretch, the question and its answer included
  int32_t depths = 8;           // places that the needle is put at, evenly from the first token on
  int32_t tries = 4;            // needles at each
  int32_t cue = 8, answer = 8;  // tokens: what the question says of it, and what is asked for
  Token begin = -1;             // what every stretch begins with, as models were taught; -1: nothing
  uint64_t seed = 1;
};

// What was asked of needles at one place.
struct NeedleFound {
  int32_t begin = 0;     // the needle's first position
  int32_t back = 0;      // from the question to it
  int64_t asked = 0;     // tokens
  int64_t right = 0;     // of them, the likeliest was right
  double surprise = 0;   // sum, in nats
  bool planted = false;  // false: the stretch was left as it is, for comparison

  double share() const { return asked > 0 ? static_cast<double>(right) / static_cast<double>(asked) : 0; }
};

// One for each depth, the last without a needle. The text has at least three stretches; the executor has room for one
// sequence of `length` tokens and for logits of `answer` rows. Needles and stretches are the same for a seed, whatever
// the executor.
Result<std::vector<NeedleFound>> find_needles(Executor& executor, std::span<const Token> text, const NeedleAsk& ask,
                                              const std::function<bool(int64_t passes)>& progress);

}  // namespace millrace

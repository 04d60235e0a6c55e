// ThoughtLimit: a constraint that lets an answer think for so many tokens and no more: the tokens between the marks of
// its reasoning are counted, and where the limit is reached the mark that ends it is all that may come. Around another
// constraint, which says what follows, or around none. What may come depends on the tokens chosen so far only, so a
// repeated step, a preemption, a draft or a crowd changes nothing. Any thread; a lock inside.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/constraint.h"
#include "session/answer_part.h"
#include "session/loaded_model.h"

namespace millrace {

struct ThoughtLimit {
  int tokens = 0;                    // at most so many are thought
  bool open = false;                 // the prompt has begun it
  bool repeats = false;              // an answer may think again, as those in channels do
  std::string begin = {}, end = {};  // the marks, control tokens as control_bytes()
  size_t begun = 0;                  // so many bytes of `begin` the prompt has written already
  size_t certain = 0;                // so many bytes of `begin` tell that reasoning comes
  std::vector<Token> close = {};     // what writes the end
};

// As the model writes reasoning, for a prompt that ends so. An error if it cannot write the mark that ends it; the
// model thinks (CallFormat::thinks).
Result<ThoughtLimit> thought_limit(const LoadedModel& model, Thinking thinking, int tokens);

// The limit around `inner`, or around none. The model outlives it.
std::shared_ptr<Constraint> limit_thoughts(const LoadedModel& model, ThoughtLimit limit,
                                           std::shared_ptr<Constraint> inner);

// What its source() begins with; and what it says, with the source of what it is around (empty: of nothing).
inline constexpr char kThoughtSource = 'r';
Result<ThoughtLimit> thought_limit_of(std::string_view source, int32_t vocab, std::string& inner);

}  // namespace millrace

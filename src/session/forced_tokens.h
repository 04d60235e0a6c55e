// A constraint that leaves no choice for so many tokens and any after them: an answer that begins with tokens that are
// known, so that the model says of each how likely it was. Any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/constraint.h"

namespace millrace {

// `vocab`: tokens the model knows; all of `tokens` are among them.
std::shared_ptr<Constraint> forced_tokens(std::vector<Token> tokens, int32_t vocab);

// What its source() begins with, and the same again from it.
inline constexpr char kForcedSource = 't';
Result<std::shared_ptr<Constraint>> forced_tokens_of(std::string_view source, int32_t vocab);

}  // namespace millrace

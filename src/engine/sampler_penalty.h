// The steps that look back: repetition, frequency and presence penalties, and DRY. They change the logits of tokens
// that occur in the context and touch no others. Buffers belong to the caller and are reused. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/token.h"
#include "engine/sampling.h"

namespace millrace {

// `counts` has an entry for every token and is all zero before and after. Ids outside the vocabulary (of an image, say)
// are passed over.
void apply_penalties(const Sampling& sampling, std::span<const Token> context, std::span<float> logits,
                     std::span<uint32_t> counts);

// "Don't repeat yourself": if the end of the context already occurred before, the token that followed it then is
// punished, the more the longer the occurrence. The longest counts where there are several. sampling.dry_breakers
// ascend.
void apply_dry(const Sampling& sampling, std::span<const Token> context, std::span<float> logits,
               std::vector<int32_t>& matches, std::vector<std::pair<Token, int32_t>>& repeats);

}  // namespace millrace

// Text that `eval` verbs score: which file, how it is cut into windows or documents, and the flags that say so. Main
// thread.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "eval/perplexity.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// --model --file --documents --limit --ctx.
std::vector<Flag> scoring_flags();

// What those flags make of a text. Refused with the counts if it is too short.
Result<std::vector<ScoredText>> scored_texts(const Arguments& arguments, const LoadedModel& model,
                                             const std::string& text);

}  // namespace millrace::apps

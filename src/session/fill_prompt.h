// The prompt that has a model fill in what is missing between two texts: its own fill-in-the-middle tokens around them.
// Any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "session/loaded_model.h"

namespace millrace {

// Control tokens written out in the texts are plain text. An error if the model has no such tokens.
Result<std::vector<Token>> fill_prompt(const LoadedModel& model, std::string_view before, std::string_view after);

}  // namespace millrace

// What is said on the command line about models that write by filling masks. Main thread.
#pragma once

#include <vector>

#include "apps/cli/cli.h"
#include "apps/cli/terminal.h"
#include "base/json.h"
#include "session/generator.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// --diffusion-steps --block-length --remasking.
std::vector<Flag> diffusion_flags();

// What they come to. Refused where the model goes on token by token.
Result<FillAsk> fill_of(const Arguments& arguments, const LoadedModel& loaded);

std::string_view fill_mode(const FillAsk& ask);  // "exact", "frozen blocks"
// Passes, tokens of each and the mode: in a line, nothing where there were none; as members of an object.
void note_passes(const Terminal& terminal, const GenerateTimes& times, const FillAsk& ask);
void put_passes(const GenerateTimes& times, const FillAsk& ask, JsonObject& out);

}  // namespace millrace::apps

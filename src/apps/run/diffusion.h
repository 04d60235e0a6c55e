// `run` with a model that writes by filling masks. Main thread.
#pragma once

#include <span>
#include <vector>

#include "apps/cli/cli.h"
#include "base/token.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// --diffusion-steps --block-length --remask.
std::vector<Flag> diffusion_flags();

// What such a model says after the prompt. Refuses what cannot be promised for it.
Result<int> run_diffusion(const Arguments& arguments, LoadedModel& loaded, std::span<const Token> prompt);

}  // namespace millrace::apps

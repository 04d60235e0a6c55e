// --speculate and --draft-max, for every verb that generates. Main thread.
#pragma once

#include <vector>

#include "apps/cli/flags.h"
#include "session/speculation.h"

namespace millrace::apps {

std::vector<Flag> speculate_flags();
// What they name, loaded beside the target. `context` is the longest sequence that will be run.
Result<std::unique_ptr<Speculation>> speculation_of(const Arguments& arguments, LoadedModel& target, int64_t context);
int most_drafts(const Arguments& arguments);

}  // namespace millrace::apps

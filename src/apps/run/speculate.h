// --speculate, --draft-max, --draft-tree and --draft-rule, for every verb that generates. Main thread.
#pragma once

#include <vector>

#include "apps/cli/flags.h"
#include "session/speculation.h"

namespace millrace::apps {

std::vector<Flag> speculate_flags();
Result<SpeculateOptions> speculate_options(const Arguments& arguments);
// What they name, loaded beside the target. `context` is the longest sequence that will be run.
Result<std::unique_ptr<Drafters>> drafters_of(const Arguments& arguments, LoadedModel& target, int64_t context);

}  // namespace millrace::apps

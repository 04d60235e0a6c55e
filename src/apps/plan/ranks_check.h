// `plan --check --ranks N`: what was planned for ranks (plan/ranks.h) beside what they take, send and need. Main
// thread.
#pragma once

#include "apps/cli/cli.h"
#include "base/result.h"

namespace millrace::apps {

Result<int> run_ranks_check(const Arguments& arguments);

}  // namespace millrace::apps

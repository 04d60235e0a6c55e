// `plan --check`: the model is run here and every prediction stands beside its measurement. Main thread.
#pragma once

#include "apps/cli/cli.h"

namespace millrace::apps {

Result<int> run_plan_check(const Arguments& arguments);

}  // namespace millrace::apps

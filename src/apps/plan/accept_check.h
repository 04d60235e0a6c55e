// `plan --check --accept`: passes that check guesses are timed here, and what guesses that are right so often would
// give is predicted from them. Main thread.
#pragma once

#include "apps/cli/cli.h"

namespace millrace::apps {

Result<int> run_accept_check(const Arguments& arguments);

}  // namespace millrace::apps

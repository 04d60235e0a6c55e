// `plan --cluster`: how many machines a trace needs, what a token costs on them, and what they run out of first. Main
// thread.
#pragma once

#include <vector>

#include "apps/cli/cli.h"
#include "plan/capacity.h"

namespace millrace::apps {

std::vector<Flag> cluster_flags();
// The planner is of one rank. It prints, as a table or as JSON.
Result<int> run_cluster_plan(const Arguments& arguments, Planner& planner, const std::string& model, int32_t ranks);

}  // namespace millrace::apps

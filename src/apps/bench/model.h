// What the verbs that time a model share: which model (a file, or random weights of a shape), on how many threads, and
// how results are printed.
#pragma once

#include <vector>

#include "apps/cli/cli.h"
#include "bench/step.h"

namespace millrace::apps {

std::vector<Flag> bench_flags();

// Runs the tests for every number of threads asked for and prints one row for each.
Result<int> run_bench(const Arguments& arguments, const std::vector<StepTest>& tests);

}  // namespace millrace::apps

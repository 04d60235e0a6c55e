// What the verbs that time a model share: which model (a file, or random weights of a shape), on how many threads, and
// how results are printed.
#pragma once

#include <vector>

#include "apps/cli/cli.h"
#include "bench/step.h"
#include "model/model.h"

namespace millrace::apps {

std::vector<Flag> bench_flags();

// What random weights of that shape are to be: one format ("Q8_0"), the mix that a file of a name has ("Q4_K_M"), or
// that mix with another format in place of its Q6_K ("Q4_K_M+BF16"). The spec outlives it.
Result<FormOf> random_forms(std::string_view name, const ModelSpec& spec);

// Runs the tests for every number of threads asked for and prints one row for each.
Result<int> run_bench(const Arguments& arguments, const std::vector<StepTest>& tests);

}  // namespace millrace::apps

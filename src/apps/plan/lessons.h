// What `plan --check` times to learn from, what it then predicts, and the passes such a test is made of. Main thread.
#pragma once

#include <vector>

#include "apps/cli/terminal.h"
#include "bench/step.h"
#include "plan/fit.h"

namespace millrace::apps {

// Passes that are timed op by op to learn from: at other depths, and prompts of other lengths, than those predicted.
std::vector<StepTest> lessons(int32_t context);
std::vector<StepTest> questions(int32_t context);

// The passes a test times, as run_step_test makes them in steps of so many rows.
std::vector<std::vector<PassRows>> passes_of(const StepTest& test, int32_t rows);

// Times the lessons on one rank.
Result<OpFit> learn(const Model& model, Backend& backend, const Machine& machine, int32_t context, Progress& progress);

}  // namespace millrace::apps

#include "apps/plan/lessons.h"

#include <algorithm>
#include <utility>

#include "apps/cli/interrupt.h"

namespace millrace::apps {

std::vector<StepTest> lessons(int32_t context) {
  std::vector<StepTest> tests;
  for (int32_t depth : {context / 32, context * 5 / 8}) {
    for (int32_t sequences : {1, 2, 4, 8, 16})
      tests.push_back({.generated = 8, .depth = depth, .sequences = sequences});
    for (int32_t prompt : {32, 128, 512}) {
      if (depth + prompt <= context) tests.push_back({.prompt = prompt, .depth = depth});
    }
  }
  return tests;
}

std::vector<StepTest> questions(int32_t context) {
  std::vector<StepTest> tests;
  for (int32_t prompt : {48, 192, 448}) {
    if (prompt <= context) tests.push_back({.prompt = prompt});
  }
  for (int32_t depth : {context / 16, context / 4, context * 3 / 4}) tests.push_back({.generated = 16, .depth = depth});
  for (int32_t sequences : {2, 4, 8, 16})
    tests.push_back({.generated = 16, .depth = context / 4, .sequences = sequences});
  return tests;
}

std::vector<std::vector<PassRows>> passes_of(const StepTest& test, int32_t rows) {
  std::vector<std::vector<PassRows>> passes;
  for (int32_t begin = 0; begin < test.prompt;) {
    const int32_t count = std::min(rows, test.prompt - begin);
    passes.push_back({{.begin = test.depth + begin, .count = count, .wanted = begin + count == test.prompt ? 1 : 0}});
    begin += count;
  }
  for (int32_t i = 0; i < test.generated; ++i)
    passes.emplace_back(static_cast<size_t>(test.sequences), PassRows{.begin = test.depth + test.prompt + i});
  return passes;
}

Result<OpFit> learn(const Model& model, Backend& backend, const Machine& machine, int32_t context, Progress& progress) {
  OpFit fit(ceilings_of(machine, true));
  TimedBackend timed(backend);
  const std::vector<StepTest> tests = lessons(context);
  TRY(auto executor, Executor::create(model, timed, options_for(tests, 512, DType::f16)));
  for (size_t i = 0; i < tests.size(); ++i) {
    bool begun = false;
    StepBenchOptions options = {.repetitions = 5, .progress = [&](int, int) {
                                  // What came before filled the cache and is not of the test.
                                  if (!std::exchange(begun, true)) timed.calls()->clear();
                                  return !Interruptible::interrupted();
                                }};
    TRY_VOID(run_step_test(*executor, tests[i], machine, options));
    count_costs(*timed.calls(), model, executor->options().kv);
    fit.add(*timed.calls(), tests[i].sequences);
    progress.update(i + 1);
  }
  fit.settle();
  return fit;
}

}  // namespace millrace::apps

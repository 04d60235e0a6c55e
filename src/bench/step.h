// Speed of the model itself, in process, as llama-bench measures it: prefill of p tokens, generation of n, at a depth
// of d tokens already in the cache, and generation by several sequences together. Each result carries the floor of the
// very passes it timed, so a speed never stands alone (contract 5).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "plan/roofline.h"

namespace millrace {

struct StepTest {
  int32_t prompt = 0;     // tokens prefilled together, or 0
  int32_t generated = 0;  // tokens generated one by one, or 0
  int32_t depth = 0;      // tokens in the cache before
  int32_t sequences = 1;  // that generate together
  int32_t adapters = 0;   // that the sequences have in turn; 0: none has any

  std::string name() const;  // "pp512", "tg128 @ d4096", "tg32 x 8", "tg32 x 16, 8 adapters"
  int64_t tokens() const { return int64_t{sequences} * (prompt + generated); }
};

struct StepResult {
  StepTest test;
  std::vector<double> seconds;                // one per repetition
  std::vector<std::vector<PassRows>> passes;  // of one repetition
  Floor floor;                                // of them

  double mean_rate() const;  // tokens a second
  double deviation() const;  // of the rate, over the repetitions
  double best_seconds() const;
  double median_seconds() const;
};

struct StepBenchOptions {
  int repetitions = 5;
  bool warm_up = true;
  std::vector<int> adapters;                          // places of as many as a test has
  bool fast = true;                                   // which arithmetic the floor assumes (plan/roofline.h)
  std::function<bool(int done, int total)> progress;  // false stops
};

// The executor must have room for the test: sequences, context and rows. Results come with at least one repetition.
Result<StepResult> run_step_test(Executor& executor, const StepTest& test, const Machine& machine,
                                 const StepBenchOptions& options);

// The least that passes take, for who has other ceilings now than when they were timed.
Floor floor_of(const Executor& executor, const std::vector<std::vector<PassRows>>& passes, const Machine& machine,
               bool fast);

// The executor options that a list of tests needs.
ExecutorOptions options_for(const std::vector<StepTest>& tests, int32_t rows, const KvForm& kv);

}  // namespace millrace

#include "apps/bench/model.h"
#include "apps/cli/verbs.h"
#include "bench/step.h"

namespace millrace::apps {
namespace {

// Every prompt length and every number of generated tokens, at every depth.
std::vector<StepTest> tests_of(const Arguments& arguments) {
  std::vector<StepTest> tests;
  for (int64_t depth : arguments.integers("depth")) {
    for (int64_t prompt : arguments.integers("n-prompt")) {
      if (prompt > 0) tests.push_back({.prompt = static_cast<int32_t>(prompt), .depth = static_cast<int32_t>(depth)});
    }
    for (int64_t generated : arguments.integers("n-gen")) {
      if (generated > 0)
        tests.push_back({.generated = static_cast<int32_t>(generated), .depth = static_cast<int32_t>(depth)});
    }
  }
  return tests;
}

Result<int> run_bench(const Arguments& arguments) {
  std::vector<StepTest> tests = tests_of(arguments);
  if (tests.empty()) return error(Code::invalid, "nothing to measure: give -p or -n above 0");
  return run_bench(arguments, tests);
}

}  // namespace

Verb bench_verb() {
  Verb verb = {
      .name = "bench",
      .summary = "measure prefill and generation, beside what the machine allows",
      .group = "Measure and check",
      .flags = bench_flags(),
      .examples = {{"bench", "the shipped model: prefill of 512 tokens, generation of 128"},
                   {"bench -m model.gguf -p 512,2048 -n 128 -d 0,4096", "several lengths, empty and deep cache"},
                   {"bench --shape llama-1b --type Q4_K -t 1,2", "random weights of a known shape, no file needed"}},
      .notes =
          "Times are of whole passes in this process. The floor is the least time this machine could take for the same "
          "passes: each op the longer of reading its weights and cache at the measured bandwidth and computing at the "
          "measured peak. Ceilings are measured once and kept (--remeasure).",
      .run = run_bench};
  verb.flags.insert(verb.flags.end(), {{.name = "n-prompt",
                                        .alias = "-p",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "512",
                                        .many = Many::commas,
                                        .least = 0,
                                        .most = 1 << 20,
                                        .help = "prompt lengths"},
                                       {.name = "n-gen",
                                        .alias = "-n",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "128",
                                        .many = Many::commas,
                                        .least = 0,
                                        .most = 1 << 20,
                                        .help = "numbers of tokens to generate"},
                                       {.name = "depth",
                                        .alias = "-d --n-depth",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "0",
                                        .many = Many::commas,
                                        .least = 0,
                                        .most = 1 << 20,
                                        .help = "tokens already in the cache"}});
  return verb;
}

}  // namespace millrace::apps

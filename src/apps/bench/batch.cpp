#include "apps/bench/model.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "bench/step.h"

namespace millrace::apps {
namespace {

Result<int> run_bench_batch(const Arguments& arguments) {
  std::vector<StepTest> tests;
  for (int64_t depth : arguments.integers("depth")) {
    for (int64_t sequences : arguments.integers("sequences")) {
      tests.push_back({.generated = static_cast<int32_t>(arguments.integer("n-gen")),
                       .depth = static_cast<int32_t>(depth),
                       .sequences = static_cast<int32_t>(sequences)});
    }
  }
  return run_bench(arguments, tests);
}

}  // namespace

Verb bench_batch_verb() {
  Verb verb = {
      .name = "bench batch",
      .summary = "measure sequences that generate together",
      .group = "Measure and check",
      .flags = bench_flags(),
      .examples = {{"bench batch -m model.gguf", "1 to 32 sequences, 32 tokens each"},
                   {"bench batch -b 1,16 -d 1024 -n 64", "with 1024 tokens already in each cache"},
                   {"bench batch -b 16 --adapters 8", "what eight LoRA adapters cost sixteen sequences"}},
      .notes =
          "Tokens a second are of all sequences together. Each step computes one token of every sequence and reads "
          "the weights once. With --adapters sequence i has adapter i modulo their number; limits stay those of the "
          "model alone.",
      .run = run_bench_batch};
  verb.flags.insert(verb.flags.end(), {{.name = "sequences",
                                        .alias = "-b -npl",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "1,2,4,8,16,32",
                                        .many = Many::commas,
                                        .least = 1,
                                        .most = 4096,
                                        .help = "how many generate together"},
                                       {.name = "n-gen",
                                        .alias = "-n",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "32",
                                        .least = 1,
                                        .most = 1 << 20,
                                        .help = "tokens each generates"},
                                       {.name = "depth",
                                        .alias = "-d",
                                        .kind = Kind::integer,
                                        .value = "N",
                                        .otherwise = "0",
                                        .many = Many::commas,
                                        .least = 0,
                                        .most = 1 << 20,
                                        .help = "tokens already in each cache"}});
  return verb;
}

}  // namespace millrace::apps

#include "engine/simulate.h"

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"

namespace millrace::apps {
namespace {

Result<int> run_simulate(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  Interruptible interruptible;
  int64_t seeds = arguments.integer("seeds");
  Progress progress(terminal, "seeds", static_cast<uint64_t>(seeds), Progress::Unit::count);
  SimulationSummary summary =
      simulate(static_cast<uint64_t>(arguments.integer("first-seed")), seeds, [&](const SimulationSummary& s) {
        progress.update(static_cast<uint64_t>(s.totals.seeds));
        return !Interruptible::interrupted();
      });
  terminal.print("{}\n", describe(summary));
  if (Interruptible::interrupted()) return interrupted_error();
  if (summary.failure) return kExitFailure;
  if (seeds >= 100 && !summary.nothing_untried()) {
    return error(Code::internal, "some kind of event never happened in {} seeds: the simulation is too tame", seeds);
  }
  return kExitOk;
}

}  // namespace

Verb simulate_verb() {
  return {.name = "simulate",
          .summary = "drive scheduler and cache from seeds, checking everything after every step",
          .group = "Measure and check",
          .flags = {{.name = "seeds",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "1000",
                     .least = 1,
                     .most = 1e12,
                     .help = "how many"},
                    {.name = "first-seed",
                     .kind = Kind::integer,
                     .value = "K",
                     .otherwise = "1",
                     .least = 0,
                     .help = "the first"}},
          .examples = {{"simulate --seeds 5000", "five thousand small worlds"},
                       {"simulate --seeds 1 --first-seed 4711", "replay one"}},
          .notes =
              "A seed decides pools, arrivals, lengths, shared prefixes, cancellations, failing copies and slow steps. "
              "The model's "
              "next token is a hash of what its cache holds, so a page mixed up shows at once. Exit code 1 names the "
              "seed that failed.",
          .run = run_simulate};
}

}  // namespace millrace::apps

// The simulator: scheduler and cache driven from one integer. A seed decides the size of everything (pools far too
// small, on purpose), who asks for what and when, who gives up, which copies fail and how slow steps are; HashModel
// stands for the network. After every step everything that must always hold is checked, and each answer is compared
// token by token with what its request gives alone. A failure is one number to replay.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace millrace {

struct SimulationTotals {
  int64_t seeds = 0, steps = 0, requests = 0, answers = 0, tokens = 0, refused = 0;
  int64_t preemptions = 0, evictions = 0, moved_out = 0, moved_in = 0, failed_moves = 0, restarts = 0;
  int64_t copies = 0, stripped = 0, cancels = 0, failures = 0, deaths = 0;
  int64_t prefix_hits = 0, cached_tokens = 0, drafts_accepted = 0, drafts_rejected = 0;
  int64_t least_steps = INT64_MAX, least_requests = INT64_MAX;  // of any seed

  void add(const SimulationTotals& other);
};

struct SimulationFailure {
  uint64_t seed = 0;
  int64_t step = 0;
  std::string what;
};

struct SimulationSummary {
  SimulationTotals totals;
  std::optional<SimulationFailure> failure;  // the first; simulation stops there

  bool nothing_untried() const;  // every kind of event happened at least once
};

// `progress` is called after each seed and may return false to stop.
SimulationSummary simulate(uint64_t first_seed, int64_t seeds,
                           const std::function<bool(const SimulationSummary&)>& progress = {});

std::string describe(const SimulationSummary& summary);  // a table for people

}  // namespace millrace

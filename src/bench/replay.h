// Replay: a workload through the engine's scheduler and the real model, and what came of it. In virtual time the clock
// is moved by the measured length of each step and of the planning around it, and jumps over idle stretches, so a light
// trace replays as fast as the model computes it; in real time requests are submitted when they are due, to an Engine
// with its threads. One thread calls it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "engine/engine.h"

namespace millrace {

struct ReplayOptions {
  EngineOptions engine;
  Targets targets;             // of every request
  bool share_prefixes = true;  // false: every request has a tree of its own
  bool real_time = false;
  std::function<bool(size_t ended, size_t total)> progress;  // false stops
};

struct ReplayReport {
  Metrics metrics;
  size_t requests = 0;
  double seconds = 0;          // of the clock that was used
  double step_seconds = 0;     // spent in steps
  double outside_seconds = 0;  // spent planning, committing and telling
  int pages = 0;
  double page_use = 0;       // mean share of the pool in use while steps ran
  double token_gap_p99 = 0;  // longest gap between tokens of a request, 99th percentile over requests

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(metrics.tokens_out) / seconds : 0; }
  double goodput() const { return seconds > 0 ? static_cast<double>(metrics.on_time) / seconds : 0; }
  double prefix_rate() const;  // share of prompt tokens found in the cache
  double overhead() const;     // outside_seconds as a share of both
};

Result<ReplayReport> replay(const Model& model, Backend& backend, const std::vector<Arrival>& arrivals,
                            const ReplayOptions& options);

}  // namespace millrace

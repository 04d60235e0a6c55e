// Clusters: a workload over several replicas of one model, each with the engine's own scheduler, policy and cache
// books, and a clock that steps move by what a roofline says they take. A request is sent where most of its
// beginning is cached, with bounded load, as routers do that hear of caches. Nothing is computed, so hours of traffic
// take seconds. One thread calls it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "engine/metrics.h"
#include "engine/policy.h"

namespace millrace {

// What a step takes: the longer of reading (weights once, cached tokens) and computing (rows, and what they attend to).
struct StepCost {
  double weights = 0;       // seconds to read them once
  double cached = 0;        // to read a cached token, which all rows of a sequence do together
  double row = 0;           // to compute a row
  double attended = 0;      // for each token that a row attends to
  double fixed = 0;         // of every step: launching, exchange between ranks
  double row_exchange = 0;  // between ranks, a row

  double reading(int64_t tokens) const { return weights + cached * static_cast<double>(tokens); }
  double computing(int rows, double pairs) const { return row * rows + attended * pairs; }
  double seconds(int rows, int64_t tokens, double pairs) const;
};

struct ClusterShape {
  int replicas = 1;
  Limits limits;
  std::string policy = "fcfs";
  int page_tokens = 16;
  int pages = 0;         // of a replica's cache
  int second_pages = 0;  // of its memory for pages moved out
  StepCost cost;
  Targets targets;
  bool by_prefix = true;   // false: in turn
  double most_load = 1.5;  // times the mean that a replica may have open before another is asked
};

struct ClusterReport {
  int64_t requests = 0, refused = 0, on_time = 0;
  int64_t late_first = 0, late_next = 0;  // of those that were not, which target they missed
  int64_t tokens_in = 0, tokens_out = 0, cached = 0, preemptions = 0, evictions = 0;
  double seconds = 0;     // from the first arrival to the last token
  double busy = 0;        // share of them that replicas computed, on average
  double reading = 0;     // share of that in which reading was the longer
  double pages_used = 0;  // the largest share of any replica's pages that sequences held
  double first_p50 = 0, first_p99 = 0, next_p50 = 0, next_p99 = 0;  // seconds

  double goodput() const { return requests > 0 ? static_cast<double>(on_time) / static_cast<double>(requests) : 0; }
  double found() const { return tokens_in > 0 ? static_cast<double>(cached) / static_cast<double>(tokens_in) : 0; }
};

Result<ClusterReport> run_cluster(std::span<const Arrival> arrivals, const ClusterShape& shape);

// What a cluster runs out of first, in words, by what the report of one that is too small says.
std::string breaks_first(const ClusterReport& report);

// The fewest replicas with which at least `on_time` of all requests meet their targets, up to `most`; 0: there are
// none.
struct Sized {
  int replicas = 0;
  ClusterReport report;  // of so many
  ClusterReport fewer;   // of one fewer; of `most` if none are enough
};
Result<Sized> size_cluster(std::span<const Arrival> arrivals, ClusterShape shape, double on_time, int most);

}  // namespace millrace

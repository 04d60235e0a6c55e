// What a load did to a server, from the times each request recorded: the figures of vLLM's `bench serve`, with its
// definitions, its result text and its JSON keys, so that results can stand side by side. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace millrace {

// One request as the client saw it. Seconds; start is on the clock of the run, the rest counts from start.
struct ServeRecord {
  double start = 0;
  double first_token = 0;           // time to the first piece of the answer
  std::vector<double> next_tokens;  // from piece to piece
  double latency = 0;               // to the last piece
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, where the server says
  bool ok = false;
  std::string text;   // of the answer
  std::string error;  // why it is not ok
};

// What counts as good, in milliseconds; absent: anything does.
struct ServeGoals {
  std::optional<double> ttft, tpot, e2el;
  bool any() const { return ttft || tpot || e2el; }
};
// "ttft:500".
Result<void> add_goal(ServeGoals& goals, std::string_view text);

struct ServeSpread {  // milliseconds
  double mean = 0, median = 0, deviation = 0;
  std::vector<double> percentiles;  // as asked for
};

struct ServeReport {
  double seconds = 0;
  int64_t completed = 0, failed = 0, good = 0;
  int64_t tokens_in = 0, tokens_out = 0, tokens_cached = 0;
  double requests_per_second = 0, good_per_second = 0;
  double output_per_second = 0, tokens_per_second = 0;
  double peak_output_per_second = 0;  // the best whole second
  int64_t peak_requests = 0;          // open within one second
  ServeSpread ttft, tpot, itl, e2el;

  // Of all requests, the share that was answered well enough.
  double attainment() const;
};

// `percentiles` in percent, 0 to 100.
ServeReport report_serve(const std::vector<ServeRecord>& records, double seconds, const ServeGoals& goals,
                         const std::vector<double>& percentiles);

// With linear interpolation between neighbours; 0 of nothing. `percent` from 0 to 100.
double percentile(std::vector<double> values, double percent);

// How a result is shown and saved.
struct ServeShown {
  std::vector<std::string> metrics;  // of ttft, tpot, itl, e2el
  std::vector<double> percentiles;
  std::optional<int> max_concurrency;
  std::optional<double> rate;  // none: as fast as possible
  bool goodput = false;
};
std::string serve_text(const ServeReport& report, const ServeShown& shown);
// The figures; with records also every request's own (--save-detailed).
JsonObject serve_json(const ServeReport& report, const ServeShown& shown, const std::vector<ServeRecord>* records);

}  // namespace millrace

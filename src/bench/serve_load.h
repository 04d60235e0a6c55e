// Who asks a server for how much and when: prompts as token ids or words, and the times at which they are due. Depends
// on the seed only. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/workload.h"

namespace millrace {

// Prompts of about the same length; a stretch at their beginning may be shared by groups of them.
struct ServeShape {
  int requests = 1000;
  int input = 1024;        // tokens after the shared beginning
  int output = 128;        // tokens wanted
  double range_ratio = 0;  // lengths vary by this share to either side
  int prefix = 0;          // tokens of the shared beginning
  int prefixes = 1;        // how many different ones there are
  int vocab = 1000;
  uint64_t seed = 0;
};
std::vector<Arrival> serve_prompts(const ServeShape& shape);  // all due at once

enum class RampUp : uint8_t { none, linear, exponential };
struct ServePace {
  std::optional<double> rate;  // requests a second; none: all at once
  double burstiness = 1;       // 1: Poisson; below: in bursts; above: more even
  RampUp ramp = RampUp::none;
  double ramp_from = 0, ramp_to = 0;
  uint64_t seed = 0;
};
// Sets when each is due: gaps are drawn from a gamma distribution and, without a ramp, scaled so that all come within
// requests / rate seconds.
void pace(std::vector<Arrival>& arrivals, const ServePace& pace);

// Words instead of ids, for servers that take text only: one short English word per id.
std::string words_of(const std::vector<Token>& prompt);

// Finds the highest rate at which `share_at(rate)` is at least `wanted`: doubles from `first` until it is not (or
// halves until it is), then narrows down to within `precision`. Returns 0 if not even a 64th of `first` does. Stops
// early with an error of `share_at`.
Result<double> highest_rate(double first, double wanted, double precision,
                            const std::function<Result<double>(double rate)>& share_at);

}  // namespace millrace

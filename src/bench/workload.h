// Workload: who asks for how much and when. From traces people publish (Azure's CSV, Mooncake's JSON lines) or made
// from a rate, always as token ids that depend on a seed only. Lengths are scaled down to what the model's context
// holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"

namespace millrace {

struct Arrival {
  double time = 0;            // seconds after the first
  std::vector<Token> prompt;  // at least one
  int output = 1;             // tokens wanted, at least one
};

struct WorkloadLimits {
  int context = 2048;  // prompt and output together
  int vocab = 0;
  int requests = 0;  // at most so many; 0: all
  double speed = 1;  // arrivals come so many times as fast
  uint64_t seed = 1;
};

// By content: a CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens, or JSON lines with timestamp (ms),
// input_length, output_length and hash_ids, where equal ids mean equal stretches of 512 tokens.
Result<std::vector<Arrival>> read_trace(const std::filesystem::path& path, const WorkloadLimits& limits);
Result<std::vector<Arrival>> parse_trace(std::string_view text, const WorkloadLimits& limits);

// Arrivals at random with a mean of `rate` a second, lengths between half and one and a half of the means; the first
// `shared` tokens of every prompt are the same.
struct PoissonShape {
  double rate = 1;
  int prompt = 128, output = 64;
  int shared = 0;
  bool exact = false;  // lengths are the means; else from half to three halves of them
  int requests = 100;
};
std::vector<Arrival> poisson(const PoissonShape& shape, const WorkloadLimits& limits);

}  // namespace millrace

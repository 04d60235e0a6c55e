#include "bench/serve_load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr uint32_t kLengths = 0xfffffff0, kGaps = 0xfffffff1;  // whose random numbers

double draw(uint64_t seed, uint32_t whose, uint32_t index, uint32_t which) {
  return uniform({.seed = seed, .choice = whose, .position = index, .draw = which});
}

int length_of(int mean, double range, double at) {
  double low = std::floor(mean * (1 - range)), high = std::ceil(mean * (1 + range));
  return std::max(1, static_cast<int>(low + std::floor(at * (high - low + 1))));
}

// A gamma variate of this shape and mean 1, by Marsaglia and Tsang's method.
double gamma_gap(double shape, uint64_t seed, uint32_t index) {
  uint32_t next = 0;
  auto number = [&] { return draw(seed, kGaps, index, next++); };
  double boost = 1, raised = shape;
  if (shape < 1) {
    boost = std::pow(1 - number(), 1 / shape);
    raised = shape + 1;
  }
  double d = raised - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double normal = std::sqrt(-2 * std::log(1 - number())) * std::cos(2 * std::numbers::pi * number());
    double v = std::pow(1 + c * normal, 3);
    if (v <= 0) continue;
    if (std::log(1 - number()) < 0.5 * normal * normal + d - d * v + d * std::log(v)) return boost * d * v / shape;
  }
}

double rate_at(const ServePace& how, size_t index, size_t total) {
  if (how.ramp == RampUp::none) return how.rate.value_or(0);
  double progress = static_cast<double>(index) / static_cast<double>(std::max<size_t>(1, total - 1));
  if (how.ramp == RampUp::linear) return how.ramp_from + (how.ramp_to - how.ramp_from) * progress;
  return how.ramp_from * std::pow(how.ramp_to / how.ramp_from, progress);
}

}  // namespace

std::vector<Arrival> serve_prompts(const ServeShape& shape) {
  std::vector<Arrival> arrivals(static_cast<size_t>(std::max(0, shape.requests)));
  int first = std::min(8, shape.vocab - 1);  // ids below are left to special tokens
  auto token = [&](uint32_t name, int i) {
    double at = draw(shape.seed, name, static_cast<uint32_t>(i), 0);
    return first + static_cast<Token>(at * (shape.vocab - first));
  };
  for (size_t n = 0; n < arrivals.size(); ++n) {
    auto index = static_cast<uint32_t>(n);
    Arrival& arrival = arrivals[n];
    int input = length_of(shape.input, shape.range_ratio, draw(shape.seed, kLengths, index, 0));
    arrival.output = length_of(shape.output, shape.range_ratio, draw(shape.seed, kLengths, index, 1));
    auto group = index % static_cast<uint32_t>(std::max(1, shape.prefixes));
    for (int i = 0; i < shape.prefix; ++i) arrival.prompt.push_back(token(group, i));
    uint32_t name = index + static_cast<uint32_t>(std::max(1, shape.prefixes));
    for (int i = 0; i < input; ++i) arrival.prompt.push_back(token(name, i));
  }
  return arrivals;
}

void pace(std::vector<Arrival>& arrivals, const ServePace& how) {
  double time = 0;
  for (size_t n = 0; n < arrivals.size(); ++n) {
    double rate = rate_at(how, n, arrivals.size());
    if (rate > 0) {
      bool even = std::isinf(how.burstiness);
      time += (even ? 1 : gamma_gap(how.burstiness, how.seed, static_cast<uint32_t>(n))) / rate;
    }
    arrivals[n].time = time;
  }
  if (how.ramp != RampUp::none || !how.rate || time <= 0) return;
  double wanted = static_cast<double>(arrivals.size()) / *how.rate;
  for (Arrival& arrival : arrivals) arrival.time *= wanted / time;
}

std::string words_of(const std::vector<Token>& prompt) {
  static constexpr std::array<const char*, 32> kWords = {
      "the",  "mill", "and",  "water", "to",   "wheel", "of",   "a",     "in",    "river", "stone",
      "flow", "it",   "race", "on",    "turn", "was",   "day",  "for",   "grain", "with",  "rain",
      "as",   "bank", "at",   "old",   "by",   "weir",  "from", "night", "over",  "bread"};
  std::string text;
  for (Token token : prompt) {
    if (!text.empty()) text += ' ';
    text += kWords[static_cast<size_t>(token) % kWords.size()];
  }
  return text;
}

Result<double> highest_rate(double first, double wanted, double precision,
                            const std::function<Result<double>(double rate)>& share_at) {
  double good = 0, bad = 0, rate = first;
  for (int turn = 0; turn < 24; ++turn) {
    TRY(double share, share_at(rate));
    (share >= wanted ? good : bad) = rate;
    if (good > 0 && bad > 0 && bad <= good * (1 + precision)) break;
    if (good > 0 && bad > 0) {
      rate = (good + bad) / 2;
    } else if (good > 0) {
      rate = good * 2;
    } else if (rate <= first / 64) {
      break;
    } else {
      rate = bad / 2;
    }
  }
  return good;
}

}  // namespace millrace

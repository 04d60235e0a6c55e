#include "eval/interval.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace millrace {
namespace {

constexpr double kNormal = 1.959963984540054;  // 97.5 % of a normal distribution lie below
constexpr uint32_t kDraws = 1000;

}  // namespace

Interval mean_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double value : values) sum += value;
  const double mean = sum / n;
  for (double value : values) squares += (value - mean) * (value - mean);
  const double error = values.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
  return {mean, mean - kNormal * error, mean + kNormal * error};
}

Interval share_interval(int64_t hits, int64_t all) {
  if (all <= 0) return {};
  const double n = static_cast<double>(all), p = static_cast<double>(hits) / n, z = kNormal * kNormal;
  const double centre = (p + z / (2 * n)) / (1 + z / n);
  const double half = kNormal * std::sqrt(p * (1 - p) / n + z / (4 * n * n)) / (1 + z / n);
  return {p, std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

Interval resampled_interval(size_t segments, const std::function<double(std::span<const uint32_t> times)>& score) {
  std::vector<uint32_t> times(segments, 1);
  Interval interval = {.value = score(times)};
  std::vector<double> scores;
  for (uint32_t draw = 0; draw < kDraws; ++draw) {
    std::fill(times.begin(), times.end(), 0);
    for (size_t i = 0; i < segments; ++i) {
      const double u = uniform({.seed = 12345, .choice = draw, .position = static_cast<uint32_t>(i)});
      ++times[std::min(segments - 1, static_cast<size_t>(u * static_cast<double>(segments)))];
    }
    scores.push_back(score(times));
  }
  std::sort(scores.begin(), scores.end());
  interval.low = scores[kDraws / 40];
  interval.high = scores[kDraws - 1 - kDraws / 40];
  return interval;
}

}  // namespace millrace

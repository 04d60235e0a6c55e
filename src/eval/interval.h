// How sure a figure is: 95 % confidence intervals of means, of shares, and of scores that are no mean (by drawing the
// segments again and again, from a fixed seed). Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace millrace {

struct Interval {
  double value = 0, low = 0, high = 0;
};

Interval mean_interval(std::span<const double> values);  // normal approximation
Interval share_interval(int64_t hits, int64_t all);      // Wilson's
// `score` of a choice of segments, given as how often each is taken.
Interval resampled_interval(size_t segments, const std::function<double(std::span<const uint32_t> times)>& score);

}  // namespace millrace

// How far one set of logits is from another: largest difference, and the Kullback-Leibler divergence of the
// distributions they stand for, KL(expected || found), in nats. Rows are added one at a time and forgotten. One thread.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

// log of the sum of exp, in double.
double log_sum_exp(std::span<const float> logits);

// KL of two rows of logits; never below zero. NaN if a logit is NaN.
double divergence(std::span<const float> expected, std::span<const float> found);

struct LogitDistance {
  int64_t rows = 0;
  double largest_difference = 0;  // of any logit
  double largest_expected = 0;    // |logit|
  double kl_sum = 0, kl_max = 0;
  bool finite = true;  // nothing found was NaN or infinite

  void add(std::span<const float> expected, std::span<const float> found);
  double relative_difference() const {
    return largest_expected > 0 ? largest_difference / largest_expected : largest_difference;
  }
  double kl_mean() const { return rows > 0 ? kl_sum / static_cast<double>(rows) : 0; }
};

}  // namespace millrace

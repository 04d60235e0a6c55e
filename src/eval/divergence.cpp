#include "eval/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace millrace {

double log_sum_exp(std::span<const float> logits) {
  CHECK(!logits.empty());
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

double divergence(std::span<const float> expected, std::span<const float> found) {
  CHECK(expected.size() == found.size(), "{} logits against {}", expected.size(), found.size());
  const double expected_sum = log_sum_exp(expected), found_sum = log_sum_exp(found);
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double p = static_cast<double>(expected[i]) - expected_sum, q = static_cast<double>(found[i]) - found_sum;
    if (!std::isinf(p)) sum += std::exp(p) * (p - q);
  }
  return sum < 0 ? 0 : sum;  // rounding; a NaN stays one
}

void LogitDistance::add(std::span<const float> expected, std::span<const float> found) {
  ++rows;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(found[i])) finite = false;
    largest_difference =
        std::max(largest_difference, std::abs(static_cast<double>(expected[i]) - static_cast<double>(found[i])));
    largest_expected = std::max(largest_expected, std::abs(static_cast<double>(expected[i])));
  }
  const double kl = divergence(expected, found);
  kl_sum += kl;
  kl_max = std::max(kl_max, kl);
}

}  // namespace millrace

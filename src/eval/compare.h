// Compare: two models, or one in two formats or on two backends, on the same text: how far their distributions are
// apart (KL of the base from the variant, in nats), how often they would choose another token, and what it does to
// perplexity. Rows are compared as they come and forgotten; what is kept is a number a token. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/executor.h"
#include "eval/perplexity.h"

namespace millrace {

struct DepthShare {
  int32_t from = 0, to = 0;  // positions
  int64_t tokens = 0, flips = 0;
  double kl_sum = 0;
};

struct Comparison {
  int64_t tokens = 0, flips = 0;  // flips: another most likely token
  std::vector<float> kl;          // of each token, ascending
  double kl_sum = 0;
  double base_surprise = 0, variant_surprise = 0;  // sums
  double difference_squares = 0;                   // of variant less base
  std::vector<DepthShare> depths;

  double kl_mean() const { return tokens > 0 ? kl_sum / static_cast<double>(tokens) : 0; }
  double kl_error() const;           // standard error of the mean
  double kl_at(double share) const;  // percentile: 0.99
  double flip_share() const { return tokens > 0 ? static_cast<double>(flips) / static_cast<double>(tokens) : 0; }
  double base_perplexity() const;
  double variant_perplexity() const;
  // exp(mean difference) - 1, and its standard error: tokens are compared in pairs, so much less noise than of each
  // alone.
  double perplexity_change() const;
  double perplexity_change_error() const;
};

// Both executors take steps of the same rows and have room for logits of each of them; their vocabularies are equal.
Result<Comparison> compare_models(Executor& base, Executor& variant, std::span<const ScoredText> texts,
                                  const std::function<bool(int64_t tokens)>& progress);

}  // namespace millrace

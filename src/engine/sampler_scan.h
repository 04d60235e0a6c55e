// Passes over a whole row of logits, for vocabularies of 100,000 and more: one loop each, no allocation, no branch on
// values in the inner loop, so that compilers vectorise them. Sums run over fixed lanes in the order of ids: the result
// depends on the row and nothing else. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "base/token.h"

namespace millrace {

struct Candidate {
  Token id = 0;
  float logit = 0;
};

// The one order of candidates: larger logit first, then the lower id.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The largest logit, first of equals. An error if one is NaN or +infinity, or if none is above -infinity; -infinity
// itself means "never".
Result<Candidate> find_largest(std::span<const float> logits);

// With w = exp((logit - largest) * inverse_temperature): the sum of w, and of w * (logit - largest). Weights below
// 2^-126 count as nothing.
struct WeightSums {
  double weight = 0;
  double weighted_logit = 0;
};
WeightSums sum_weights(std::span<const float> logits, float largest, float inverse_temperature);

// Standard deviation of the logits that are above -infinity.
double standard_deviation(std::span<const float> logits);

// The k likeliest, in order, into `out` (its capacity is kept).
void select_largest(std::span<const float> logits, size_t k, std::vector<Candidate>& out);

// Where the race can be decided: fills `out` with the tokens that may arrive before all others, ascending. Token i of
// weight w = exp((logit - largest) * inverse_temperature) arrives at -log(1 - u_i) / w, u_i being uniform of draw
// number i. By vectors of `width` bytes, the same to the bit for each of race_widths(); 0 takes the widest.
void race_candidates(std::span<const float> logits, float largest, float inverse_temperature, const Draw& draw,
                     std::vector<Candidate>& out, int width = 0);
std::vector<int> race_widths();

// exp(x) for x <= 0 to 2e-7, zero below -87. Branch-free.
float fast_exp(float x);

}  // namespace millrace

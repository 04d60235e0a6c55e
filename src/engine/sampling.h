// Sampling: how the next token is chosen from the model's logits, as plain values with their ranges. The defaults leave
// the model's own distribution untouched; what a command or an endpoint takes as its defaults is its own business.
// Checked once by check_sampling(), then immutable; any thread.
//
// There is one order, the same for every front end and backend:
//
//   1  logit bias, then banned tokens and     what the caller says about single tokens comes before every rule
//      what a constraint does not allow
//   2  repetition, frequency, presence       over the last penalty_window tokens of prompt and answer
//   3  DRY                                   against continuing a repetition
//   4  top-n-sigma                           \.
//   5  top-k                                  |  each sees what the one before it left, renormalised, at temperature 1:
//   6  typical                                |  what counts as unlikely does not change with the temperature
//   7  top-p                                  |
//   8  min-p                                 /
//   9  XTC                                   takes from the top what the others left
//  10  temperature                           0 takes the largest logit left, ties to the lowest id
//  11  the draw
//
// This is the order llama.cpp has by default, so its parameter sets mean the same here. With mirostat, steps 4 to 9 are
// replaced by its own rule, which comes after the temperature.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/token.h"

namespace millrace {

struct LogitBias {
  Token token = 0;
  float bias = 0;
};

struct Sampling {
  double temperature = 1;      // 0 .. 100; 0: greedy
  double top_n_sigma = 0;      // keeps logits within n standard deviations of the largest; 0: off, else up to 100
  int32_t top_k = 0;           // keeps the k likeliest; 0: off
  double typical = 1;          // 0 < p <= 1: keeps the most typical tokens up to this mass; 1: off
  double top_p = 1;            // 0 < p <= 1: keeps the likeliest tokens up to this mass; 1: off
  double min_p = 0;            // 0 .. 1: keeps tokens at least this likely compared with the likeliest; 0: off
  double xtc_probability = 0;  // 0 .. 1: how often XTC acts; 0: off
  double xtc_threshold =
      0.1;  // 0 .. 1: of the tokens at least this likely all but the least likely go; over 0.5 nothing happens

  int32_t penalty_window = 64;  // tokens the three penalties look back over, prompt included; 0: none, -1: all
  double repetition = 1;  // 0 < r <= 100: positive logits of seen tokens are divided by it, negative multiplied; 1: off
  double presence = 0;    // -100 .. 100: taken from the logit of a token that was seen
  double frequency = 0;   // -100 .. 100: taken once for every time it was seen

  double dry_multiplier = 0;  // 0 .. 100; 0: off
  double dry_base = 1.75;     // 1 .. 100: penalty = multiplier * base ^ (length of the repetition - allowed length)
  int32_t dry_allowed_length = 2;        // >= 1: shorter repetitions are free
  int32_t dry_window = -1;               // tokens looked back over; 0: none, -1: all
  std::vector<Token> dry_breakers = {};  // no repetition reaches across these, and they are never punished

  int32_t mirostat = 0;       // 0: off, 2: version 2
  double mirostat_tau = 5;    // 0 < tau <= 100: the surprise aimed at, in bits
  double mirostat_eta = 0.1;  // 0 < eta <= 1: how fast it is steered there

  std::vector<LogitBias> bias = {};  // -1000 .. 1000 each, added to the logit
  std::vector<Token> banned = {};    // never chosen
  uint64_t seed = 0;
};

// Refuses values outside the ranges above, and token ids outside [0, vocab), naming the parameter.
Result<void> check_sampling(const Sampling& sampling, int32_t vocab);

// Whether the token is always the one of the largest logit, as the model gave them.
bool takes_largest(const Sampling& sampling);

}  // namespace millrace

// The fields that say how tokens are chosen: rows for the table of every interface that has them, under the names
// sampling_values() knows. Constant; any thread.
#pragma once

#include <array>

#include "engine/fill.h"
#include "server/schema.h"

namespace millrace {

// For the given bodies of a table.
constexpr auto sampling_fields(unsigned bodies) {
  using enum Shape;
  constexpr double kUnbounded = 1 << 30, kMostFill = 1 << 20;
  return std::to_array<Field>({
      {"temperature", bodies, number, 0, 100, "0.8", "0 always takes the likeliest token"},
      {"top_p", bodies, number, 0, 1, "0.95", "keep the likeliest tokens up to this probability"},
      {"top_k", bodies, integer, -1, kUnbounded, "40", "keep the k likeliest tokens; 0 or -1: all"},
      {"min_p", bodies, number, 0, 1, "0.05", "keep tokens at least this likely compared with the likeliest"},
      {"typical_p", bodies, number, 0, 1, "1", "keep the most typical tokens up to this probability"},
      {"top_n_sigma", bodies, number, -1, 100, "0",
       "keep logits within so many standard deviations of the largest; 0 or -1: all"},
      {"xtc_probability", bodies, number, 0, 1, "0", "how often XTC removes the likeliest tokens"},
      {"xtc_threshold", bodies, number, 0, 1, "0.1", "XTC: of tokens at least this likely only the last stays"},
      {"presence_penalty", bodies, number, -100, 100, "0", "taken from the logit of a token that was seen"},
      {"frequency_penalty", bodies, number, -100, 100, "0", "taken for every time it was seen"},
      {"repetition_penalty", bodies, number, 0.01, 100, "1", "divides the logits of tokens seen"},
      {"repeat_penalty", bodies, number, 0.01, 100, "1", "another name of `repetition_penalty`"},
      {"repeat_last_n", bodies, integer, -1, kUnbounded, "-1", "tokens the three penalties look back over; -1: all"},
      {"dry_multiplier", bodies, number, 0, 100, "0", "strength of the penalty on continued repetitions"},
      {"dry_base", bodies, number, 1, 100, "1.75", "DRY: growth of the penalty with the length of the repetition"},
      {"dry_allowed_length", bodies, integer, 1, kUnbounded, "2", "DRY: shorter repetitions are free"},
      {"dry_penalty_last_n", bodies, integer, -1, kUnbounded, "-1", "DRY: tokens looked back over; -1: all"},
      {"dry_sequence_breakers", bodies, texts, 0, 32, R"(["\n", ":", "\"", "*"])",
       "DRY: no repetition reaches across these texts"},
      {"mirostat", bodies, integer, 0, 2, "0", "2: keep the surprise of the text steady; 1 is not built"},
      {"mirostat_tau", bodies, number, 0.01, 100, "5", "mirostat: the surprise aimed at, in bits"},
      {"mirostat_eta", bodies, number, 0.0001, 1, "0.1", "mirostat: how fast it is steered there"},
      {"logit_bias", bodies, bias, -1000, 1000, "", "token ids and what is added to their logits; at most 1024"},
      {"diffusion_steps", bodies, integer, 0, kMostFill, "0",
       "models that fill masks: passes over the answer; 0: one for every two tokens"},
      {"block_length", bodies, integer, 0, kMostFill, "0",
       "models that fill masks: fill so many tokens at a time and keep what is finished (frozen); 0: exact, everything "
       "is computed in every pass"},
      {.name = "remasking",
       .bodies = bodies,
       .shape = text,
       .least = 1,
       .most = 16,
       .otherwise = R"("confidence")",
       .help = "models that fill masks: which positions a pass fills first: confidence, entropy, margin or order",
       .choices = kRemaskings},
      {"seed", bodies, integer, -9e18, 9e18, "", "the same seed gives the same answer; without it, or -1: a new one"},
  });
}

// Rows one after another.
template <size_t... Counts>
constexpr auto joined(const std::array<Field, Counts>&... lists) {
  std::array<Field, (Counts + ...)> all;
  size_t next = 0;
  auto add = [&](const auto& list) {
    for (const Field& field : list) all[next++] = field;
  };
  (add(lists), ...);
  return all;
}

}  // namespace millrace

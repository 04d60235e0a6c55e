#include "engine/sampling.h"

#include <string_view>

namespace millrace {
namespace {

struct Range {
  std::string_view name;
  double value;
  double low, high;
  bool open_low = false;  // low itself is not allowed
};

Result<void> check_range(const Range& range) {
  // Written so that a NaN fails.
  bool high_enough = range.open_low ? range.value > range.low : range.value >= range.low;
  if (high_enough && range.value <= range.high) return {};
  return error(Code::invalid, "{} is {}, but must be {} {} and at most {}", range.name, range.value,
               range.open_low ? "above" : "at least", range.low, range.high);
}

Result<void> check_token(std::string_view name, Token token, int32_t vocab) {
  if (token >= 0 && token < vocab) return {};
  return error(Code::invalid, "{} names token {}, but the model's tokens are 0 to {}", name, token, vocab - 1);
}

}  // namespace

Result<void> check_sampling(const Sampling& s, int32_t vocab) {
  constexpr double kMany = 1 << 30;
  const Range ranges[] = {
      {"temperature", s.temperature, 0, 100},
      {"top_n_sigma", s.top_n_sigma, 0, 100},
      {"top_k", static_cast<double>(s.top_k), 0, kMany},
      {"typical", s.typical, 0, 1, true},
      {"top_p", s.top_p, 0, 1, true},
      {"min_p", s.min_p, 0, 1},
      {"xtc_probability", s.xtc_probability, 0, 1},
      {"xtc_threshold", s.xtc_threshold, 0, 1},
      {"penalty_window", static_cast<double>(s.penalty_window), -1, kMany},
      {"repetition_penalty", s.repetition, 0, 100, true},
      {"presence_penalty", s.presence, -100, 100},
      {"frequency_penalty", s.frequency, -100, 100},
      {"dry_multiplier", s.dry_multiplier, 0, 100},
      {"dry_base", s.dry_base, 1, 100},
      {"dry_allowed_length", static_cast<double>(s.dry_allowed_length), 1, kMany},
      {"dry_window", static_cast<double>(s.dry_window), -1, kMany},
      {"mirostat_tau", s.mirostat_tau, 0, 100, true},
      {"mirostat_eta", s.mirostat_eta, 0, 1, true},
  };
  for (const Range& range : ranges) TRY_VOID(check_range(range));
  if (s.mirostat != 0 && s.mirostat != 2) {
    return error(Code::invalid, "mirostat is {}, but only 0 (off) and 2 (version 2) exist", s.mirostat);
  }
  for (const LogitBias& bias : s.bias) {
    TRY_VOID(check_token("logit_bias", bias.token, vocab));
    TRY_VOID(check_range({"logit_bias", bias.bias, -1000, 1000}));
  }
  for (Token token : s.banned) TRY_VOID(check_token("banned tokens", token, vocab));
  for (Token token : s.dry_breakers) TRY_VOID(check_token("dry_breakers", token, vocab));
  return {};
}

bool takes_largest(const Sampling& s) {
  const bool unpunished = s.penalty_window == 0 || (s.repetition == 1 && s.presence == 0 && s.frequency == 0);
  return s.temperature <= 0 && s.typical >= 1 && s.xtc_probability <= 0 && unpunished && s.dry_multiplier <= 0 &&
         s.bias.empty() && s.banned.empty();
}

}  // namespace millrace

#include "engine/sampler_penalty.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

std::span<const Token> last(std::span<const Token> context, int32_t window) {
  if (window < 0 || static_cast<size_t>(window) >= context.size()) return context;
  return context.last(static_cast<size_t>(window));
}

// For the reversed context r: matches[i] = length of the longest common start of r and r[i..], at most `limit`. The Z
// algorithm: linear, because a match already known answers for the positions inside it.
void match_lengths(std::span<const Token> context, int32_t limit, std::vector<int32_t>& matches) {
  const int32_t size = static_cast<int32_t>(context.size());
  auto reversed = [&](int32_t i) { return context[static_cast<size_t>(size - 1 - i)]; };
  matches.assign(context.size(), 0);
  int32_t left = 0, right = 0;  // r[left, right) is the match that reaches furthest
  for (int32_t i = 1; i < size; ++i) {
    int32_t length = i < right ? std::min(right - i, matches[static_cast<size_t>(i - left)]) : 0;
    while (i + length < size && length < limit && reversed(length) == reversed(i + length)) ++length;
    matches[static_cast<size_t>(i)] = length;
    if (i + length > right) left = i, right = i + length;
  }
}

}  // namespace

void apply_penalties(const Sampling& sampling, std::span<const Token> context, std::span<float> logits,
                     std::span<uint32_t> counts) {
  if (sampling.repetition == 1 && sampling.presence == 0 && sampling.frequency == 0) return;
  std::span<const Token> window = last(context, sampling.penalty_window);
  auto known = [&](Token token) { return token >= 0 && static_cast<size_t>(token) < logits.size(); };
  for (Token token : window) {
    if (known(token)) ++counts[static_cast<size_t>(token)];
  }
  const float repetition = static_cast<float>(sampling.repetition);
  for (Token token : window) {
    if (!known(token) || counts[static_cast<size_t>(token)] == 0) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    logit -= static_cast<float>(counts[static_cast<size_t>(token)] * sampling.frequency + sampling.presence);
    counts[static_cast<size_t>(token)] = 0;
  }
}

void apply_dry(const Sampling& sampling, std::span<const Token> context, std::span<float> logits,
               std::vector<int32_t>& matches, std::vector<std::pair<Token, int32_t>>& repeats) {
  if (sampling.dry_multiplier <= 0) return;
  std::span<const Token> window = last(context, sampling.dry_window);
  const int32_t size = static_cast<int32_t>(window.size());
  auto breaks = [&](Token token) {
    return std::binary_search(sampling.dry_breakers.begin(), sampling.dry_breakers.end(), token);
  };
  // A repetition can be no longer than the unbroken end of the context.
  int32_t limit = 0;
  while (limit < size && !breaks(window[static_cast<size_t>(size - 1 - limit)])) ++limit;
  if (limit < sampling.dry_allowed_length) return;
  match_lengths(window, limit, matches);
  repeats.clear();
  for (int32_t i = 1; i < size; ++i) {
    int32_t length = matches[static_cast<size_t>(i)];
    if (length < sampling.dry_allowed_length) continue;
    Token next = window[static_cast<size_t>(size - i)];  // followed the earlier occurrence
    if (next >= 0 && static_cast<size_t>(next) < logits.size() && !breaks(next)) repeats.emplace_back(next, length);
  }
  // By token, longest first: the first of each token counts.
  std::sort(repeats.begin(), repeats.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  constexpr double kMost = 1e30;  // keeps logits finite however long the repetition
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (i > 0 && repeats[i].first == repeats[i - 1].first) continue;
    double over = repeats[i].second - sampling.dry_allowed_length;
    double penalty = std::min(kMost, sampling.dry_multiplier * std::pow(sampling.dry_base, over));
    logits[static_cast<size_t>(repeats[i].first)] -= static_cast<float>(penalty);
  }
}

}  // namespace millrace

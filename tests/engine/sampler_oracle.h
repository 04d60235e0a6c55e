// What every sampling step means, written the slow way: whole distributions in double, full sorts, no shortcuts. The
// tests hold the sampler to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "engine/sampling.h"

namespace millrace::oracle {

using Distribution = std::map<Token, double>;  // probability by token; absent: never

inline Distribution normalised(const std::map<Token, double>& logits, double temperature = 1) {
  Distribution p;
  double top = -1e300, sum = 0;
  for (auto [id, logit] : logits) top = std::max(top, logit);
  for (auto [id, logit] : logits) sum += p[id] = std::exp((logit - top) / temperature);
  for (auto& [id, value] : p) value /= sum;
  return p;
}

inline std::vector<Token> by_probability(const Distribution& p) {
  std::vector<Token> order;
  for (auto [id, value] : p) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return p.at(a) > p.at(b); });
  return order;
}

inline std::vector<Token> until_mass(const std::vector<Token>& order, const Distribution& p, double mass) {
  std::vector<Token> kept;
  double sum = 0;
  for (Token id : order) {
    kept.push_back(id);
    if ((sum += p.at(id)) >= mass) break;
  }
  return kept;
}

inline void keep(std::map<Token, double>& logits, const std::vector<Token>& kept) {
  std::set<Token> stay(kept.begin(), kept.end());
  std::erase_if(logits, [&](const auto& entry) { return !stay.contains(entry.first); });
}

// Length of the longest repetition that each token would continue, by comparing every earlier place token by token.
inline std::map<Token, int> repetitions(std::span<const Token> context, const std::set<Token>& breakers) {
  std::map<Token, int> longest;
  int size = static_cast<int>(context.size());
  for (int end = 0; end + 1 < size; ++end) {
    int length = 0;
    while (length <= end) {
      Token earlier = context[static_cast<size_t>(end - length)], now = context[static_cast<size_t>(size - 1 - length)];
      if (earlier != now || breakers.contains(now)) break;
      ++length;
    }
    Token next = context[static_cast<size_t>(end + 1)];
    if (!breakers.contains(next)) longest[next] = std::max(longest[next], length);
  }
  return longest;
}

inline std::map<Token, double> adjusted(const Sampling& s, std::span<const float> raw, std::span<const Token> context) {
  std::map<Token, double> logits;
  for (size_t id = 0; id < raw.size(); ++id) logits[static_cast<Token>(id)] = raw[id];
  for (auto& bias : s.bias) logits[bias.token] += bias.bias;
  auto window = [&](int32_t tokens) {
    size_t count = tokens < 0 ? context.size() : std::min(context.size(), static_cast<size_t>(tokens));
    return context.last(count);
  };
  std::map<Token, int> seen;
  for (Token token : window(s.penalty_window)) ++seen[token];
  for (auto [token, count] : seen) {
    double& logit = logits[token];
    logit = logit > 0 ? logit / s.repetition : logit * s.repetition;
    logit -= count * s.frequency + s.presence;
  }
  if (s.dry_multiplier > 0) {
    std::set<Token> breakers(s.dry_breakers.begin(), s.dry_breakers.end());
    for (auto [token, length] : repetitions(window(s.dry_window), breakers)) {
      if (length >= s.dry_allowed_length) {
        logits[token] -= s.dry_multiplier * std::pow(s.dry_base, length - s.dry_allowed_length);
      }
    }
  }
  for (Token token : s.banned) logits.erase(token);
  return logits;
}

// The distribution of the next token; `xtc` says whether XTC's coin came up.
inline Distribution distribution(const Sampling& s, std::span<const float> raw, std::span<const Token> context,
                                 bool xtc) {
  std::map<Token, double> logits = adjusted(s, raw, context);
  if (s.top_n_sigma > 0) {
    double count = static_cast<double>(logits.size()), mean = 0, square = 0, top = -1e300;
    for (auto [id, logit] : logits) mean += logit / count, top = std::max(top, logit);
    for (auto [id, logit] : logits) square += (logit - mean) * (logit - mean) / count;
    std::erase_if(logits, [&](const auto& entry) { return entry.second < top - s.top_n_sigma * std::sqrt(square); });
  }
  if (s.top_k > 0) {
    std::vector<Token> order = by_probability(normalised(logits));
    order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
    keep(logits, order);
  }
  if (s.typical < 1) {
    Distribution p = normalised(logits);
    double entropy = 0;
    for (auto [id, value] : p) entropy -= value * std::log(value);
    std::vector<Token> order = by_probability(p);
    std::sort(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) {
      return std::abs(-std::log(p[a]) - entropy) < std::abs(-std::log(p[b]) - entropy);
    });
    keep(logits, until_mass(order, p, s.typical));
  }
  if (s.top_p < 1) {
    Distribution p = normalised(logits);
    keep(logits, until_mass(by_probability(p), p, s.top_p));
  }
  if (s.min_p > 0) {
    Distribution p = normalised(logits);
    double top = p[by_probability(p).front()];
    std::erase_if(logits, [&](const auto& entry) { return p[entry.first] < s.min_p * top; });
  }
  if (xtc && s.xtc_threshold <= 0.5) {
    Distribution p = normalised(logits);
    std::vector<Token> order = by_probability(p);
    for (size_t i = 0; i + 1 < order.size() && p[order[i + 1]] >= s.xtc_threshold; ++i) logits.erase(order[i]);
  }
  return normalised(logits, s.temperature);
}

// Pearson's statistic of counts against probabilities, cells expected to hold less than 5 put together; true if it is
// no larger than chance makes it in 9,999 of 10,000 cases.
inline bool fits(const std::map<Token, int>& counts, const Distribution& p, int draws) {
  double statistic = 0, rest_expected = 0, rest_seen = 0;
  int cells = 0;
  for (auto [id, count] : counts) {
    if (!p.contains(id)) return false;
  }
  for (auto [id, value] : p) {
    double expected = value * draws, seen = counts.contains(id) ? counts.at(id) : 0;
    if (expected < 5) {
      rest_expected += expected, rest_seen += seen;
      continue;
    }
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  }
  if (rest_expected > 0) {
    double floor = std::max(rest_expected, 1.0);
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / floor;
    ++cells;
  }
  double freedom = std::max(1, cells - 1);
  // Wilson and Hilferty's cube: the 0.9999 quantile of chi-square.
  double cube = 1 - 2 / (9 * freedom) + 3.719 * std::sqrt(2 / (9 * freedom));
  return statistic <= freedom * cube * cube * cube;
}

inline std::vector<float> random_logits(size_t vocab, uint32_t seed, float spread = 2) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

}  // namespace millrace::oracle

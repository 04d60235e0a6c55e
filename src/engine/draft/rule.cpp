#include "engine/draft/rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/draft/drafter.h"

namespace millrace {
namespace {

constexpr uint32_t kCoinDraw = 0xFFFFFFFE;  // tokens' own draws are below 2^31, XTC has the last
constexpr uint32_t kOtherDraws = 1U << 31;  // and what is drawn instead of a guess lies above
constexpr double kEpsilon = 0.09, kDelta = 0.3;

double chance(std::span<const TokenProbability> odds, Token token) {
  const auto found = std::lower_bound(odds.begin(), odds.end(), token,
                                      [](const TokenProbability& entry, Token id) { return entry.id < id; });
  return found != odds.end() && found->id == token ? found->probability : 0;
}

// A race among what p has above q, with numbers of its own; -1: there is nothing.
Token draw_above(std::span<const TokenProbability> p, std::span<const TokenProbability> q, Token certain, Draw draw) {
  Token winner = -1;
  double first = std::numeric_limits<double>::infinity();
  size_t other = 0;
  for (const TokenProbability& entry : p) {
    while (other < q.size() && q[other].id < entry.id) ++other;
    double taken = entry.id == certain ? 1 : 0;
    if (other < q.size() && q[other].id == entry.id) taken = q[other].probability;
    const double above = entry.probability - taken;
    if (!(above > 0)) continue;
    draw.draw = kOtherDraws + static_cast<uint32_t>(entry.id);
    const double arrival = -std::log1p(-uniform(draw)) / above;
    if (arrival < first) {
      first = arrival;
      winner = entry.id;
    }
  }
  return winner;
}

}  // namespace

std::string_view rule_name(DraftRule rule) {
  switch (rule) {
    case DraftRule::exact:
      return "exact";
    case DraftRule::reject:
      return "reject";
    case DraftRule::typical:
      return "typical";
  }
  return "";
}

Result<DraftRule> rule_named(std::string_view name) {
  for (const DraftRule rule : {DraftRule::exact, DraftRule::reject, DraftRule::typical})
    if (rule_name(rule) == name) return rule;
  return error(Code::invalid, "no rule '{}' for guesses: take exact, reject or typical", name);
}

Result<void> check_rule(DraftRule rule, const Drafter& drafter) {
  if (rule == DraftRule::exact || drafter.repeats_itself()) return {};
  return error(Code::invalid,
               "what {} guesses depends on other requests, and by rule {} an answer would too: guess with ngram or a "
               "draft model, or keep to rule exact",
               drafter.name(), rule_name(rule));
}

Token take_or_reject(std::span<const TokenProbability> p, std::span<const TokenProbability> q, Token guess,
                     const Draw& at) {
  double guessed = chance(q, guess);
  const bool certain = !(guessed > 0);
  if (certain) guessed = 1;
  Draw coin = at;
  coin.draw = kCoinDraw;
  if (uniform(coin) * guessed < chance(p, guess)) return guess;
  const Token other = certain ? draw_above(p, {}, guess, at) : draw_above(p, q, -1, at);
  // Nothing lies above only where p is q up to rounding.
  return other >= 0 ? other : guess;
}

bool is_typical(std::span<const TokenProbability> p, Token guess) {
  double entropy = 0;
  for (const TokenProbability& entry : p)
    if (entry.probability > 0) entropy -= entry.probability * std::log(entry.probability);
  return chance(p, guess) > std::min(kEpsilon, kDelta * std::exp(-entropy));
}

}  // namespace millrace

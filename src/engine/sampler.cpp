#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "engine/sampler_penalty.h"
#include "engine/sampler_run.h"

namespace millrace {
namespace {

constexpr uint32_t kXtcDraw = 0xFFFFFFFF;  // token ids are below 2^31, so this number is nobody's
constexpr size_t kFirstGuess = 128;        // how many candidates a search for a mass begins with

// Masked last, which comes to the same as first, as for bans.
void keep_allowed(const TokenMask& mask, std::span<float> logits) {
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    uint64_t bits = word < mask.words.size() ? ~mask.words[word] : ~uint64_t{0};
    const size_t end = std::min(logits.size(), word * 64 + 64);
    if (bits == ~uint64_t{0}) {
      std::fill(logits.begin() + static_cast<long>(word * 64), logits.begin() + static_cast<long>(end), kNever);
      continue;
    }
    for (; bits != 0; bits &= bits - 1) {
      const size_t id = word * 64 + static_cast<size_t>(std::countr_zero(bits));
      if (id < end) logits[id] = kNever;
    }
  }
}

}  // namespace

Result<void> SampleRun::adjust(std::span<const float> logits, std::span<const Token> context,
                               std::span<const Token> banned_now, const TokenMask* mask) {
  CHECK(logits.size() == scratch_.logits_.size(), "{} logits, scratch for {}", logits.size(), scratch_.logits_.size());
  TRY_VOID(find_largest(logits));  // NaN must not hide behind a ban
  std::copy(logits.begin(), logits.end(), scratch_.logits_.begin());
  change(context, banned_now);
  if (mask != nullptr) keep_allowed(*mask, scratch_.logits_);
  TRY(largest_, find_largest(scratch_.logits_));
  return {};
}

void SampleRun::change(std::span<const Token> context, std::span<const Token> banned_now) {
  std::vector<float>& own = scratch_.logits_;
  for (const LogitBias& bias : s_.bias) own[static_cast<size_t>(bias.token)] += bias.bias;
  apply_penalties(s_, context, own, scratch_.counts_);
  apply_dry(s_, context, own, scratch_.matches_, scratch_.repeats_);
  // Banned last, which comes to the same as first, because nothing raises -infinity.
  for (Token token : s_.banned) own[static_cast<size_t>(token)] = kNever;
  for (Token token : banned_now) {
    if (token >= 0 && token < scratch_.vocab()) own[static_cast<size_t>(token)] = kNever;
  }
}

template <class F>
void SampleRun::for_each(F body) const {
  if (dense_) {
    for (size_t id = 0; id < scratch_.logits_.size(); ++id) {
      if (scratch_.logits_[id] > kNever) body(Candidate{static_cast<Token>(id), scratch_.logits_[id]});
    }
  } else {
    for (const Candidate& candidate : list_) body(candidate);
  }
}

double SampleRun::total() const {
  if (dense_) return sum_weights(scratch_.logits_, largest_.logit, 1).weight;
  double sum = 0;
  for (const Candidate& candidate : list_) sum += weight(candidate.logit);
  return sum;
}

void SampleRun::sort() {
  if (!sorted_) std::sort(list_.begin(), list_.end(), likelier);
  sorted_ = true;
}

void SampleRun::truncate(const Draw& draw) {
  if (s_.top_n_sigma > 0) keep_sigma();
  if (s_.top_k > 0) keep_top_k();
  truncate_further(draw);
}

void SampleRun::truncate_further(const Draw& draw) {
  if (s_.typical < 1) keep_typical();
  if (s_.top_p < 1) keep_top_p();
  truncate_last(draw);
}

void SampleRun::truncate_last(const Draw& draw) {
  if (s_.min_p > 0) keep_min_p(min_p_bar());
  if (s_.xtc_probability > 0 && s_.xtc_threshold <= 0.5) take_xtc(draw);
  // Typical and XTC may have removed the likeliest; weights far below the reference would vanish at low temperatures.
  if (!dense_) largest_ = *std::min_element(list_.begin(), list_.end(), likelier);
}

float SampleRun::min_p_bar() const {
  float top = largest_.logit;
  if (!dense_) top = std::min_element(list_.begin(), list_.end(), likelier)->logit;
  return static_cast<float>(top + std::log(s_.min_p));
}

// Keeps what is at or above `lowest`; the likeliest always is.
void SampleRun::keep_min_p(float lowest) {
  if (dense_) {
    list_.clear();
    for_each([&](const Candidate& candidate) {
      if (candidate.logit >= lowest) list_.push_back(candidate);
    });
    dense_ = false;
  } else {
    std::erase_if(list_, [&](const Candidate& candidate) { return candidate.logit < lowest; });
  }
}

void SampleRun::keep_sigma() {
  double deviation = standard_deviation(scratch_.logits_);
  keep_min_p(static_cast<float>(largest_.logit - s_.top_n_sigma * deviation));
}

void SampleRun::keep_top_k() {
  size_t k = static_cast<size_t>(s_.top_k);
  if (dense_) {
    if (k >= scratch_.logits_.size()) return;
    select_largest(scratch_.logits_, k, list_);
    dense_ = false;
    sorted_ = true;
  } else if (k < list_.size()) {
    sort();
    list_.resize(k);
  }
}

// How many candidates of the sorted list reach `mass` of `sum`; the list's size + 1 if all of them do not.
size_t SampleRun::count_to_mass(double mass, double sum) const {
  double wanted = mass * sum, so_far = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    so_far += weight(list_[i].logit);
    if (so_far >= wanted) return i + 1;
  }
  return list_.size() + 1;
}

void SampleRun::keep_top_p() {
  double sum = total();
  if (!dense_) {
    sort();
    list_.resize(std::min(count_to_mass(s_.top_p, sum), list_.size()));
    return;
  }
  // The mass is usually in few tokens: look at the likeliest, and at more only if that was not enough.
  for (size_t guess = kFirstGuess;; guess *= 8) {
    select_largest(scratch_.logits_, std::min(guess, scratch_.logits_.size()), list_);
    size_t kept = count_to_mass(s_.top_p, sum);
    if (kept > list_.size() && guess < scratch_.logits_.size()) continue;
    list_.resize(std::min(kept, list_.size()));
    break;
  }
  dense_ = false;
  sorted_ = true;
}

// Locally typical sampling (Meister et al., 2022): tokens in order of how far their surprise is from the entropy.
void SampleRun::keep_typical() {
  WeightSums sums;
  if (dense_) {
    sums = sum_weights(scratch_.logits_, largest_.logit, 1);
  } else {
    for (const Candidate& candidate : list_) {
      double w = weight(candidate.logit);
      sums.weight += w;
      sums.weighted_logit += w * static_cast<double>(candidate.logit - largest_.logit);
    }
  }
  // surprise - entropy = (log Z - l) - (log Z - mean l) = mean l - l, with l relative to the largest.
  double mean = sums.weighted_logit / sums.weight;
  std::vector<float>& keys = scratch_.keys_;
  std::fill(keys.begin(), keys.end(), kNever);
  size_t left = 0;
  for_each([&](const Candidate& candidate) {
    keys[static_cast<size_t>(candidate.id)] =
        -static_cast<float>(std::abs(mean - static_cast<double>(candidate.logit - largest_.logit)));
    ++left;
  });
  double wanted = s_.typical * sums.weight;
  for (size_t guess = kFirstGuess;; guess *= 8) {
    select_largest(keys, std::min(guess, left), scratch_.selection_);
    double so_far = 0;
    size_t kept = 0;
    list_.clear();
    while (kept < scratch_.selection_.size() && so_far < wanted) {
      Token id = scratch_.selection_[kept++].id;
      list_.push_back({id, scratch_.logits_[static_cast<size_t>(id)]});
      so_far += weight(list_.back().logit);
    }
    if (so_far >= wanted || guess >= left) break;
  }
  dense_ = false;
  sorted_ = false;
}

void SampleRun::take_xtc(const Draw& draw) {
  Draw coin = draw;
  coin.draw = kXtcDraw;
  if (uniform(coin) >= s_.xtc_probability) return;
  // Probability >= threshold, as a bar on the logit.
  double bar = std::log(s_.xtc_threshold * total());
  auto above = [&](const Candidate& c) { return static_cast<double>(c.logit - largest_.logit) >= bar; };
  bool found = false;
  Candidate least;
  for_each([&](const Candidate& candidate) {
    if (above(candidate) && (!found || likelier(least, candidate))) least = candidate, found = true;
  });
  if (!found) return;
  auto goes = [&](const Candidate& c) { return above(c) && c.id != least.id; };
  if (dense_) {
    for (size_t id = 0; id < scratch_.logits_.size(); ++id) {
      if (goes({static_cast<Token>(id), scratch_.logits_[id]})) scratch_.logits_[id] = kNever;
    }
    largest_ = find_largest(scratch_.logits_).value();  // `least` is still there
  } else {
    std::erase_if(list_, goes);
  }
}

void SampleRun::truncate_mirostat(double mu) {
  // Surprise <= mu, as a bar on the logit: l / T >= log Z - mu * ln 2.
  double inverse = 1 / s_.temperature;
  double sum = sum_weights(scratch_.logits_, largest_.logit, static_cast<float>(inverse)).weight;
  double bar = s_.temperature * (std::log(sum) - mu * std::log(2.0));
  keep_min_p(std::min(largest_.logit, static_cast<float>(largest_.logit + bar)));
}

double SampleRun::surprise(Token token) const {
  double inverse = 1 / s_.temperature;
  double sum = sum_weights(scratch_.logits_, largest_.logit, static_cast<float>(inverse)).weight;
  double below = static_cast<double>(scratch_.logits_[static_cast<size_t>(token)] - largest_.logit);
  return (std::log(sum) - below * inverse) / std::log(2.0);
}

Token SampleRun::race(Draw draw) {
  if (dense_) {
    race_candidates(scratch_.logits_, largest_.logit, static_cast<float>(1 / s_.temperature), draw, list_);
    dense_ = false;
  }
  return race_list(draw).winner;
}

SampleRun::Finish SampleRun::race_list(Draw draw) const {
  Finish finish = {largest_.id, std::numeric_limits<double>::infinity()};
  for (const Candidate& candidate : list_) {
    draw.draw = static_cast<uint32_t>(candidate.id);
    double arrival = -std::log1p(-uniform(draw)) / tempered(candidate.logit);
    if (arrival < finish.time || (arrival == finish.time && candidate.id < finish.winner))
      finish = {candidate.id, arrival};
  }
  return finish;
}

std::vector<TokenProbability> SampleRun::distribution() const {
  std::vector<TokenProbability> result;
  double sum = 0;
  for_each([&](const Candidate& candidate) {
    double w = tempered(candidate.logit);
    if (w > 0) result.push_back({candidate.id, w});
    sum += w;
  });
  for (TokenProbability& entry : result) entry.probability /= sum;
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return result;
}

SamplerScratch::SamplerScratch(int32_t vocab)
    : logits_(static_cast<size_t>(vocab)), keys_(static_cast<size_t>(vocab)), counts_(static_cast<size_t>(vocab)) {}

int64_t SamplerScratch::bytes() const {
  size_t bytes = logits_.capacity() * sizeof(float) + keys_.capacity() * sizeof(float) +
                 counts_.capacity() * sizeof(uint32_t) +
                 (candidates_.capacity() + selection_.capacity()) * sizeof(Candidate) +
                 matches_.capacity() * sizeof(int32_t) + repeats_.capacity() * sizeof(repeats_[0]);
  return static_cast<int64_t>(bytes);
}

Sampler::Sampler(const Sampling& sampling, uint32_t choice) : sampling_(sampling), choice_(choice) {
  std::sort(sampling_.dry_breakers.begin(), sampling_.dry_breakers.end());
}

Result<Sampler> Sampler::create(const Sampling& sampling, int32_t vocab, uint32_t choice) {
  TRY_VOID(check_sampling(sampling, vocab));
  return Sampler(sampling, choice);
}

std::optional<double> Sampler::bar(size_t position) const {
  if (!uses_mirostat()) return std::nullopt;
  return mu_at(position);
}

void Sampler::resume(size_t position, double bar) {
  first_ = position;
  mus_ = {bar};
}

double Sampler::mu_at(size_t position) const {
  if (mus_.empty() || position < first_) return 2 * sampling_.mirostat_tau;
  return mus_[std::min(position - first_, mus_.size() - 1)];
}

Result<Token> Sampler::choose(SampleRun& run, std::span<const float> logits, std::span<const Token> context,
                              std::span<const Token> banned_now, const TokenMask* mask) const {
  const Sampling& s = sampling_;
  Draw draw{s.seed, choice_, static_cast<uint32_t>(context.size()), 0};
  TRY_VOID(run.adjust(logits, context, banned_now, mask));
  if (uses_mirostat()) {
    run.truncate_mirostat(mu_at(context.size()));
    return run.race(draw);
  }
  // Only these two steps can remove the likeliest token.
  bool top_stays = s.typical >= 1 && s.xtc_probability <= 0;
  if (s.temperature <= 0 && (s.mirostat == 2 || top_stays)) return run.greedy();
  run.truncate(draw);
  return s.temperature <= 0 ? run.greedy() : run.race(draw);
}

Result<Token> Sampler::guess(std::span<const float> logits, std::span<const Token> context, SamplerScratch& scratch,
                             std::span<const Token> banned_now) const {
  SampleRun run(sampling_, scratch);
  return choose(run, logits, context, banned_now, nullptr);
}

Result<Token> Sampler::sample(std::span<const float> logits, std::span<const Token> context, SamplerScratch& scratch,
                              std::span<const Token> banned_now, const TokenMask* mask) {
  SampleRun run(sampling_, scratch);
  TRY(const Token token, choose(run, logits, context, banned_now, mask));
  if (!uses_mirostat()) return token;
  const size_t position = context.size();
  const double mu = mu_at(position);
  if (mus_.empty() || position < first_) {
    first_ = position;
    mus_.clear();
  }
  mus_.resize(std::min(position - first_, mus_.size()));
  mus_.push_back(mu);
  mus_.push_back(mu - sampling_.mirostat_eta * (run.surprise(token) - sampling_.mirostat_tau));
  return token;
}

Result<std::vector<TokenProbability>> Sampler::distribution(std::span<const float> logits,
                                                            std::span<const Token> context, SamplerScratch& scratch,
                                                            std::span<const Token> banned_now,
                                                            const TokenMask* mask) const {
  SampleRun run(sampling_, scratch);
  Draw draw{sampling_.seed, choice_, static_cast<uint32_t>(context.size()), 0};
  TRY_VOID(run.adjust(logits, context, banned_now, mask));
  if (sampling_.mirostat == 2) {
    if (sampling_.temperature > 0) run.truncate_mirostat(mu_at(context.size()));
  } else {
    run.truncate(draw);
  }
  if (sampling_.temperature <= 0) return std::vector<TokenProbability>{{run.greedy(), 1.0}};
  return run.distribution();
}

Result<void> logprobs(std::span<const float> logits, Token chosen, size_t top, SamplerScratch& scratch, Logprobs& out) {
  TRY(Candidate largest, find_largest(logits));
  double log_sum = std::log(sum_weights(logits, largest.logit, 1).weight);
  auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit - largest.logit) - log_sum); };
  CHECK(chosen >= 0 && static_cast<size_t>(chosen) < logits.size(), "token {} of {}", chosen, logits.size());
  out.chosen = logprob(logits[static_cast<size_t>(chosen)]);
  out.top.clear();
  if (top == 0) return {};
  select_largest(logits, std::min(top, logits.size()), scratch.selection_);
  for (const Candidate& candidate : scratch.selection_) out.top.push_back({candidate.id, logprob(candidate.logit)});
  return {};
}

}  // namespace millrace

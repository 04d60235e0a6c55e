#include "engine/fill.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "engine/request.h"

namespace millrace {
namespace {

// The token a row would have, and how sure it is of it. The mask and banned tokens are never chosen; ties go to the
// lower token.
struct Guess {
  Token token = 0;
  double probability = 0, entropy = 0, margin = 0;
};

struct GuessDraw {
  uint64_t seed = 0;
  uint32_t choice = 0, position = 0;
  double temperature = 0;
};

Guess guess_of(std::span<const float> logits, const std::vector<bool>& barred, const GuessDraw& draw) {
  size_t best = 0;
  double chosen = -INFINITY;
  float most = -INFINITY, second = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (barred[i]) continue;
    double value = logits[i];
    if (draw.temperature > 0) {  // the largest of logits with Gumbel noise is a draw from their softmax
      const double u = uniform({draw.seed, draw.choice, draw.position, static_cast<uint32_t>(i)});
      value = value / draw.temperature - std::log(-std::log(std::max(u, 1e-300)));
    }
    if (value > chosen) chosen = value, best = i;
    if (logits[i] > most) {
      second = most;
      most = logits[i];
    } else {
      second = std::max(second, logits[i]);
    }
  }
  double total = 0, weighted = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (barred[i]) continue;
    const double far = static_cast<double>(logits[i]) - most, weight = std::exp(far);
    total += weight;
    if (weight > 0) weighted += weight * far;
  }
  Guess guess = {.token = static_cast<Token>(best)};
  guess.probability = std::exp(static_cast<double>(logits[best]) - most) / total;
  guess.entropy = std::log(total) - weighted / total;
  guess.margin = (1 - std::exp(static_cast<double>(second) - most)) / total;
  return guess;
}

double rank_of(const Guess& guess, Remasking rule) {
  switch (rule) {
    case Remasking::confidence:
      return guess.probability;
    case Remasking::entropy:
      return -guess.entropy;
    case Remasking::margin:
      return guess.margin;
    case Remasking::order:
      return 0;
  }
  return 0;
}

// Passes have draws of their own.
uint64_t seed_of(uint64_t seed, int32_t pass) { return seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(pass); }

// Of blocks, the first few have one pass more than the others.
struct Shares {
  int32_t more = 0;             // so many blocks
  int32_t many = 0, fewer = 0;  // passes of those, and of the others
};

Shares shares_of(const FillShape& shape) {
  const int32_t blocks = shape.blocks(), each = shape.steps / blocks, size = shape.exact() ? shape.length : shape.block;
  return {shape.steps % blocks, std::clamp(each + 1, 1, size), std::clamp(each, 1, size)};
}

}  // namespace

Result<Remasking> remasking_from_name(std::string_view name) {
  for (const Remasking rule : {Remasking::confidence, Remasking::entropy, Remasking::margin, Remasking::order})
    if (remasking_name(rule) == name) return rule;
  return error(Code::invalid, "'{}' is no way of choosing positions: expected confidence, entropy, margin or order",
               name);
}

std::string_view remasking_name(Remasking rule) {
  switch (rule) {
    case Remasking::confidence:
      return "confidence";
    case Remasking::entropy:
      return "entropy";
    case Remasking::margin:
      return "margin";
    case Remasking::order:
      return "order";
  }
  return "";
}

FillShape::FillShape(int32_t prompt_tokens, int32_t length_tokens, const FillAsk& ask, bool is_shifted)
    : prompt(prompt_tokens), length(length_tokens), shifted(is_shifted) {
  steps = ask.steps > 0 ? std::min(ask.steps, length) : std::max(1, (length + 1) / 2);
  block = std::min(ask.block, length);
}

int32_t FillShape::passes() const {
  const Shares shares = shares_of(*this);
  const int32_t all = blocks(), before = all - 1, last = length - before * (exact() ? length : block);
  const int32_t more = std::min(shares.more, before);
  const int32_t of_last = std::min(before < shares.more ? shares.many : shares.fewer, last);
  return more * shares.many + (before - more) * shares.fewer + of_last;
}

FillStep next_fill(const FillShape& shape, int32_t kept, int32_t pass) {
  if (pass >= shape.passes()) return {};
  const Shares shares = shares_of(shape);
  const int32_t in_more = shares.more * shares.many;
  int32_t block = pass < in_more ? pass / shares.many : shares.more + (pass - in_more) / shares.fewer;
  block = std::min(block, shape.blocks() - 1);
  const int32_t more = std::min(block, shares.more), own = pass - more * shares.many - (block - more) * shares.fewer;
  const int32_t size = shape.exact() ? shape.length : shape.block, shift = shape.shifted ? 1 : 0;
  FillStep step = {.pass = pass, .first = block * size};
  step.end = std::min(shape.length, step.first + size);
  const int32_t positions = step.end - step.first;
  const int32_t passes = std::min(block < shares.more ? shares.many : shares.fewer, positions);
  step.take = positions / passes + (own < positions % passes ? 1 : 0);
  if (shape.exact()) {
    step.count = shape.total();
    step.wanted = shape.length + shift;
    return step;
  }
  if (kept < shape.prompt) return {.count = shape.prompt};
  if (kept < shape.prompt + step.first)
    return {.begin = kept - shift, .count = std::min(shape.block, shape.total() - kept) + shift};
  step.begin = shape.prompt + step.first - shift;
  step.count = step.wanted = positions + shift;
  return step;
}

Filling::Filling(std::span<const Token> prompt, const FillShape& shape, Token mask, int32_t told)
    : shape_(shape), mask_(mask), told_(told), tokens_(prompt.begin(), prompt.end()) {
  tokens_.resize(prompt.size() + static_cast<size_t>(shape.length), mask);
}

Result<std::vector<Token>> Filling::fill(const FillStep& step, const Request& request, int32_t choice, const Rows& rows,
                                         std::vector<int32_t>* fixed) {
  struct Candidate {
    int32_t position = 0;
    Token token = 0;
    double rank = 0;
  };
  std::vector<Candidate> found;
  std::vector<bool> barred;
  const int32_t shift = shape_.shifted ? 1 : 0, first_row = step.begin + step.count - step.wanted;
  for (int32_t at = step.first; at < step.end; ++at) {
    const int32_t position = shape_.prompt + at;
    if (tokens_[static_cast<size_t>(position)] != mask_) continue;
    const std::span<const float> logits = rows(position - shift - first_row);
    barred.assign(logits.size(), false);
    auto bar = [&](Token token) {
      if (token >= 0 && static_cast<size_t>(token) < barred.size()) barred[static_cast<size_t>(token)] = true;
    };
    bar(mask_);
    for (const Token token : request.sampling.banned) bar(token);
    for (const Token token : request.stop_tokens)
      if (at < request.min_tokens) bar(token);
    const Guess guess = guess_of(logits, barred,
                                 {seed_of(request.sampling.seed, step.pass), static_cast<uint32_t>(choice),
                                  static_cast<uint32_t>(position), request.sampling.temperature});
    if (!std::isfinite(guess.probability)) return error(Code::internal, "a logit is NaN or infinite");
    found.push_back({at, guess.token, rank_of(guess, request.fill.remasking)});
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; });
  found.resize(std::min(found.size(), static_cast<size_t>(step.take)));
  for (const Candidate& each : found) tokens_[static_cast<size_t>(shape_.prompt + each.position)] = each.token;
  if (fixed != nullptr) {
    for (const Candidate& each : found) fixed->push_back(each.position);
    std::sort(fixed->begin(), fixed->end());
  }
  std::vector<Token> told;
  for (int32_t at = 0; at < shape_.length; ++at) {
    const Token token = tokens_[static_cast<size_t>(shape_.prompt + at)];
    if (token == mask_) break;
    if (at < told_) continue;
    told.push_back(token);
    told_ = at + 1;
  }
  return told;
}

Result<void> check_fill(const Request& request, bool fills, int32_t step_tokens) {
  if (!fills) {
    if (request.fill == FillAsk()) return {};
    return error(Code::invalid,
                 "passes, blocks and remasking are for models that write by filling masks, and this one goes on token "
                 "by token: leave out diffusion_steps, block_length and remasking");
  }
  const Sampling& s = request.sampling;
  std::string_view what;
  if (request.constraint) what = "a grammar, a schema, required calls or log-probabilities of the prompt";
  if (request.logprobs >= 0) what = "log-probabilities of tokens (logprobs)";
  if (s.repetition != 1 || s.presence != 0 || s.frequency != 0 || s.dry_multiplier != 0)
    what = "penalties on what was said before";
  if (s.top_k != 0 || s.top_p != 1 || s.min_p != 0 || s.typical != 1 || s.top_n_sigma != 0 || s.xtc_probability != 0)
    what = "top_k, top_p, min_p, typical_p, top_n_sigma and xtc";
  if (s.mirostat != 0) what = "mirostat";
  if (!s.bias.empty()) what = "logit_bias";
  if (!request.prediction.empty()) what = "a prediction";
  if (!what.empty())
    return error(Code::unsupported,
                 "{} cannot be promised by a model that fills masks, because its tokens come in any order: leave that "
                 "out; temperature, seed, n, stop and min_tokens work",
                 what);
  if (request.fill.steps < 0 || request.fill.block < 0)
    return error(Code::invalid, "{} passes by blocks of {}: both must be 0 or more", request.fill.steps,
                 request.fill.block);
  const auto rows = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (rows > step_tokens)
    return error(Code::invalid, "prompt and answer have {} tokens, which a pass computes at once, and a step has {}",
                 rows, step_tokens);
  return {};
}

}  // namespace millrace

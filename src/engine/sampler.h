// Sampler: chooses the next token of one sequence from its logits, by the steps of engine/sampling.h. Which token comes
// out is a function of the logits, the context (prompt and answer so far), the parameters and the choice number only
// (contract 1); with mirostat, of the surprises so far too, which are kept by position: choosing a token again, because
// its step is repeated or was a guess, gives the same token and moves nothing twice.
//
// The draw is a race: token i of weight w_i arrives at time E_i / w_i, where E_i is exponential with the random number
// named by (seed, choice, position, i), and the first to arrive is chosen. That is exactly a draw in proportion to the
// weights, but it needs no sorting and no running sums, it is the same in any order of visiting, and two models that
// mostly agree (a draft and its target) mostly choose the same token from the same numbers.
//
// A Sampler belongs to its sequence and is small. Buffers of the vocabulary's size live in a SamplerScratch, one per
// thread that samples, shared by all sequences; nothing is allocated per token once it has grown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/shortlist.h"
#include "base/result.h"
#include "base/token.h"
#include "base/token_mask.h"
#include "engine/sampler_scan.h"
#include "engine/sampling.h"

namespace millrace {

struct Logprobs;
class SampleRun;

class SamplerScratch {
 public:
  explicit SamplerScratch(int32_t vocab);
  int32_t vocab() const { return static_cast<int32_t>(logits_.size()); }
  int64_t bytes() const;

 private:
  friend class SampleRun;
  friend Result<void> logprobs(std::span<const float>, Token, size_t, SamplerScratch&, Logprobs&);
  std::vector<float> logits_;     // [vocab] after bias and penalties
  std::vector<float> keys_;       // [vocab] another order to select by
  std::vector<uint32_t> counts_;  // [vocab] zero between calls
  std::vector<Candidate> candidates_;
  std::vector<Candidate> selection_;
  std::vector<int32_t> matches_;  // DRY
  std::vector<std::pair<Token, int32_t>> repeats_;
};

struct TokenProbability {
  Token id = 0;
  double probability = 0;
};

class Sampler {
 public:
  // `choice` tells parallel answers to one prompt apart: they differ, and each repeats itself on a rerun.
  static Result<Sampler> create(const Sampling& sampling, int32_t vocab, uint32_t choice = 0);

  // The token at position context.size(). `banned_now` adds to the banned tokens for this call (end tokens before the
  // least length), and so does everything outside of `mask`, if there is one. Fails if the logits are broken or nothing
  // is left to choose.
  Result<Token> sample(std::span<const float> logits, std::span<const Token> context, SamplerScratch& scratch,
                       std::span<const Token> banned_now = {}, const TokenMask* mask = nullptr);

  // The token sample() would give; nothing is remembered. With another model's logits this is that model's guess, drawn
  // with the same numbers.
  Result<Token> guess(std::span<const float> logits, std::span<const Token> context, SamplerScratch& scratch,
                      std::span<const Token> banned_now = {}) const;

  // The distribution sample() would draw from, by ascending id, tokens of probability zero left out; state is not
  // changed.
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits, std::span<const Token> context,
                                                     SamplerScratch& scratch, std::span<const Token> banned_now = {},
                                                     const TokenMask* mask = nullptr) const;

  // What to bring of a row of `vocab` logits, of the token at position `position`, so that sample_shortlist() can
  // choose; the whole row where it could not. `banned_now` as for sample().
  ShortlistAsk shortlist_ask(int32_t vocab, size_t position, std::span<const Token> banned_now) const;
  // The token sample() would give, from what shortlist_ask() asked for; none if that does not settle it. Never of a row
  // that sample() would refuse. Nothing is remembered of the call.
  std::optional<Token> sample_shortlist(const ShortlistAsk& ask, const Shortlisted& row, std::span<const Token> context,
                                        SamplerScratch& scratch, std::span<const Token> banned_now = {}) const;

  // Mirostat's bar before the token at a position, which is all that a sampler knows beside its context; none where it
  // is not used. resume() sets it, for an answer that another sampler has begun.
  std::optional<double> bar(size_t position) const;
  void resume(size_t position, double bar);

  const Sampling& sampling() const { return sampling_; }
  uint32_t choice() const { return choice_; }

 private:
  Sampler(const Sampling& sampling, uint32_t choice);
  Result<Token> choose(SampleRun& run, std::span<const float> logits, std::span<const Token> context,
                       std::span<const Token> banned_now, const TokenMask* mask) const;
  double mu_at(size_t position) const;  // mirostat's bar, in bits
  bool uses_mirostat() const { return sampling_.mirostat == 2 && sampling_.temperature > 0; }

  Sampling sampling_;
  uint32_t choice_ = 0;
  size_t first_ = 0;         // position of the first token it chose
  std::vector<double> mus_;  // mirostat's bar before each position from there on, and before the next
};

// Log-probabilities as everything reports them: natural logarithms of the model's own distribution, softmax of the raw
// logits, before bias, penalties, truncation and temperature.
struct TokenLogprob {
  Token id = 0;
  float logprob = 0;
};

struct Logprobs {
  float chosen = 0;
  std::vector<TokenLogprob> top;  // likeliest first, ties to the lowest id
};

// Fills `out` (its room is reused) with the chosen token's and the `top` likeliest tokens'.
Result<void> logprobs(std::span<const float> logits, Token chosen, size_t top, SamplerScratch& scratch, Logprobs& out);

}  // namespace millrace

// SampleRun: one pass of a Sampler through the steps of engine/sampling.h, on the sampler's own thread. Only for the
// files that make up the sampler: sampler.cpp, where a row of logits is here as a whole, and sampler_shortlist.cpp,
// where it is not.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "backend/shortlist.h"
#include "engine/sampler.h"

namespace millrace {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();

// One pass through the steps. Candidates are either all of `logits_` that are above -infinity (`dense`), or the list.
class SampleRun {
 public:
  SampleRun(const Sampling& sampling, SamplerScratch& scratch)
      : s_(sampling), scratch_(scratch), list_(scratch.candidates_) {}

  Result<void> adjust(std::span<const float> logits, std::span<const Token> context, std::span<const Token> banned_now,
                      const TokenMask* mask = nullptr);
  void truncate(const Draw& draw);
  // The same two where only part of the row is here (sampler_shortlist.cpp). False: what is here does not settle it.
  bool adjust_shortlist(const Shortlisted& row, bool changes, std::span<const Token> context,
                        std::span<const Token> banned_now);
  bool truncate_shortlist(const Shortlisted& row, const Draw& draw);
  void truncate_mirostat(double mu);
  // Of a list: everybody outside of it is below its floor, and changes only lower.
  bool top_is_certain(const Shortlisted& row) const { return largest_.logit >= row.floor; }
  void set_largest(const Candidate& largest) { largest_ = largest; }
  Token greedy() const { return largest_.id; }
  Token race(Draw draw);
  struct Finish {
    Token winner;
    double time;  // of arrival
  };
  Finish race_list(Draw draw) const;  // among the list alone
  std::vector<TokenProbability> distribution() const;
  double surprise(Token token) const;  // bits, under the tempered distribution before mirostat's truncation

 private:
  void change(std::span<const Token> context, std::span<const Token> banned_now);  // steps 1 to 3
  void truncate_further(const Draw& draw);                                         // from step 6 on
  void truncate_last(const Draw& draw);                                            // from step 8 on
  float min_p_bar() const;
  bool keep_top_p_shortlist(const Shortlisted& row, bool& closed);
  void keep_sigma();
  void keep_top_k();
  void keep_typical();
  void keep_top_p();
  void keep_min_p(float lowest);
  void take_xtc(const Draw& draw);

  double weight(float logit) const { return std::exp(static_cast<double>(logit - largest_.logit)); }
  double tempered(float logit) const { return std::exp(static_cast<double>(logit - largest_.logit) / s_.temperature); }
  double total() const;  // of weight over the candidates
  size_t count_to_mass(double mass, double sum) const;
  void sort();
  template <class F>
  void for_each(F body) const;

  const Sampling& s_;
  SamplerScratch& scratch_;
  std::vector<Candidate>& list_;
  bool dense_ = true;
  bool sorted_ = false;
  Candidate largest_;  // of the adjusted logits; weights are relative to it
};

}  // namespace millrace

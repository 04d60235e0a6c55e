// Guesses from answers that are known already, each spoilt with a given chance: what a drafter of that acceptance would
// do, for tests and for honest figures on weights that nobody trained a drafter for. Where several ways to go on are
// tried, another one is right. Runner's thread.
#pragma once

#include "engine/draft/drafter.h"

namespace millrace {

class ReplayDrafter : public Drafter {
 public:
  // The whole answer that an ask will have; empty: not known.
  using Truth = std::function<std::span<const Token>(const DraftAsk& ask)>;
  ReplayDrafter(Truth truth, double right, uint64_t seed, int32_t vocab)
      : truth_(std::move(truth)), right_(right), seed_(seed), vocab_(vocab) {}
  std::string_view name() const override { return "replay"; }
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override { return true; }

 private:
  void branch_off(const DraftAsk& ask, std::span<const Token> answer, int guesses) const;
  Truth truth_;
  double right_;
  uint64_t seed_;
  int32_t vocab_;
};

}  // namespace millrace

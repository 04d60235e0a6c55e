// Guesses from answers that are known already, each spoilt with a given chance: what a drafter of that acceptance would
// do, for tests and for honest figures on weights that nobody trained a drafter for. Another drafter may run beside it
// for the time it takes; what that guesses is thrown away. Where several ways to go on are tried, another one is right.
// Runner's thread.
#pragma once

#include "engine/draft/drafter.h"

namespace millrace {

class ReplayDrafter : public Drafter {
 public:
  // The whole answer that an ask will have; empty: not known.
  using Truth = std::function<std::span<const Token>(const DraftAsk& ask)>;
  ReplayDrafter(Truth truth, double right, uint64_t seed, int32_t vocab, std::unique_ptr<Drafter> beside = nullptr)
      : truth_(std::move(truth)), right_(right), seed_(seed), vocab_(vocab), beside_(std::move(beside)) {}
  std::string_view name() const override { return "replay"; }
  bool observes() const override { return beside_ != nullptr && beside_->observes(); }
  void observe(std::span<Observed> rows) override {
    if (beside_ != nullptr) beside_->observe(rows);
  }
  void propose(std::span<const DraftAsk> asks) override;
  void forget(RequestId request) override {
    if (beside_ != nullptr) beside_->forget(request);
  }
  bool repeats_itself() const override { return true; }

 private:
  void branch_off(const DraftAsk& ask, std::span<const Token> answer, int guesses) const;
  Truth truth_;
  double right_;
  uint64_t seed_;
  int32_t vocab_;
  std::unique_ptr<Drafter> beside_;  // may be null
};

}  // namespace millrace

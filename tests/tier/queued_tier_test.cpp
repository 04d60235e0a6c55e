// A look-up ends when its time is over, whatever the store does.
#include <gtest/gtest.h>

#include <future>

#include "tier/queued_tier.h"

namespace millrace {
namespace {

// Puts hang until somebody lets them go.
class HangingTier : public QueuedTier {
 public:
  HangingTier() : QueuedTier({}) { start(); }
  ~HangingTier() override { stop(); }

  std::promise<void> entered, let_go;

 private:
  void look_up(std::span<const Identity>, Clock::time_point, std::vector<TierNode>&, size_t&) override {}
  bool store(const TierNode&) override {
    entered.set_value();
    let_go.get_future().wait();
    return true;
  }
};

TEST(QueuedTier, ALookUpDoesNotWaitForAPutThatHangs) {
  HangingTier tier;
  tier.put(std::vector<TierNode>(1));
  tier.entered.get_future().wait();
  std::promise<size_t> answered[2];
  for (auto& answer : answered)
    tier.get(std::vector<Identity>(3), 0.01, [&](std::vector<TierNode> found) { answer.set_value(found.size()); });
  for (auto& answer : answered) EXPECT_EQ(answer.get_future().get(), 0u);  // for ever, if it waits for the put
  EXPECT_EQ(tier.counters().late, 2);
  EXPECT_EQ(tier.counters().stored, 0);
  tier.let_go.set_value();
}

}  // namespace
}  // namespace millrace

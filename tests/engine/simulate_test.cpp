#include "engine/simulate.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/sanitized.h"
#include "base/thorough.h"

namespace millrace {
namespace {

TEST(Simulation, SeedsHold) {
  const int64_t seeds = test::kSanitized ? 300 : test::thorough() ? 5000 : 1000;
  SimulationSummary summary = simulate(1, seeds);
  printf("%s", describe(summary).c_str());
  ASSERT_FALSE(summary.failure) << "seed " << summary.failure->seed << ", step " << summary.failure->step << ": "
                                << summary.failure->what;
  EXPECT_TRUE(summary.nothing_untried());
  EXPECT_EQ(summary.totals.seeds, seeds);
  EXPECT_GE(summary.totals.least_steps, 200);
  EXPECT_GE(summary.totals.least_requests, 30);
}

TEST(Simulation, ASeedIsAlwaysTheSame) {
  EXPECT_EQ(describe(simulate(77, 3)), describe(simulate(77, 3)));
  EXPECT_NE(describe(simulate(77, 3)), describe(simulate(78, 3)));
}

TEST(Simulation, StopsWhenTold) {
  EXPECT_EQ(simulate(1, 100, [](const SimulationSummary& so_far) { return so_far.totals.seeds < 4; }).totals.seeds, 4);
}

}  // namespace
}  // namespace millrace

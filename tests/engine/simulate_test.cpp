#include "engine/simulate.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/sanitized.h"

namespace millrace {
namespace {

constexpr int64_t kSeeds = test::kSanitized ? 300 : 5000;

TEST(Simulation, FiveThousandSeedsHold) {
  SimulationSummary summary = simulate(1, kSeeds);
  printf("%s", describe(summary).c_str());
  ASSERT_FALSE(summary.failure) << "seed " << summary.failure->seed << ", step " << summary.failure->step << ": "
                                << summary.failure->what;
  EXPECT_TRUE(summary.nothing_untried());
  EXPECT_EQ(summary.totals.seeds, kSeeds);
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

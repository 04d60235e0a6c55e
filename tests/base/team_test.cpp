#include "base/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(Team, EveryWorkerRunsOncePerJob) {
  for (int workers : {1, 2, 3, 8}) {
    Team team(workers);
    std::vector<int> calls(static_cast<size_t>(workers), 0);
    for (int round = 0; round < 200; ++round) {
      team.run([&](int worker, int count) {
        EXPECT_EQ(count, workers);
        ++calls[static_cast<size_t>(worker)];
      });
    }
    for (int count : calls) EXPECT_EQ(count, 200);
  }
}

TEST(Team, WritesOfAJobAreVisibleAfterIt) {
  Team team(4);
  std::vector<int> values(4, 0);
  for (int round = 1; round <= 500; ++round) {
    team.run([&](int worker, int) { values[static_cast<size_t>(worker)] = round; });
    for (int value : values) ASSERT_EQ(value, round);
  }
}

TEST(Team, WorksAgainAfterARest) {
  auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto before = threads();
  Team team(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> calls(3, 0);
    team.run([&](int worker, int) { ++calls[static_cast<size_t>(worker)]; });
    EXPECT_EQ(calls, (std::vector<int>{1, 1, 1}));
    EXPECT_GE(threads(), before + 2);
    team.rest();
    for (int tries = 0; tries < 1000 && threads() > before; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(threads(), before);
  }
}

TEST(Team, EveryTaskIsDoneOnce) {
  for (int workers : {1, 2, 5}) {
    Team team(workers);
    for (int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
      team.each(tasks, [&](int64_t task, int worker) {
        EXPECT_LT(worker, workers);
        done[static_cast<size_t>(task)].fetch_add(1);
      });
      for (auto& count : done) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(Team, NobodyPassesABarrierEarly) {
  for (int workers : {1, 2, 4}) {
    Team team(workers);
    std::atomic<int> before{0};
    std::atomic<bool> early{false};
    team.run([&](int, int count) {
      for (int round = 1; round <= 200; ++round) {
        before.fetch_add(1);
        team.barrier();
        if (before.load() < round * count) early = true;
        team.barrier();
      }
    });
    EXPECT_FALSE(early.load());
  }
}

// After a pause longer than the spin, workers sleep in the kernel and must still wake for the next job.
TEST(Team, WakesAfterSleep) {
  Team team(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    team.run([&](int worker, int) {
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the caller sleeps too
      calls.fetch_add(1);
    });
  }
  EXPECT_EQ(calls.load(), 9);
}

}  // namespace
}  // namespace millrace

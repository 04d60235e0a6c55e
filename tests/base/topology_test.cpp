#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/team.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class FakeSys : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::vector<Processor> read(int processors) {
    std::vector<int> all(static_cast<size_t>(processors));
    std::iota(all.begin(), all.end(), 0);
    return topology_of(all, root_);
  }
  // Two nodes of two cores with two threads each, numbered as servers do: second threads come last.
  std::vector<Processor> server() {
    put("sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    put("sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    put("sys/devices/system/node/possible", "0-1\n");
    for (int i = 0; i < 8; ++i)
      put("sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
          std::to_string(i % 4) + "," + std::to_string(i % 4 + 4) + "\n");
    return read(8);
  }
  fs::path root_;
};

TEST_F(FakeSys, AMachineThatTellsNothingIsOneNodeOfCores) {
  const std::vector<Processor> all = read(3);
  EXPECT_EQ(all, (std::vector<Processor>{{0, 0, 0}, {1, 1, 0}, {2, 2, 0}}));
  EXPECT_EQ(count_cores(all), 3);
  EXPECT_EQ(count_nodes(all), 1);
}

TEST_F(FakeSys, CoresAndNodesOfAServer) {
  const std::vector<Processor> all = server();
  EXPECT_EQ(count_cores(all), 4);
  EXPECT_EQ(count_nodes(all), 2);
  EXPECT_EQ(all[6], (Processor{6, 2, 1}));
}

TEST_F(FakeSys, CoresComeBeforeTheirSecondThreads) {
  const std::vector<Processor> all = server();
  const std::vector<WorkerPlace> four = places_of(4, all);
  ASSERT_EQ(four.size(), 4u);
  EXPECT_EQ(four[0].processors, (std::vector<int>{0, 1}));
  EXPECT_EQ(four[1].node, 0);
  EXPECT_EQ(four[2].processors, (std::vector<int>{2, 3}));
  EXPECT_EQ(four[3].node, 1);
  const std::vector<WorkerPlace> eight = places_of(8, all);
  ASSERT_EQ(eight.size(), 8u);
  EXPECT_EQ(eight[3].processors, (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(eight[7].processors, (std::vector<int>{2, 3, 6, 7}));
}

TEST_F(FakeSys, AnyNumberOfWorkersHasPlaces) {
  const std::vector<Processor> all = server();
  for (int workers = 1; workers < 20; ++workers) {
    const std::vector<WorkerPlace> places = places_of(workers, all);
    ASSERT_EQ(places.size(), static_cast<size_t>(workers));
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_FALSE(places[i].processors.empty());
      if (i > 0) {
        EXPECT_LE(places[i - 1].node, places[i].node);
      }
    }
  }
}

TEST_F(FakeSys, DamagedListsAreReadAsFarAsTheyGo) {
  put("sys/devices/system/node/node0/cpulist", "0,1-999999999\n");
  put("sys/devices/system/node/nodeX/cpulist", "1\n");
  put("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "-5,1\n");
  EXPECT_EQ(read(2), (std::vector<Processor>{{0, 0, 0}, {1, 1, 0}}));
}

TEST(Topology, ATeamRunsWhereThisProcessMay) {
  const std::vector<Processor>& usable = usable_processors();
  ASSERT_FALSE(usable.empty());
  EXPECT_LE(Team::usual(), Team::processors());
  Team team(4);
  std::atomic<int> elsewhere{0};
  team.run([&](int, int) {
    const int here = sched_getcpu();
    bool known = false;
    for (const Processor& processor : usable) known |= processor.number == here;
    if (!known) elsewhere.fetch_add(1);
  });
  EXPECT_EQ(elsewhere.load(), 0);
}

}  // namespace
}  // namespace millrace

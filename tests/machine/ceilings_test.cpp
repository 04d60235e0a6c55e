#include "machine/ceilings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "backend/cpu/cpu.h"
#include "machine/stolen.h"

namespace millrace {
namespace {

// A cache of ceilings of its own.
class Ceilings : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / fmt::format("ceilings-{}", getpid());
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    ::unsetenv("XDG_CACHE_HOME");
  }
  static void keep(const std::string& json) {
    const Machine here{.processor = processor_name(), .isa = std::string(cpu_isas().back()), .threads = 1};
    const std::filesystem::path path = machine_cache_path(here);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << json;
  }
  std::filesystem::path folder_;
};

TEST_F(Ceilings, FiguresOfUnknownNoiseAreNotTrusted) {
  EXPECT_FALSE(measure_machine({.threads = 1, .known_only = true}).ok());
  keep(R"({"read_bytes": 1e10, "f32_operations": 2e10})");
  EXPECT_FALSE(measure_machine({.threads = 1, .known_only = true}).ok());
  keep(R"({"read_bytes": 1e10, "f32_operations": 2e10, "noise": 0.25, "stolen": 0.5})");
  EXPECT_FALSE(measure_machine({.threads = 1, .known_only = true}).ok()) << "of before float16 had its own";
  keep(R"({"read_bytes": 1e10, "f32_operations": 2e10, "f16_operations": 3e10, "noise": 0.25, "stolen": 0.5})");
  const Machine machine = measure_machine({.threads = 1, .known_only = true}).value();
  EXPECT_EQ(machine.read_bytes, 1e10);
  EXPECT_EQ(machine.f16_operations, 3e10);
  EXPECT_EQ(machine.noise, 0.25);
  EXPECT_EQ(machine.stolen, 0.5);
}

TEST(Limit, NoShareIsOverAHundredWithoutAWord) {
  EXPECT_EQ(share_of_limit(0.874), "87 %");
  EXPECT_EQ(share_of_limit(1.001), "100 %");
  EXPECT_EQ(share_of_limit(1.33), "over 100 %");
  EXPECT_EQ(noise_text({.noise = 0.02}), "the ceilings were measured with 2 % noise");
  const std::string busy = noise_text({.noise = 0.3, .stolen = 0.1});
  EXPECT_NE(busy.find("30 % noise and 10 % of processor time stolen"), std::string::npos) << busy;
  EXPECT_NE(busy.find("--remeasure"), std::string::npos) << busy;
}

TEST(Limit, WhyAShareIsOverAHundred) {
  EXPECT_FALSE(over_limit(1.004));
  EXPECT_TRUE(over_limit(1.01));
  const std::string small = over_limit_text(15 << 20, {.noise = 0.02}), large = over_limit_text(int64_t{4} << 30, {});
  EXPECT_NE(small.find("15 MiB of weights may come from the processor's cache"), std::string::npos) << small;
  EXPECT_NE(small.find("2 % noise"), std::string::npos) << small;
  EXPECT_NE(large.find("measured as the machine's limit, twice"), std::string::npos) << large;
}

TEST(StolenTime, IsTheEighthNumber) {
  const auto times = read_processor_times("cpu  10 20 30 400 5 6 7 22 1 2\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->all, 500u);
  EXPECT_EQ(times->stolen, 22u);
  EXPECT_FALSE(read_processor_times("").has_value());
  EXPECT_FALSE(read_processor_times("cpu  10 20 30 400").has_value()) << "an old kernel does not tell";
  EXPECT_FALSE(read_processor_times("intr 1 2 3 4 5 6 7 8").has_value());
}

}  // namespace
}  // namespace millrace

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

constexpr std::string_view kRates =
    R"("read_bytes": 1e10, "int8_operations": 0, "bf16_operations": 0, "f32_operations": 2e10, "f16_operations": 3e10)";

TEST_F(Ceilings, FiguresOfUnknownNoiseAreNotTrusted) {
  const auto known = [] { return measure_machine({.threads = 1, .known_only = true}); };
  EXPECT_FALSE(known().ok());
  keep(fmt::format("{{{}}}", kRates));
  EXPECT_FALSE(known().ok());
  keep(fmt::format(R"({{{}, "noise": 0.25, "stolen": 0.5}})", kRates));
  EXPECT_FALSE(known().ok()) << "of when one noise stood for all";
  keep(fmt::format(R"({{{}, "noise": {{"read": 0.2, "int8": 0, "bf16": 0, "f32": 0.1}}, "stolen": 0.5}})", kRates));
  EXPECT_FALSE(known().ok()) << "nobody said how noisy float16 was";
  keep(R"({"read_bytes": 1e10, "f32_operations": 2e10,
           "noise": {"read": 0.2, "int8": 0, "bf16": 0, "f32": 0.1, "f16": 0}})");
  EXPECT_FALSE(known().ok()) << "of before float16 had its own";
  keep(fmt::format(
      R"({{{}, "noise": {{"read": 0.25, "int8": 0, "bf16": 0, "f32": 0.01, "f16": 0.03}}, "stolen": 0.5}})", kRates));
  const Machine machine = known().value();
  EXPECT_EQ(machine.read_bytes, 1e10);
  EXPECT_EQ(machine.f16_operations, 3e10);
  EXPECT_EQ(machine.noise.read, 0.25);
  EXPECT_EQ(machine.noise.f32, 0.01);
  EXPECT_EQ(machine.noise.f16, 0.03);
  EXPECT_EQ(machine.noise.arithmetic(), 0.03);
  EXPECT_EQ(machine.noise.largest(), 0.25);
  EXPECT_EQ(machine.stolen, 0.5);
}

TEST_F(Ceilings, APassedOneIsRaisedAndKeepsItsOwnNoise) {
  keep(R"({"read_bytes": 1, "int8_operations": 1e30, "bf16_operations": 0, "f32_operations": 1, "f16_operations": 1,
           "noise": {"read": 7, "int8": 8, "bf16": 0, "f32": 9, "f16": 9}})");
  const Machine raised = measure_machine({.threads = 1, .raise = true}).value();
  EXPECT_GT(raised.read_bytes, 1e6);
  EXPECT_GT(raised.f32_operations, 1e6);
  EXPECT_EQ(raised.int8_operations, 1e30) << "what was done once can be done";
  EXPECT_EQ(raised.noise.int8, 8) << "and was measured so";
  for (const double noise : {raised.noise.read, raised.noise.f32, raised.noise.f16}) {
    EXPECT_GE(noise, 0);
    EXPECT_LT(noise, 1);
  }
  const Machine kept = measure_machine({.threads = 1, .known_only = true}).value();
  EXPECT_DOUBLE_EQ(kept.read_bytes, raised.read_bytes);  // text may cost the last bit
  EXPECT_DOUBLE_EQ(kept.noise.read, raised.noise.read);
  EXPECT_EQ(kept.noise.int8, 8);
}

TEST(Limit, NoShareIsOverAHundredWithoutAWord) {
  EXPECT_EQ(share_of_limit(0.874), "87 %");
  EXPECT_EQ(share_of_limit(1.001), "100 %");
  EXPECT_EQ(share_of_limit(1.33), "over 100 %");
  EXPECT_EQ(noise_text({.noise = {.read = 0.02, .f32 = 0.01}}), "the ceilings were measured with 2 % noise");
  EXPECT_EQ(noise_text({}), "the ceilings were measured with unknown noise");
  const std::string busy = noise_text({.noise = {.f32 = 0.3}, .stolen = 0.1});
  EXPECT_NE(busy.find("30 % noise and 10 % of processor time stolen"), std::string::npos) << busy;
  EXPECT_NE(busy.find("--remeasure"), std::string::npos) << busy;
}

TEST(Limit, ACeilingThatIsNotThereIsNotNought) {
  EXPECT_EQ(ceilings_text({.read_bytes = 61.8e9,
                           .int8_operations = 1329e9,
                           .f32_operations = 166e9,
                           .f16_operations = 160e9,
                           .noise = {.read = 0.02, .int8 = 0.04, .bf16 = 0, .f32 = 0.01}}),
            "read 61.8 GB/s (2 % noise), int8 1329 GOP/s (4 % noise), bf16 none, f32 166 GOP/s (1 % noise), "
            "f16 160 GOP/s (unknown noise)");
}

TEST(Limit, WhyAShareIsOverAHundred) {
  EXPECT_FALSE(over_limit(1.004));
  EXPECT_TRUE(over_limit(1.01));
  const Machine machine = {.noise = {.read = 0.02, .int8 = 0.07, .f32 = 0.01}};
  const PassedLimits memory = {.memory = true}, compute = {.compute = true}, both = {.memory = true, .compute = true};
  const int64_t few = 15 << 20, many = int64_t{4} << 30;
  EXPECT_EQ(over_limit_text({}, few, machine), "");
  EXPECT_EQ(over_limit_text(memory, few, machine),
            "over 100 % of memory's limit: 15 MiB of weights may come from the processor's cache, the limit is what "
            "memory gives; its ceiling was measured with 2 % noise");
  EXPECT_EQ(over_limit_text(memory, many, machine),
            "over 100 % of memory's limit: faster than what was measured as the machine's limit, twice; its ceiling "
            "was measured with 2 % noise");
  const std::string by_arithmetic = over_limit_text(compute, few, machine);
  EXPECT_EQ(by_arithmetic,
            "over 100 % of arithmetic's limit: faster than what was measured as the machine's limit, twice; its "
            "ceilings were measured with 7 % noise")
      << "no cache explains it";
  EXPECT_EQ(over_limit_text(both, few, machine), over_limit_text(memory, few, machine) + "; " + by_arithmetic);
}

TEST(Limit, IsPassedByWhatACacheCannotExplain) {
  const auto passed = [](double memory, double compute, double seconds) {
    PassedLimits limits;
    limits.add(memory, compute, seconds);
    return fmt::format("{}{}", limits.memory ? "memory" : "", limits.compute ? "compute" : "");
  };
  EXPECT_EQ(passed(1, 1, 2), "");
  EXPECT_EQ(passed(1, 1, 1.995), "") << "rounding";
  EXPECT_EQ(passed(1, 0, 0.9), "memory");
  EXPECT_EQ(passed(0, 1, 0.9), "compute");
  EXPECT_EQ(passed(1, 2, 2.5), "memory") << "the half second may have come from a cache";
  EXPECT_EQ(passed(1, 2, 1.5), "compute") << "arithmetic by itself takes longer";
  EXPECT_EQ(passed(1, 1, 0), "") << "nothing was timed";
  PassedLimits all;
  all.add(1, 0, 0.9);
  all.add(0, 1, 0.9);
  all.add(0, 1, 5);
  EXPECT_TRUE(all.memory && all.compute && all.any());
}

TEST(StolenTime, IsSaidFromHalfAPercentOn) {
  EXPECT_FALSE(stolen_text(std::nullopt).has_value());
  EXPECT_FALSE(stolen_text(0.004).has_value());
  EXPECT_EQ(stolen_text(0.04),
            "other virtual machines took up to 4 % of the processor time meanwhile: speeds are that much too low");
  EXPECT_TRUE(stolen_json(std::nullopt).is_null());
  EXPECT_EQ(stolen_json(0.25), Json(0.25));
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

// The checks of operations: right backends pass them, and a changed number shows in every one.
#include "eval/ops/check.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"

namespace millrace {
namespace {

Result<std::unique_ptr<Backend>> open_reference() { return make_reference_backend(); }
Result<std::unique_ptr<Backend>> open_cpu() {
  CpuOptions options;
  options.threads = 2;
  return make_cpu_backend(options);
}

void expect_fine(const OpsCheckOptions& options, size_t least) {
  const auto lines = check_ops(options);
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  EXPECT_GE(lines->size(), least);
  for (const OpsLine& line : *lines) {
    EXPECT_TRUE(line.fine()) << line.name << ": " << line.first;
    EXPECT_GT(line.cases, 0) << line.name;
  }
}

TEST(OpsCheck, TheCpuIsRight) {
  for (const char* only :
       {"norm", "rope", "linear Q4_K", "linear_qkv Q8_0", "linear_glu F16", "embed from a table Q6_K",
        "attend over BF16, a window", "a layer of Q8_0", "best token", "copy_heads", "linear_heads Q8_0",
        "linear_heads IQ4_NL", "scale", "mix", "match_rms", "sparsify"})
    expect_fine({.open = open_cpu, .only = only}, 1);
}

TEST(OpsCheck, TheCpuIsRightInStatesPairsAndCaches) {
  for (const char* only : {"pool", "convolve", "scan_heads", "scan_channels", "spread", "combine", "glu_limited",
                           "linear_experts Q4_K", "kv_store", "finish_qkv to BF16, turned", "finish_qkv to Q8, clipped",
                           "attend over F16, a window both ways", "attend over BF16, all that is visible, 64"})
    expect_fine({.open = open_cpu, .only = only}, 1);
}

TEST(OpsCheck, TheReferenceIsRightAgainstItself) {
  expect_fine({.open = open_reference, .only = "a layer of BF16, 32"}, 1);
  expect_fine({.open = open_reference, .only = "over F16, sinks, 80 wide"}, 1);
}

// A changed number must show in each of these checks.
void expect_seen(const char* only, bool large = false) {
  const auto lines = check_ops({.open = open_cpu, .only = only, .large = large, .plant = true});
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  for (const OpsLine& line : *lines) EXPECT_FALSE(line.fine()) << line.name << " is blind";
}

TEST(OpsCheck, AChangedNumberShowsInEveryCheck) {
  for (const char* only : {"add", "rope", "linear Q4_0", "linear_glu Q4_0", "embed from a table MXFP4",
                           "attend over F16, sinks, 80", "a layer of BF16, 32", "best token", "copy_heads",
                           "linear_heads BF16", "scale", "mix", "match_rms", "sparsify"})
    expect_seen(only);
  for (const char* only :
       {"pool", "convolve", "scan_heads by steps", "scan_channels, wkv", "spread", "combine", "glu_limited",
        "linear_experts BF16", "kv_store to F16", "finish_qkv to BF16, turned", "attend over F16, a window both ways"})
    expect_seen(only);
}

// Of large sizes the quickest; the others are for devices.
TEST(OpsCheck, LargeSizesAreCheckedWhenAskedFor) {
  for (const char* only :
       {"the best token of many", "attend far over BF16, as many keys, 128", "3000 x 1024 in BF16"}) {
    EXPECT_FALSE(check_ops({.open = open_cpu, .only = only}).ok()) << only;
    expect_fine({.open = open_cpu, .only = only, .large = true}, 1);
  }
  expect_seen("attend far over BF16, as many keys, 128", true);
}

TEST(OpsCheck, NamesThatDoNotExistAreRefused) {
  const auto lines = check_ops({.open = open_cpu, .only = "abacus"});
  ASSERT_FALSE(lines.ok());
  EXPECT_NE(lines.error().message.find("abacus"), std::string::npos);
}

}  // namespace
}  // namespace millrace

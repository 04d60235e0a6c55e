// What doctor says about GPUs: one line each, wherever it was seen.
#include "apps/about/finding.h"

#include <gtest/gtest.h>

namespace millrace::apps {
namespace {

std::vector<std::string> found(const std::vector<Finding>& report) {
  std::vector<std::string> all;
  for (const Finding& finding : report) all.push_back(finding.found);
  return all;
}

const CudaDevice kSeen = {.name = "NVIDIA H200", .memory = int64_t{140} << 30, .kernels = "hopper", .refusal = {}};

TEST(GpuFindings, OneForEachGpuByTheNameCudaHas) {
  Host host;
  host.gpus = {{.name = "NVIDIA H200", .supported = true}, {.name = "AMD GPU"}};
  EXPECT_EQ(found(gpu_findings(host, true, {kSeen})),
            (std::vector<std::string>{"cuda:0: NVIDIA H200, 140 GiB, hopper kernels", "AMD GPU"}));
}

TEST(GpuFindings, WithoutCudaAsTheMachineShowsThem) {
  Host host;
  EXPECT_EQ(found(gpu_findings(host, false, {})), (std::vector<std::string>{"none"}));
  EXPECT_EQ(found(gpu_findings(host, true, {})), (std::vector<std::string>{"none"}));
  host.gpus = {{.name = "NVIDIA H200", .supported = true}};
  for (const bool built : {false, true}) {
    const std::vector<Finding> report = gpu_findings(host, built, {});
    ASSERT_EQ(report.size(), 1u);
    EXPECT_EQ(report[0].found, "NVIDIA H200");
    EXPECT_NE(report[0].hint.find(built ? "CUDA does not see it" : "--preset cuda"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace::apps

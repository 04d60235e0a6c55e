// Which kernels a GPU gets, without one.
#include "backend/cuda/capability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace millrace::cuda {
namespace {

std::string_view chosen(int major, int minor, std::string_view wanted = "") {
  const auto name = family_for("a GPU", major, minor, wanted);
  return name.ok() ? *name : "refused";
}
std::string refusal(int major, int minor, std::string_view wanted = "") {
  const auto name = family_for("a GPU", major, minor, wanted);
  return name.ok() ? "" : name.error().message;
}

TEST(Capability, HopperHasItsOwnKernelsAndOthersThePortableOnes) {
  EXPECT_EQ(chosen(9, 0), kHopperKernels);
  for (const auto& [major, minor] :
       {std::pair{8, 0}, {8, 6}, {8, 7}, {8, 9}, {10, 0}, {10, 3}, {11, 0}, {12, 0}, {12, 1}})
    EXPECT_EQ(chosen(major, minor), kPortableKernels) << major << "." << minor;
}

TEST(Capability, OlderGpusAreRefusedWithTheNumbers) {
  for (const auto& [major, minor] : {std::pair{5, 2}, {6, 1}, {7, 0}, {7, 5}}) {
    const std::string message = refusal(major, minor);
    EXPECT_NE(message.find(std::to_string(major) + "." + std::to_string(minor)), std::string::npos) << message;
    EXPECT_NE(message.find("8.0"), std::string::npos) << message;
    EXPECT_NE(message.find("--device cpu"), std::string::npos) << message;
    EXPECT_EQ(chosen(major, minor, kPortableKernels), "refused");
  }
}

TEST(Capability, TheChoiceCanBeMadeByName) {
  EXPECT_EQ(chosen(9, 0, kPortableKernels), kPortableKernels);
  EXPECT_EQ(chosen(9, 0, kHopperKernels), kHopperKernels);
  EXPECT_EQ(chosen(8, 9, kPortableKernels), kPortableKernels);
  EXPECT_NE(refusal(8, 9, kHopperKernels).find("8.9"), std::string::npos);
  EXPECT_NE(refusal(12, 0, kHopperKernels).find("12.0"), std::string::npos);
  EXPECT_NE(refusal(9, 0, "volta").find("MILLRACE_CUDA_KERNELS=volta"), std::string::npos);
}

// What fingerprints go by: GPUs that may add otherwise have other names.
TEST(Capability, ArithmeticIsNamedByGenerationAndKernels) {
  EXPECT_EQ(numerics_for(kHopperKernels, 9, 0, true), "cuda 9.0, hopper kernels");
  std::vector<std::string> names = {numerics_for(kHopperKernels, 9, 0, true),
                                    numerics_for(kPortableKernels, 9, 0, true),
                                    numerics_for(kPortableKernels, 9, 0, false)};
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {10, 0}, {12, 0}})
    names.push_back(numerics_for(kPortableKernels, major, minor, true));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace millrace::cuda

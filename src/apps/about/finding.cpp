#include "apps/about/finding.h"

#include <fmt/format.h>

#include "base/human.h"

namespace millrace::apps {
namespace {

// Why a GPU that the machine shows cannot be used.
std::string unused_hint(const Gpu& gpu, bool cuda_built) {
  if (!gpu.supported) return "not supported: Millrace uses NVIDIA GPUs only";
  if (!cuda_built) return "this build does not use it: build with `cmake --preset cuda` (needs the CUDA 13 toolkit)";
  return "CUDA does not see it: look at its driver (`nvidia-smi`) and at CUDA_VISIBLE_DEVICES";
}

}  // namespace

std::vector<Finding> gpu_findings(const Host& host, bool cuda_built, const std::vector<CudaDevice>& devices) {
  std::vector<Finding> report;
  for (size_t i = 0; i < devices.size(); ++i) {
    const CudaDevice& device = devices[i];
    std::string found =
        fmt::format("cuda:{}: {}, {}", i, device.name, human_bytes(static_cast<uint64_t>(device.memory)));
    if (!device.kernels.empty()) found += fmt::format(", {} kernels", device.kernels);
    report.push_back({"gpu", "found", found, device.refusal});
  }
  for (const Gpu& gpu : host.gpus) {
    const bool told = gpu.supported && !devices.empty();  // above, by the name CUDA has for it
    if (!told) report.push_back({"gpu", "found", gpu.name, unused_hint(gpu, cuda_built)});
  }
  if (report.empty()) report.push_back({"gpu", "found", "none"});
  return report;
}

}  // namespace millrace::apps

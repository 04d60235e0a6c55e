// One line of what `doctor` reports, and those about GPUs, from what the machine shows and what CUDA sees. Main thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/host.h"
#include "backend/cuda/cuda.h"

namespace millrace::apps {

// A hint says in plain words what could be better and how; without one all is well.
struct Finding {
  std::string_view part;
  std::string_view what;
  std::string found;
  std::string hint = "";
};

// One for each GPU: as CUDA sees it, or as the machine shows it where CUDA does not or is not in this build. `devices`
// are what CUDA sees, none without it.
std::vector<Finding> gpu_findings(const Host& host, bool cuda_built, const std::vector<CudaDevice>& devices);

}  // namespace millrace::apps

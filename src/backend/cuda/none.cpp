#include "backend/cuda/cuda.h"
#include "backend/cuda/nccl_comm.h"

namespace millrace {

#if !MILLRACE_CUDA

bool cuda_built() { return false; }
std::vector<CudaDevice> cuda_devices() { return {}; }

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions&) {
  return error(
      Code::unsupported,
      "this program was built without CUDA; build it with the preset `cuda` (needs nvcc 13), or use --device cpu");
}

Result<CudaPeaks> measure_cuda_peaks(int) { return error(Code::unsupported, "this program was built without CUDA"); }

Result<std::shared_ptr<Comm>> make_nccl_comm(std::shared_ptr<Comm>) {
  return error(Code::unsupported, "--transport nccl: this program was built without CUDA; use --transport threads");
}

#endif

}  // namespace millrace

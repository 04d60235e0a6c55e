#include "backend/cuda/cuda.h"
#include "backend/cuda/device.h"
#include "backend/cuda/family.h"
#include "backend/cuda/kernels.h"

namespace millrace {

Result<CudaPeaks> measure_cuda_peaks(int device) {
  using cuda::checked;
  TRY_VOID(checked(cudaSetDevice(device), "choosing the GPU"));
  cudaDeviceProp properties;
  TRY_VOID(checked(cudaGetDeviceProperties(&properties, device), "asking the GPU"));
  TRY(const cuda::Family* family, cuda::choose_family(properties.name, properties.major, properties.minor));
  static_cast<void>(family);  // older GPUs have none: nothing here would run there
  constexpr int64_t kBytes = int64_t{2} << 30;
  void* memory = nullptr;
  TRY_VOID(checked(cudaMalloc(&memory, kBytes), "memory to measure with"));
  cudaMemset(memory, 1, kBytes);
  CudaPeaks peaks = {.name = properties.name};
  const int processors = properties.multiProcessorCount;
  peaks.read_bytes = kBytes / cuda::seconds_to_read(static_cast<const std::byte*>(memory), kBytes, processors);
  const cuda::Multiplying multiplying = cuda::seconds_to_multiply(static_cast<float*>(memory), processors);
  peaks.bf16_operations = multiplying.operations / multiplying.seconds;
  const cudaError_t status = cudaDeviceSynchronize();
  cudaFree(memory);
  TRY_VOID(checked(status, "measuring"));
  return peaks;
}

}  // namespace millrace

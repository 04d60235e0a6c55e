// Has kernels ready before the first step: left to itself, the driver brings each of them to the GPU when it is first
// used, between whatever is allocated at the time. The driver's functions are asked for at run time: nothing is linked
// against it. Host side of all files of kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vector>

namespace millrace::cuda {

template <class Function>
Function driver_function(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &status) != cudaSuccess ||
      status != cudaDriverEntryPointSuccess)
    return nullptr;
  return reinterpret_cast<Function>(entry);
}

// All kernels of the file that this one is from. What is not compiled for this GPU is compiled by the driver.
inline cudaError_t load_file_of(const void* kernel) {
  cudaFunction_t one = nullptr;
  if (const cudaError_t status = cudaGetFuncBySymbol(&one, kernel); status != cudaSuccess) return status;
  const auto module_of = driver_function<CUresult (*)(CUmodule*, CUfunction)>("cuFuncGetModule", 11000);
  const auto count_of = driver_function<CUresult (*)(unsigned*, CUmodule)>("cuModuleGetFunctionCount", 12040);
  const auto list = driver_function<CUresult (*)(CUfunction*, unsigned, CUmodule)>("cuModuleEnumerateFunctions", 12040);
  const auto load = driver_function<CUresult (*)(CUfunction)>("cuFuncLoad", 12040);
  if (module_of == nullptr || count_of == nullptr || list == nullptr || load == nullptr) return cudaErrorNotSupported;
  CUmodule file = nullptr;
  unsigned count = 0;
  if (module_of(&file, one) != CUDA_SUCCESS || count_of(&count, file) != CUDA_SUCCESS) return cudaErrorUnknown;
  std::vector<CUfunction> all(count);
  if (list(all.data(), count, file) != CUDA_SUCCESS) return cudaErrorUnknown;
  for (CUfunction each : all) {
    if (load(each) != CUDA_SUCCESS) return cudaErrorUnknown;
  }
  return cudaSuccess;
}

}  // namespace millrace::cuda

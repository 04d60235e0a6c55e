// The driver's function that says how a matrix in memory is cut into boxes for the copy engine. It is asked for at run
// time: nothing is linked against the driver. Host side of kernels that copy boxes.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace millrace::cuda {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
// Null where the driver has none.
inline Encode encoder() {
  static const Encode found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &status) !=
        cudaSuccess)
      return Encode{nullptr};
    return status == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry) : Encode{nullptr};
  }();
  return found;
}

}  // namespace millrace::cuda

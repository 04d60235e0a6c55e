// The driver's function that says how a matrix in memory is cut into boxes for the copy engine. Host side of kernels
// that copy boxes.
#pragma once

#include "backend/cuda/load.cuh"

namespace millrace::cuda {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
// Null where the driver has none.
inline Encode encoder() {
  static const Encode found = driver_function<Encode>("cuTensorMapEncodeTiled", 12000);
  return found;
}

}  // namespace millrace::cuda

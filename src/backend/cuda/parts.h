// What only ranks need of the device (ops_parts.cpp, parts.cu).
#pragma once

#include "backend/cuda/kernels.h"

namespace millrace::cuda {

cudaError_t load_parts();
// float32 numbers become those that are also of this form.
void round_rows(cudaStream_t stream, Form form, View inout);

}  // namespace millrace::cuda

// Which kernels a GPU gets. Hopper (compute capability 9.0) has its own, which use its matrix and copy instructions;
// every other GPU from 8.0 on gets the portable ones. Both compute the same to the bit from the same weights and
// caches. MILLRACE_CUDA_KERNELS=portable gives the portable ones to a Hopper too. What is not in here, all families
// share.
#pragma once

#include <string_view>

#include "backend/cuda/kernels.h"
#include "base/result.h"

namespace millrace::cuda {

struct Family {
  std::string_view name;
  cudaError_t (*load)();  // has the kernels ready, before the first step needs them
  decltype(&cuda::few_rows_fit) few_rows_fit;
  decltype(&cuda::few_rows) few_rows;
  decltype(&cuda::many_rows) many_rows;
  decltype(&cuda::many_rows_finish) many_rows_finish;
  decltype(&cuda::attend) attend;
  decltype(&cuda::fp8_rows) fp8_rows;  // null: FP8 weights become bfloat16
  decltype(&cuda::int8_rows) int8_rows;
};

// By the GPU's compute capability. An error says what is missing.
Result<const Family*> choose_family(std::string_view gpu, int major, int minor);

}  // namespace millrace::cuda

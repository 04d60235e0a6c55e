// The CUDA backend: weights on one GPU, the same operations by its kernels. Built only if asked for (MILLRACE_CUDA); in
// other builds make_cuda_backend says so. Products keep one order of additions however many rows there are (packed.h),
// so contract 1 holds here as on the CPU. Keys and values may be kept in f16 or bf16.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace millrace {

struct CudaOptions {
  int device = 0;
  bool graphs = true;  // steps of single tokens are recorded once and replayed; MILLRACE_CUDA_GRAPHS=0 turns it off
  // Inputs of FP8 and INT8 weights are rounded as the weights are (packed.h); else such weights become bfloat16.
  bool rounds_inputs = true;
};

struct CudaDevice {
  std::string name;
  int64_t memory = 0;
  std::string kernels;  // the family that it gets (cuda/family.h); empty: it cannot be used
  std::string refusal;  // why not, and what to do
};

bool cuda_built();                       // into this program
std::vector<CudaDevice> cuda_devices();  // all that there are; none in other builds
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

// What the device does at most, measured: bytes a second read, and multiplications and additions a second in bfloat16.
struct CudaPeaks {
  std::string name;
  double read_bytes = 0, bf16_operations = 0;
};
Result<CudaPeaks> measure_cuda_peaks(int device);

}  // namespace millrace

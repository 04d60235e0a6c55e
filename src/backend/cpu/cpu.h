// The CPU backend: weights packed for the instruction set in use, one worker team, one workspace. See kernels.h for how
// an instruction set is added. Keys and values may be kept in f32, f16 or bf16.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace millrace {

// The arithmetic of products. `float32`: activations stay float32 and weights are widened to it, whatever their format.
// `fast`: each weight format has the activation format its kernels are quickest in (int8 groups, bfloat16), rounded row
// by row, so contract 1 holds in both.
enum class Activations : uint8_t { float32, fast };

struct CpuOptions {
  int threads = 0;       // 0: one for every core
  std::string_view isa;  // a name of cpu_isas(); empty: MILLRACE_ISA, or the best this machine has
  Activations activations = Activations::fast;
};

// Instruction sets compiled in that this machine can run, from the plainest ("scalar") to the best.
std::vector<std::string_view> cpu_isas();

// What the instruction set multiplies and adds a second, on all workers at once; 0 where it has no such arithmetic.
struct CpuPeaks {
  std::string_view isa;
  double int8 = 0, bf16 = 0, f32 = 0;
};
Result<CpuPeaks> measure_cpu_peaks(std::string_view isa, int threads);

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

// The format of 16 bits that attention is fastest with on this backend: bf16 where it is a CPU that multiplies matrices
// of them, f16 on all others.
DType fastest_kv(const Backend& backend);

}  // namespace millrace

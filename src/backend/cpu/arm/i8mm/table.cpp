#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {

void add_i8mm(Kernels& kernels) {
  add_i8mm_float(kernels);
  add_i8mm_q(kernels);
  add_i8mm_k(kernels);
  add_i8mm_tables(kernels);
  add_i8mm_bf16(kernels);
  add_i8mm_attend_bf16(kernels);
  add_i8mm_attend_f16(kernels);
  add_i8mm_peak(kernels);
  kernels.ahead_queries = 1;
}

}  // namespace millrace::cpu

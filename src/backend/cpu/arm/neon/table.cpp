#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {

void add_neon(Kernels& kernels) {
  add_neon_rows(kernels);
  add_neon_attend(kernels);
  add_neon_float(kernels);
  add_neon_q4_q8(kernels);
  add_neon_q5(kernels);
  add_neon_k45(kernels);
  add_neon_k236(kernels);
  add_neon_tables(kernels);
  add_neon_states(kernels);
  add_neon_peak(kernels);
}

}  // namespace millrace::cpu

#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {

void add_neon(Kernels& kernels) {
  add_neon_rows(kernels);
  add_neon_attend(kernels);
  add_neon_float(kernels);
  add_neon_int8(kernels);
  add_neon_peak(kernels);
}

}  // namespace millrace::cpu

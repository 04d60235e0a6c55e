#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx2(Kernels& kernels) {
  add_avx2_rows(kernels);
  add_avx2_states(kernels);
  add_avx2_attend(kernels);
  add_avx2_float(kernels);
  add_avx2_int8(kernels);
  add_avx2_peak(kernels);
}

}  // namespace millrace::cpu

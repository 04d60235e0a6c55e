#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx512(Kernels& kernels) {
  add_avx512_rows(kernels);
  add_avx512_states(kernels);
  add_avx512_attend(kernels);
  add_avx512_float(kernels);
  add_avx512_int8(kernels);
  add_avx512_peak(kernels);
}

}  // namespace millrace::cpu

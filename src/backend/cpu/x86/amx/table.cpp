#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_amx(Kernels& kernels) {
  add_amx_int8(kernels);
  add_amx_half(kernels);
  add_amx_attend(kernels);
  add_amx_peak(kernels);
}

}  // namespace millrace::cpu

#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_amx_bf16(Kernels& kernels) {
  add_amx_wide(kernels);
  add_amx_half(kernels);
  add_amx_attend(kernels);
  add_amx_peak(kernels);
}

void add_amx(Kernels& kernels) { add_amx_int8(kernels); }

}  // namespace millrace::cpu

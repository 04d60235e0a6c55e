#include "backend/cpu/x86/formats256.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx2_int8(Kernels& kernels) { add_int8_entries(kernels); }

}  // namespace millrace::cpu

#include "backend/cpu/x86/float_tile.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx2_float(Kernels& kernels) { add_float_entries(kernels); }

}  // namespace millrace::cpu

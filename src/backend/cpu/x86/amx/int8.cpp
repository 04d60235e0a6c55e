// Quantised weights: tiles for sixteen rows and more, the avx512 row's dot products for fewer; the same bits.
#include "backend/cpu/x86/formats256.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_amx_int8(Kernels& kernels) { add_int8_entries(kernels); }

}  // namespace millrace::cpu

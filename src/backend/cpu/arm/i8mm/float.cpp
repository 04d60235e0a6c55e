// Half-precision weights with the widening product this folder is compiled for; the same bits as the neon row's.
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/i8mm/f16_linear.h"

namespace millrace::cpu {

void add_i8mm_float(Kernels& kernels) {
  kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(DType::f16)] = f16_kernel();
}

}  // namespace millrace::cpu

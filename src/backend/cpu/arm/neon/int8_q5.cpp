#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/int8_table.h"
#include "backend/cpu/arm/neon/dot32.h"

namespace millrace::cpu {

void add_neon_q5(Kernels& kernels) { add_q5_entries<Dot32Linear>(kernels); }

}  // namespace millrace::cpu

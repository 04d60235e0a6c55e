#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/int8_table.h"
#include "backend/cpu/arm/neon/dot256.h"

namespace millrace::cpu {

void add_neon_k236(Kernels& kernels) { add_k236_entries<Dot256Linear>(kernels); }

}  // namespace millrace::cpu

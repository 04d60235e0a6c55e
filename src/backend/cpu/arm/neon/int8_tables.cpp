#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/int8_table.h"
#include "backend/cpu/arm/neon/dot256.h"
#include "backend/cpu/arm/neon/dot32.h"

namespace millrace::cpu {

void add_neon_tables(Kernels& kernels) { add_table_entries<Dot32Linear, Dot256Linear>(kernels); }

}  // namespace millrace::cpu

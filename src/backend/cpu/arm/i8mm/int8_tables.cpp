#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/i8mm/group32.h"
#include "backend/cpu/arm/int8_table.h"

namespace millrace::cpu {

void add_i8mm_tables(Kernels& kernels) { add_table_entries<Group32Linear, Group256Linear>(kernels); }

}  // namespace millrace::cpu

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/int8_table.h"

namespace millrace::cpu {

void add_i8mm_k(Kernels& kernels) {
  add_k45_entries<Group256Linear>(kernels);
  add_k236_entries<Group256Linear>(kernels);
}

}  // namespace millrace::cpu

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/i8mm/group32.h"
#include "backend/cpu/arm/int8_table.h"

namespace millrace::cpu {

void add_i8mm_q(Kernels& kernels) {
  add_q4_q8_entries<Group32Linear>(kernels);
  add_q5_entries<Group32Linear>(kernels);
}

}  // namespace millrace::cpu

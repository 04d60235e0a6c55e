// Recurrent layers' states.
#include "backend/cpu/arm/states.h"

#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {

void add_neon_states(Kernels& kernels) { add_state_entries(kernels); }

}  // namespace millrace::cpu

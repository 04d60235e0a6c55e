// Recurrent layers' states.
#include "backend/cpu/x86/states.h"

#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx2_states(Kernels& kernels) { add_state_entries(kernels); }

}  // namespace millrace::cpu

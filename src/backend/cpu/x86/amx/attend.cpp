#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_amx_attend(Kernels&) {}

}  // namespace millrace::cpu

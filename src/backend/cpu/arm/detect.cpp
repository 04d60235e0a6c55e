#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {

bool neon_runs_here() {
  constexpr unsigned long kNeeded = HWCAP_ASIMDDP | HWCAP_FPHP | HWCAP_ASIMDHP;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
}

bool i8mm_runs_here() {
  constexpr unsigned long kNeeded = HWCAP2_I8MM | HWCAP2_BF16;
  return neon_runs_here() && (getauxval(AT_HWCAP) & HWCAP_ASIMDFHM) != 0 && (getauxval(AT_HWCAP2) & kNeeded) == kNeeded;
}

}  // namespace millrace::cpu

// Work on rows, attention and products in float32.
#include "backend/cpu/x86/rows.h"

#include "backend/cpu/x86/attend.h"
#include "backend/cpu/x86/attend_any.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {

void add_avx2_rows(Kernels& kernels) { add_row_entries(kernels); }
void add_avx2_attend(Kernels& kernels) {
  add_attend_entries(kernels);
  add_attend_any(kernels);
}

}  // namespace millrace::cpu

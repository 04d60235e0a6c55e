// The parts of the scalar row: plain C++ any machine runs, and the base every other row starts from.
#pragma once

#include "backend/cpu/kernels.h"

namespace millrace::cpu {

void add_scalar_linear(Kernels& kernels);
void add_scalar_rows(Kernels& kernels);
void add_scalar_states(Kernels& kernels);
void add_scalar_attend(Kernels& kernels);
void add_scalar_peak(Kernels& kernels);

}  // namespace millrace::cpu

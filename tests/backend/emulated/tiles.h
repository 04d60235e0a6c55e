// Tiles of bfloat16 in plain C++, so that what is written for them is tested on machines without.
#pragma once

#include "backend/cpu/kernels.h"

namespace millrace::testing {

// Puts attention by such tiles into a table of the row avx512; false: this processor is of another kind.
bool add_emulated_tiles(cpu::Kernels& kernels);

}  // namespace millrace::testing

// What products with float16 weights can reach at most: the peak of the arithmetic that an instruction set does them
// in. Any thread.
#pragma once

#include "backend/cpu/cpu.h"

namespace millrace {

double f16_peak(const CpuPeaks& peaks);  // operations a second

}  // namespace millrace

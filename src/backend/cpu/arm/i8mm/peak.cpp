#include "backend/cpu/arm/peak.h"

#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {
namespace {

void matrix_int8(int64_t rounds) { MILLRACE_PEAK_LOOP("smmla", "16b", rounds); }
void matrix_bf16(int64_t rounds) { MILLRACE_PEAK_LOOP("bfmmla", "8h", rounds); }

}  // namespace

void add_i8mm_peak(Kernels& kernels) {
  kernels.peaks[kPeakInt8] = {2.0 * 32 * kPeakChains, matrix_int8};
  kernels.peaks[kPeakBf16] = {2.0 * 16 * kPeakChains, matrix_bf16};
}

}  // namespace millrace::cpu

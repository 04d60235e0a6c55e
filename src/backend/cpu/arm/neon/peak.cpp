#include "backend/cpu/arm/peak.h"

#include "backend/cpu/arm/arm.h"

namespace millrace::cpu {
namespace {

void dot_int8(int64_t rounds) { MILLRACE_PEAK_LOOP("sdot", "16b", rounds); }
void multiply_f32(int64_t rounds) { MILLRACE_PEAK_LOOP("fmla", "4s", rounds); }

}  // namespace

void add_neon_peak(Kernels& kernels) {
  kernels.peaks[kPeakInt8] = {2.0 * 16 * kPeakChains, dot_int8};
  kernels.peaks[kPeakF32] = {2.0 * 4 * kPeakChains, multiply_f32};
}

}  // namespace millrace::cpu

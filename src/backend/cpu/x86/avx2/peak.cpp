#include "backend/cpu/x86/peak.h"

#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

// A dot product of bytes takes two multiplications and an addition here; the first is what limits it.
void multiply_int8(int64_t rounds) { MILLRACE_PEAK_LOOP("vpmaddubsw", "ymm", rounds); }
void multiply_f32(int64_t rounds) { MILLRACE_PEAK_LOOP("vfmadd231ps", "ymm", rounds); }

}  // namespace

void add_avx2_peak(Kernels& kernels) {
  kernels.peaks[kPeakInt8] = {2.0 * 32 * kPeakChains, multiply_int8};
  kernels.peaks[kPeakF32] = {2.0 * 8 * kPeakChains, multiply_f32};
}

}  // namespace millrace::cpu

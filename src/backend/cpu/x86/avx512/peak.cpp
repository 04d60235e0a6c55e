#include "backend/cpu/x86/peak.h"

#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

void dot_int8(int64_t rounds) { MILLRACE_PEAK_LOOP("vpdpbusd", "zmm", rounds); }
void multiply_f32(int64_t rounds) { MILLRACE_PEAK_LOOP("vfmadd231ps", "zmm", rounds); }

}  // namespace

void add_avx512_peak(Kernels& kernels) {
  kernels.peaks[kPeakInt8] = {2.0 * 64 * kPeakChains, dot_int8};
  kernels.peaks[kPeakF32] = {2.0 * 16 * kPeakChains, multiply_f32};
}

}  // namespace millrace::cpu

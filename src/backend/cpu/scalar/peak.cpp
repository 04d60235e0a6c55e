// The most float32 arithmetic plain C++ gets out of the baseline instruction set: independent chains of multiply and
// add.
#include "backend/cpu/scalar/scalar.h"

namespace millrace::cpu {
namespace {

using Floats = float __attribute__((vector_size(16)));
constexpr int kChains = 12;  // enough to hide the latency of an addition on anything

void multiply_add(int64_t rounds) {
  Floats sum[kChains] = {}, factor = {1e-7f, 1e-7f, 1e-7f, 1e-7f};
  asm volatile("" : "+m"(factor));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * factor + factor;
  }
  Floats all = {};
  for (const Floats& chain : sum) all += chain;
  asm volatile("" : : "m"(all));
}

}  // namespace

void add_scalar_peak(Kernels& kernels) { kernels.peaks[kPeakF32] = {2.0 * 4 * kChains, multiply_add}; }

}  // namespace millrace::cpu

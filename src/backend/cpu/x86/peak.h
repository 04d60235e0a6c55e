// Loops that do nothing but multiply and add on x86: twelve chains, enough to hide the latency of every instruction
// here. In assembly, because a compiler is free to drop, merge or spill what has no use.
#pragma once

#include <cstdint>

namespace millrace::cpu {

inline constexpr int kPeakChains = 12;

// One instruction on each of registers 0 to 11, with 14 and 15 as inputs; `r` is ymm or zmm.
#define MILLRACE_PEAK_ONE(op, r, a) op " %%" r "15, %%" r "14, %%" r #a "\n\t"
#define MILLRACE_PEAK_FOUR(op, r, a, b, c, d) \
  MILLRACE_PEAK_ONE(op, r, a)                 \
  MILLRACE_PEAK_ONE(op, r, b) MILLRACE_PEAK_ONE(op, r, c) MILLRACE_PEAK_ONE(op, r, d)

#define MILLRACE_PEAK_LOOP(op, r, rounds)                                                                         \
  do {                                                                                                            \
    int64_t left = (rounds);                                                                                      \
    asm volatile(                                                                                                 \
        "vzeroall\n"                                                                                              \
        "1:\n\t" MILLRACE_PEAK_FOUR(op, r, 0, 1, 2, 3) MILLRACE_PEAK_FOUR(op, r, 4, 5, 6, 7)                      \
            MILLRACE_PEAK_FOUR(op, r, 8, 9, 10, 11) "dec %0\n\tjg 1b\n"                                           \
        : "+r"(left)                                                                                              \
        :                                                                                                         \
        : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
          "xmm12", "xmm13", "xmm14", "xmm15");                                                                    \
  } while (0)

}  // namespace millrace::cpu

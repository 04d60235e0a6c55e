// Loops that do nothing but multiply and add on Arm: sixteen chains, enough to hide the latency of every instruction
// here. In assembly, because a compiler is free to drop, merge or spill what has no use. The inputs come from memory:
// some cores issue a matrix product at half rate if both its inputs were last written by vector instructions.
#pragma once

#include <cstdint>

namespace millrace::cpu {

inline constexpr int kPeakChains = 16;

// One instruction on each of v0 to v15, with v30 and v31 as inputs.
#define MILLRACE_PEAK_FOUR(op, input, a, b, c, d)                                                                  \
  op " v" #a ".4s, v30." input ", v31." input "\n\t" op " v" #b ".4s, v30." input ", v31." input "\n\t" op " v" #c \
     ".4s, v30." input ", v31." input "\n\t" op " v" #d ".4s, v30." input ", v31." input "\n\t"

#define MILLRACE_PEAK_LOOP(op, input, rounds)                                                                         \
  do {                                                                                                                \
    alignas(16) static const unsigned char zeros[32] = {};                                                            \
    int64_t left = (rounds);                                                                                          \
    asm volatile(                                                                                                     \
        "ldp q30, q31, [%1]\n"                                                                                        \
        "1:\n\t" MILLRACE_PEAK_FOUR(op, input, 0, 1, 2, 3) MILLRACE_PEAK_FOUR(op, input, 4, 5, 6, 7)                  \
            MILLRACE_PEAK_FOUR(op, input, 8, 9, 10, 11)                                                               \
                MILLRACE_PEAK_FOUR(op, input, 12, 13, 14, 15) "subs %0, %0, #1\n\tb.gt 1b\n"                          \
        : "+r"(left)                                                                                                  \
        : "r"(zeros), "m"(zeros)                                                                                      \
        : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", \
          "v30", "v31");                                                                                              \
  } while (0)

}  // namespace millrace::cpu

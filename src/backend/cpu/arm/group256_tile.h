// The integer part of group256.h's tile written as assembly for machines with i8mm: four rows by eight outputs over the
// eight spans of a group, everything in registers. Sums of a subgroup are scaled while the next one's products are under
// way. Integers: the same bits as the plain loop in whatever order.
#pragma once

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8

// v0-7 scaled sums [row pair][output pair], v8-15 sums of the subgroup at hand, v16-19 scales of the one before,
// v24-27 weights, v28-29 rows.
#define MILLRACE_MMLA(sum, row, weight) "smmla v" #sum ".4s, v" #row ".16b, v" #weight ".16b\n"
#define MILLRACE_LOAD_STEP(row_offset, offset)  \
  "ldp q28, q29, [%[rows], #" #row_offset "]\n" \
  "ldp q24, q25, [%[wide], #" #offset "]\n"     \
  "ldp q26, q27, [%[wide], #" #offset " + 32]\n"
#define MILLRACE_STEP                                                                                    \
  MILLRACE_MMLA(8, 28, 24)                                                                               \
  MILLRACE_MMLA(12, 29, 24) MILLRACE_MMLA(9, 28, 25) MILLRACE_MMLA(13, 29, 25) MILLRACE_MMLA(10, 28, 26) \
      MILLRACE_MMLA(14, 29, 26) MILLRACE_MMLA(11, 28, 27) MILLRACE_MMLA(15, 29, 27)
#define MILLRACE_SCALE(whole, sum, scale) "mla v" #whole ".4s, v" #sum ".4s, v" #scale ".4s\n"
// The first product of a sum, after the subgroup before has been taken from it.
#define MILLRACE_RESTART(whole, sum, scale, row, weight) \
  MILLRACE_SCALE(whole, sum, scale) "movi v" #sum ".4s, #0\n" MILLRACE_MMLA(sum, row, weight)
#define MILLRACE_FIRST_STEP                                                   \
  MILLRACE_RESTART(0, 8, 16, 28, 24)                                          \
  MILLRACE_RESTART(4, 12, 16, 29, 24) MILLRACE_RESTART(1, 9, 17, 28, 25)      \
      MILLRACE_RESTART(5, 13, 17, 29, 25) MILLRACE_RESTART(2, 10, 18, 28, 26) \
      MILLRACE_RESTART(6, 14, 18, 29, 26) MILLRACE_RESTART(3, 11, 19, 28, 27) \
      MILLRACE_RESTART(7, 15, 19, 29, 27)
#define MILLRACE_LOAD_SCALES(offset)          \
  "ldp q16, q17, [%[wide], #" #offset "]\n" \
  "ldp q18, q19, [%[wide], #" #offset " + 32]\n"
#define MILLRACE_CLEAR4(a, b, c, d) \
  "movi v" #a ".4s, #0\nmovi v" #b ".4s, #0\nmovi v" #c ".4s, #0\nmovi v" #d ".4s, #0\n"
// A loop over the spans of a group; `wide_bytes` of a span.
#define MILLRACE_SPANS(body, wide_bytes)                                                                       \
  asm volatile(                                                                                                \
      MILLRACE_CLEAR4(0, 1, 2, 3) MILLRACE_CLEAR4(4, 5, 6, 7) MILLRACE_CLEAR4(8, 9, 10, 11)                    \
      MILLRACE_CLEAR4(12, 13, 14, 15) MILLRACE_CLEAR4(16, 17, 18, 19)                                          \
      "1:\n" body                                                                                              \
      "add %[rows], %[rows], #128\n"                                                                           \
      "add %[wide], %[wide], #" #wide_bytes "\n"                                                               \
      "subs %[spans], %[spans], #1\n"                                                                          \
      "b.ne 1b\n"                                                                                              \
      MILLRACE_SCALE(0, 8, 16) MILLRACE_SCALE(1, 9, 17) MILLRACE_SCALE(2, 10, 18) MILLRACE_SCALE(3, 11, 19)    \
      MILLRACE_SCALE(4, 12, 16) MILLRACE_SCALE(5, 13, 17) MILLRACE_SCALE(6, 14, 18) MILLRACE_SCALE(7, 15, 19)  \
      "stp q0, q1, [%[whole]]\n"                                                                               \
      "stp q2, q3, [%[whole], #32]\n"                                                                          \
      "stp q4, q5, [%[whole], #64]\n"                                                                          \
      "stp q6, q7, [%[whole], #96]\n"                                                                          \
      : [rows] "+&r"(rows), [wide] "+&r"(wide), [spans] "+&r"(spans)                                           \
      : [whole] "r"(whole)                                                                                     \
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",       \
        "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v24", "v25", "v26", "v27", "v28", "v29")

// whole [2 row pairs][4 output pairs][4] = the rows' integers x a group of a wide panel, subgroups times their scales.
// One scale per 32 inputs, or two.
template <int halves>
inline void multiply_group256_tile(const std::byte* rows, const std::byte* wide, int32_t* whole) {
  int64_t spans = 8;
  if constexpr (halves == 1) {
    MILLRACE_SPANS(MILLRACE_LOAD_STEP(0, 64) MILLRACE_FIRST_STEP MILLRACE_LOAD_STEP(32, 128) MILLRACE_STEP
                   MILLRACE_LOAD_STEP(64, 192) MILLRACE_STEP MILLRACE_LOAD_STEP(96, 256) MILLRACE_STEP
                   MILLRACE_LOAD_SCALES(0), 320);
  } else {
    MILLRACE_SPANS(MILLRACE_LOAD_STEP(0, 128) MILLRACE_FIRST_STEP MILLRACE_LOAD_STEP(32, 192) MILLRACE_STEP
                   MILLRACE_LOAD_SCALES(0) MILLRACE_LOAD_STEP(64, 256) MILLRACE_FIRST_STEP
                   MILLRACE_LOAD_STEP(96, 320) MILLRACE_STEP MILLRACE_LOAD_SCALES(64), 384);
  }
}

#undef MILLRACE_MMLA
#undef MILLRACE_LOAD_STEP
#undef MILLRACE_STEP
#undef MILLRACE_SCALE
#undef MILLRACE_RESTART
#undef MILLRACE_FIRST_STEP
#undef MILLRACE_LOAD_SCALES
#undef MILLRACE_CLEAR4
#undef MILLRACE_SPANS

#endif

}  // namespace
}  // namespace millrace::cpu

// The tile of group256.h written as assembly for machines with i8mm: four rows by eight outputs over the eight spans of
// a group, everything in registers. Sums of a subgroup are scaled while the next one's products are under way. Floats
// are multiplied and added as in the plain loop: the same bits.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8

// v0-7 scaled sums [row pair][output pair], v8-15 sums of the subgroup at hand (and those before), v16-19 scales of the
// one before, v24-27 weights, v28-29 rows.
#define MILLRACE_LOAD_STEP(row_offset, offset) \
  "ldp q28, q29, [%[rows], #" #row_offset      \
  "]\n"                                        \
  "ldp q24, q25, [%[wide], #" #offset          \
  "]\n"                                        \
  "ldp q26, q27, [%[wide], #" #offset " + 32]\n"
#define MILLRACE_STEP       \
  MILLRACE_MMLA(8, 28, 24)  \
  MILLRACE_MMLA(12, 29, 24) \
  MILLRACE_MMLA(9, 28, 25)  \
  MILLRACE_MMLA(13, 29, 25) \
  MILLRACE_MMLA(10, 28, 26) MILLRACE_MMLA(14, 29, 26) MILLRACE_MMLA(11, 28, 27) MILLRACE_MMLA(15, 29, 27)
#define MILLRACE_SCALE(whole, sum, scale) "mla v" #whole ".4s, v" #sum ".4s, v" #scale ".4s\n"
// The first product of a subgroup, after the subgroup before has been scaled. With one scale sums start anew, with two
// they go on (see Group256Linear::kRunning).
#define MILLRACE_AGAIN(sum) "movi v" #sum ".4s, #0\n"
#define MILLRACE_ON(sum)
#define MILLRACE_START(start, whole, sum, scale, row, weight) \
  MILLRACE_SCALE(whole, sum, scale) start(sum) MILLRACE_MMLA(sum, row, weight)
#define MILLRACE_FIRST_STEP(start)         \
  MILLRACE_START(start, 0, 8, 16, 28, 24)  \
  MILLRACE_START(start, 4, 12, 16, 29, 24) \
  MILLRACE_START(start, 1, 9, 17, 28, 25)  \
  MILLRACE_START(start, 5, 13, 17, 29, 25) \
  MILLRACE_START(start, 2, 10, 18, 28, 26) \
  MILLRACE_START(start, 6, 14, 18, 29, 26) \
  MILLRACE_START(start, 3, 11, 19, 28, 27) MILLRACE_START(start, 7, 15, 19, 29, 27)
#define MILLRACE_LOAD_SCALES(offset)  \
  "ldp q16, q17, [%[wide], #" #offset \
  "]\n"                               \
  "ldp q18, q19, [%[wide], #" #offset " + 32]\n"
// Of pair p of outputs: sums += float(whole) * (the panel's factors * the rows').
#define MILLRACE_FLOATS(p, whole0, whole1, sums0, sums1) \
  "ldr q8, [%[wide], #" #p                               \
  " * 16]\n"                                             \
  "ldr q9, [%[sums], #" #sums0                           \
  "]\n"                                                  \
  "ldr q10, [%[sums], #" #sums1                          \
  "]\n"                                                  \
  "fmul v11.4s, v8.4s, v28.4s\n"                         \
  "fmul v12.4s, v8.4s, v29.4s\n"                         \
  "scvtf v" #whole0 ".4s, v" #whole0                     \
  ".4s\n"                                                \
  "scvtf v" #whole1 ".4s, v" #whole1                     \
  ".4s\n"                                                \
  "fmla v9.4s, v" #whole0                                \
  ".4s, v11.4s\n"                                        \
  "fmla v10.4s, v" #whole1 ".4s, v12.4s\n"
// sums -= float(minimums x the rows' sums) * (the minimums' factors * the rows'); high parts of sums count 64.
#define MILLRACE_MINIMUMS(p)         \
  "movi v13.4s, #0\n"                \
  "movi v14.4s, #0\n"                \
  "ldr q15, [%[wide], #128 + " #p    \
  " * 16]\n"                         \
  "smmla v13.4s, v26.16b, v15.16b\n" \
  "smmla v14.4s, v27.16b, v15.16b\n" \
  "ldr q8, [%[wide], #64 + " #p      \
  " * 16]\n"                         \
  "shl v13.4s, v13.4s, #6\n"         \
  "shl v14.4s, v14.4s, #6\n"         \
  "smmla v13.4s, v24.16b, v15.16b\n" \
  "smmla v14.4s, v25.16b, v15.16b\n" \
  "fmul v11.4s, v8.4s, v28.4s\n"     \
  "fmul v12.4s, v8.4s, v29.4s\n"     \
  "scvtf v13.4s, v13.4s\n"           \
  "scvtf v14.4s, v14.4s\n"           \
  "fmls v9.4s, v13.4s, v11.4s\n"     \
  "fmls v10.4s, v14.4s, v12.4s\n"
#define MILLRACE_STORE(sums0, sums1) \
  "str q9, [%[sums], #" #sums0       \
  "]\n"                              \
  "str q10, [%[sums], #" #sums1 "]\n"
// The spans of a group, `wide_bytes` each, then `finish` with what they left. No loop: its end would be mispredicted.
#define MILLRACE_SPANS(body, wide_bytes, finish)                                                                   \
  asm volatile(MILLRACE_CLEAR4(0, 1, 2, 3) MILLRACE_CLEAR4(4, 5, 6, 7) MILLRACE_CLEAR4(8, 9, 10, 11)               \
                   MILLRACE_CLEAR4(12, 13, 14, 15) MILLRACE_CLEAR4(                                                \
                       16, 17, 18, 19) ".rept 8\n" body                                                            \
                                       "add %[rows], %[rows], #128\n"                                              \
                                       "add %[wide], %[wide], #" #wide_bytes                                       \
                                       "\n"                                                                        \
                                       ".endr\n" MILLRACE_SCALE(0, 8, 16) MILLRACE_SCALE(1, 9, 17) MILLRACE_SCALE( \
                                           2, 10, 18) MILLRACE_SCALE(3, 11, 19) MILLRACE_SCALE(4, 12, 16)          \
                                           MILLRACE_SCALE(5, 13, 17) MILLRACE_SCALE(6, 14, 18)                     \
                                               MILLRACE_SCALE(7, 15, 19) "ldp q28, q29, [%[tile]]\n" finish        \
               : [rows] "+&r"(rows), [wide] "+&r"(wide)                                                            \
               : [tile] "r"(tile), [sums] "r"(sums)                                                                \
               : "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
                 "v14", "v15", "v16", "v17", "v18", "v19", "v24", "v25", "v26", "v27", "v28", "v29")
#define MILLRACE_ONE_SCALE                                                            \
  MILLRACE_LOAD_STEP(0, 64)                                                           \
  MILLRACE_FIRST_STEP(MILLRACE_AGAIN)                                                 \
  MILLRACE_LOAD_STEP(32, 128)                                                         \
  MILLRACE_STEP MILLRACE_LOAD_STEP(64, 192) MILLRACE_STEP MILLRACE_LOAD_STEP(96, 256) \
      MILLRACE_STEP MILLRACE_LOAD_SCALES(0)
#define MILLRACE_TWO_SCALES                                                                          \
  MILLRACE_LOAD_STEP(0, 128)                                                                         \
  MILLRACE_FIRST_STEP(MILLRACE_ON)                                                                   \
  MILLRACE_LOAD_STEP(32, 192)                                                                        \
  MILLRACE_STEP MILLRACE_LOAD_SCALES(0) MILLRACE_LOAD_STEP(64, 256) MILLRACE_FIRST_STEP(MILLRACE_ON) \
      MILLRACE_LOAD_STEP(96, 320) MILLRACE_STEP MILLRACE_LOAD_SCALES(64)
#define MILLRACE_FACTORS           \
  MILLRACE_FLOATS(0, 0, 4, 0, 64)  \
  MILLRACE_STORE(0, 64)            \
  MILLRACE_FLOATS(1, 1, 5, 16, 80) \
  MILLRACE_STORE(16, 80)           \
  MILLRACE_FLOATS(2, 2, 6, 32, 96) MILLRACE_STORE(32, 96) MILLRACE_FLOATS(3, 3, 7, 48, 112) MILLRACE_STORE(48, 112)
#define MILLRACE_FACTORS_AND_MINIMUMS                                                                               \
  "ldp q24, q25, [%[tile], #32]\n"                                                                                  \
  "ldp q26, q27, [%[tile], #64]\n" MILLRACE_FLOATS(0, 0, 4, 0, 64) MILLRACE_MINIMUMS(0) MILLRACE_STORE(0, 64)       \
      MILLRACE_FLOATS(1, 1, 5, 16, 80) MILLRACE_MINIMUMS(1) MILLRACE_STORE(16, 80) MILLRACE_FLOATS(2, 2, 6, 32, 96) \
          MILLRACE_MINIMUMS(2) MILLRACE_STORE(32, 96) MILLRACE_FLOATS(3, 3, 7, 48, 112) MILLRACE_MINIMUMS(3)        \
              MILLRACE_STORE(48, 112)

// sums of a tile += a group of prepared rows (`values` bytes in, their integers) x a group of a wide panel. One scale
// per 32 inputs (halves 1), without or with minimums, or two and no minimums.
template <int halves, bool mins>
inline void multiply_group256_tile(const std::byte* tile, int64_t values, const std::byte* wide, float* sums) {
  static_assert(halves == 1 || !mins);
  const std::byte* rows = tile + values;
  if constexpr (halves == 1 && mins) {
    MILLRACE_SPANS(MILLRACE_ONE_SCALE, 320, MILLRACE_FACTORS_AND_MINIMUMS);
  } else if constexpr (halves == 1) {
    MILLRACE_SPANS(MILLRACE_ONE_SCALE, 320, MILLRACE_FACTORS);
  } else {
    MILLRACE_SPANS(MILLRACE_TWO_SCALES, 384, MILLRACE_FACTORS);
  }
}

#undef MILLRACE_LOAD_STEP
#undef MILLRACE_STEP
#undef MILLRACE_SCALE
#undef MILLRACE_AGAIN
#undef MILLRACE_ON
#undef MILLRACE_START
#undef MILLRACE_FIRST_STEP
#undef MILLRACE_LOAD_SCALES
#undef MILLRACE_FLOATS
#undef MILLRACE_MINIMUMS
#undef MILLRACE_STORE
#undef MILLRACE_SPANS
#undef MILLRACE_ONE_SCALE
#undef MILLRACE_TWO_SCALES
#undef MILLRACE_FACTORS
#undef MILLRACE_FACTORS_AND_MINIMUMS

#endif

}  // namespace
}  // namespace millrace::cpu

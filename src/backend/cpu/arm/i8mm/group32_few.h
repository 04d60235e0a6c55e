// Two to four rows against packed weights of Q4_0, as assembly for machines with i8mm: widening a panel first would
// take longer than multiplying it. With b = l + 16 h a vector of bytes, low nibbles l being of other outputs than high
// ones h, x = b & 0xf0 and a the rows: a x = 16 a h, and a b - a x = a l, so low nibbles need not be taken out at all.
// They stand for themselves less 8, so their sums start from -8 times the sum of the row's integers, which prepared
// rows have.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

// clang-format off

// v8-9 and v10-11 sums of bytes of two vectors, v12-13 and v14-15 of their high nibbles, each of one pair of rows and
// of the other; v18-19 bytes, v20-21 high nibbles, v22-23 rows, v29 mask.
#define MILLRACE_STEP(second, step)                                          \
  "ldp q22, q23, [%[rows], #32 + 32 * " #step "]\n"                          \
  "ldp q18, q19, [%[group], #16 + 32 * " #step "]\n"                         \
  "and v20.16b, v18.16b, v29.16b\n"                                          \
  "and v21.16b, v19.16b, v29.16b\n"                                          \
  MILLRACE_MMLA(8, 22, 18) second(MILLRACE_MMLA(9, 23, 18))                  \
  MILLRACE_MMLA(10, 22, 19) second(MILLRACE_MMLA(11, 23, 19))                \
  MILLRACE_MMLA(12, 22, 20) second(MILLRACE_MMLA(13, 23, 20))                \
  MILLRACE_MMLA(14, 22, 21) second(MILLRACE_MMLA(15, 23, 21))
#define MILLRACE_LESS(bytes, high) "sub v" #bytes ".4s, v" #bytes ".4s, v" #high ".4s\n"
#define MILLRACE_ADD(run, sum, factor)                                       \
  "scvtf v" #sum ".4s, v" #sum ".4s\n"                                       \
  "fmla v" #run ".4s, v" #sum ".4s, v" #factor ".4s\n"
// v0-3 and v4-7 sums of the run, of pairs of outputs 0 1 2 3; v24-27 their factors.
#define MILLRACE_FEW(second)                                                                                         \
  asm volatile("movi v29.16b, #0xf0\n"                                                                               \
               "1:\n"                                                                                                \
               MILLRACE_CLEAR4(0, 1, 2, 3) second(MILLRACE_CLEAR4(4, 5, 6, 7))                                       \
               "cmp %[groups], %[shared]\n"                                                                          \
               "csel %[run], %[groups], %[shared], lt\n"                                                             \
               "sub %[groups], %[groups], %[run]\n"                                                                  \
               "2:\n"                                                                                                \
               "ldr q8, [%[starts]]\n" "ldr q10, [%[starts]]\n" "movi v12.4s, #0\n" "movi v14.4s, #0\n"              \
               second("ldr q9, [%[starts], #16]\n" "ldr q11, [%[starts], #16]\n" "movi v13.4s, #0\n"                 \
                      "movi v15.4s, #0\n")                                                                           \
               MILLRACE_FETCH(0) MILLRACE_STEP(second, 0)                                                            \
               MILLRACE_FETCH(64) MILLRACE_STEP(second, 1)                                                           \
               MILLRACE_FETCH(128) MILLRACE_STEP(second, 2)                                                          \
               "ldr q26, [%[group]]\n"                                                                               \
               "fcvtl v24.4s, v26.4h\n"                                                                              \
               "fcvtl2 v26.4s, v26.8h\n"                                                                             \
               MILLRACE_STEP(second, 3)                                                                              \
               "uzp2 v25.4s, v24.4s, v24.4s\n"                                                                       \
               "uzp2 v27.4s, v26.4s, v26.4s\n"                                                                       \
               "uzp1 v24.4s, v24.4s, v24.4s\n"                                                                       \
               "uzp1 v26.4s, v26.4s, v26.4s\n"                                                                       \
               MILLRACE_LESS(8, 12) second(MILLRACE_LESS(9, 13))                                                     \
               MILLRACE_LESS(10, 14) second(MILLRACE_LESS(11, 15))                                                   \
               MILLRACE_ADD(0, 8, 24) second(MILLRACE_ADD(4, 9, 24))                                                 \
               MILLRACE_ADD(1, 10, 26) second(MILLRACE_ADD(5, 11, 26))                                               \
               MILLRACE_ADD(2, 12, 25) second(MILLRACE_ADD(6, 13, 25))                                               \
               MILLRACE_ADD(3, 14, 27) second(MILLRACE_ADD(7, 15, 27))                                               \
               "add %[rows], %[rows], #160\n"                                                                        \
               "add %[starts], %[starts], #32\n"                                                                     \
               "add %[group], %[group], #144\n"                                                                      \
               "add %[ahead], %[ahead], #144\n"                                                                      \
               "subs %[run], %[run], #1\n"                                                                           \
               "b.ne 2b\n"                                                                                           \
               "ldp q8, q9, [%[totals]]\n"                                                                           \
               "ldp q10, q11, [%[totals], #32]\n"                                                                    \
               "ldp q16, q17, [%[rows], #-160]\n"                                                                    \
               "fmla v8.4s, v0.4s, v16.4s\n"                                                                         \
               "fmla v9.4s, v1.4s, v16.4s\n"                                                                         \
               "fmla v10.4s, v2.4s, v16.4s\n"                                                                        \
               "fmla v11.4s, v3.4s, v16.4s\n"                                                                        \
               "stp q8, q9, [%[totals]]\n"                                                                           \
               "stp q10, q11, [%[totals], #32]\n"                                                                    \
               second("ldp q12, q13, [%[totals], #64]\n"                                                             \
                      "ldp q14, q15, [%[totals], #96]\n"                                                             \
                      "fmla v12.4s, v4.4s, v17.4s\n"                                                                 \
                      "fmla v13.4s, v5.4s, v17.4s\n"                                                                 \
                      "fmla v14.4s, v6.4s, v17.4s\n"                                                                 \
                      "fmla v15.4s, v7.4s, v17.4s\n"                                                                 \
                      "stp q12, q13, [%[totals], #64]\n"                                                             \
                      "stp q14, q15, [%[totals], #96]\n")                                                            \
               "cbnz %[groups], 1b\n"                                                                                \
               : [rows] "+&r"(rows), [starts] "+&r"(starts), [group] "+&r"(group), [groups] "+&r"(groups),           \
                 [ahead] "+&r"(ahead), [run] "=&r"(run)                                                              \
               : [totals] "r"(totals), [shared] "r"(kSharedGroups)                                                   \
               : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",    \
                 "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",   \
                 "v27", "v29")

// totals of a tile += groups of Q4_0 x prepared rows, `pairs` (1 or 2) of them. Every eight groups are a run that shares
// the rows' factors (group32.h); `starts` is what sums of low nibbles start from. Totals of high nibbles (pairs of
// outputs 2 and 3) are 16-fold. Asks the memory for what lies at `ahead`.
template <int pairs>
inline void multiply_q4_0_few(const std::byte* rows, const std::byte* starts, const std::byte* group,
                              int64_t groups, const std::byte* ahead, float* totals) {
  int64_t run;
  if constexpr (pairs == 2) {
    MILLRACE_FEW(MILLRACE_TWO_PAIRS);
  } else {
    MILLRACE_FEW(MILLRACE_ONE_PAIR);
  }
}

#undef MILLRACE_STEP
#undef MILLRACE_LESS
#undef MILLRACE_ADD
#undef MILLRACE_FEW

// clang-format on

}  // namespace
}  // namespace millrace::cpu

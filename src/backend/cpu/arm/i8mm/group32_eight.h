// Eight rows against packed weights of Q4_0, as assembly for machines with i8mm: four outputs at a time, so that a
// vector of codes, which has a pair of outputs low and another high (see Q4_0), is loaded once, taken apart once and
// meets four pairs of rows. That is as many instructions as a widened panel takes, and nothing has to be widened. As in
// group32_few.h low nibbles stay where they are: with b = l + 16 h, x = b & 0xf0 and a the rows, a b - a x = a l. They
// stand for themselves less 8, so their sums start from -8 times the sum of the row's integers, which prepared rows
// have. The order of every sum is that of group32.h: the same bits.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

// clang-format off

// v0-3 sums of the run of low nibbles, v4-7 of high ones; v8-11 integer sums of bytes, v12-15 of high nibbles, of the
// group at hand; v16-19 and v20-23 rows, v24 and v26 bytes, v25 and v27 high nibbles, v28 mask, v29 and v30 factors of
// low and high nibbles' outputs, v31 sums as float.
#define MILLRACE_MASK(to, bytes, mask) "and v" #to ".16b, v" #bytes ".16b, v" #mask ".16b\n"
#define MILLRACE_LESS(bytes, high) "sub v" #bytes ".4s, v" #bytes ".4s, v" #high ".4s\n"
#define MILLRACE_FLOAT(to, from) "scvtf v" #to ".4s, v" #from ".4s\n"
#define MILLRACE_ADD(sum, a, b) "fmla v" #sum ".4s, v" #a ".4s, v" #b ".4s\n"
#define MILLRACE_LOAD_FACTORS "ldr d29, [%[factors]]\n"
#define MILLRACE_WIDEN_FACTORS "fcvtl v29.4s, v29.4h\n"
#define MILLRACE_FACTORS_OF_HIGH "uzp2 v30.4s, v29.4s, v29.4s\n"
#define MILLRACE_FACTORS_OF_LOW "uzp1 v29.4s, v29.4s, v29.4s\n"
#define MILLRACE_NOTHING(offset)

#define MILLRACE_STEP(at, offset)                                                                                   \
  MILLRACE_LOAD2(rows, at, 16, 17) MILLRACE_LOAD2(others, at, 18, 19)                                               \
  MILLRACE_LOAD(codes, offset, 24) MILLRACE_MASK(25, 24, 28)                                                        \
  MILLRACE_MMLA(8, 16, 24) MILLRACE_MMLA(12, 16, 25) MILLRACE_MMLA(9, 17, 24) MILLRACE_MMLA(13, 17, 25)             \
  MILLRACE_MMLA(10, 18, 24) MILLRACE_MMLA(14, 18, 25) MILLRACE_MMLA(11, 19, 24) MILLRACE_MMLA(15, 19, 25)
// The first group's products: there is none before it.
#define MILLRACE_FIRST_GROUP(FETCH, FETCHED)                                                                        \
  MILLRACE_LOAD2(starts, 0, 8, 9) MILLRACE_LOAD2(other_starts, 0, 10, 11) MILLRACE_CLEAR4(12, 13, 14, 15)           \
  FETCH(0) MILLRACE_STEP(32, 0) FETCH(64) MILLRACE_STEP(64, 32)                                                     \
  FETCH(128) MILLRACE_STEP(96, 64) MILLRACE_STEP(128, 96)                                                           \
  FETCHED                                                                                                           \
  "add %[rows], %[rows], #160\n"                                                                                    \
  "add %[others], %[others], #160\n"                                                                                \
  "add %[starts], %[starts], #32\n"                                                                                 \
  "add %[other_starts], %[other_starts], #32\n"                                                                     \
  "add %[codes], %[codes], #144\n"
// The last group's sums: there is none after it.
#define MILLRACE_LAST_GROUP                                                                                         \
  MILLRACE_LOAD_FACTORS MILLRACE_WIDEN_FACTORS MILLRACE_FACTORS_OF_HIGH MILLRACE_FACTORS_OF_LOW                     \
  MILLRACE_LESS(8, 12) MILLRACE_LESS(9, 13) MILLRACE_LESS(10, 14) MILLRACE_LESS(11, 15)                             \
  MILLRACE_FLOAT(8, 8) MILLRACE_FLOAT(9, 9) MILLRACE_FLOAT(10, 10) MILLRACE_FLOAT(11, 11)                           \
  MILLRACE_FLOAT(12, 12) MILLRACE_FLOAT(13, 13) MILLRACE_FLOAT(14, 14) MILLRACE_FLOAT(15, 15)                       \
  MILLRACE_ADD(0, 8, 29) MILLRACE_ADD(1, 9, 29) MILLRACE_ADD(2, 10, 29) MILLRACE_ADD(3, 11, 29)                     \
  MILLRACE_ADD(4, 12, 30) MILLRACE_ADD(5, 13, 30) MILLRACE_ADD(6, 14, 30) MILLRACE_ADD(7, 15, 30)
// A pair of rows' totals += the run's sums times the rows' factors; the next run starts from zero.
#define MILLRACE_TAKE(low, high, at, factors)                                                                       \
  MILLRACE_LOAD(totals, at, 16) MILLRACE_LOAD(totals, at + 32, 17)                                                  \
  MILLRACE_ADD(16, low, factors) MILLRACE_ADD(17, high, factors) MILLRACE_CLEAR(low) MILLRACE_CLEAR(high)           \
  "str q16, [%[totals], #" #at "]\n"                                                                                \
  "str q17, [%[totals], #" #at " + 32]\n"
// The run that ended `back` bytes ago.
#define MILLRACE_TAKE_RUN(back)                                                                                     \
  MILLRACE_LOAD2(rows, -back, 18, 19) MILLRACE_LOAD2(others, -back, 20, 21)                                         \
  MILLRACE_TAKE(0, 4, 0, 18) MILLRACE_TAKE(1, 5, 64, 19) MILLRACE_TAKE(2, 6, 128, 20) MILLRACE_TAKE(3, 7, 192, 21)
#define MILLRACE_EIGHT(FETCH, FETCHED)                                                                              \
  asm volatile("movi v28.16b, #0xf0\n"                                                                              \
               MILLRACE_CLEAR4(0, 1, 2, 3) MILLRACE_CLEAR4(4, 5, 6, 7)                                              \
               MILLRACE_FIRST_GROUP(FETCH, FETCHED)                                                                 \
               "subs %[groups], %[groups], #1\n"                                                                    \
               "b.eq 3f\n"                                                                                          \
               "1:\n"                                                                                               \
               MILLRACE_LOAD_FACTORS MILLRACE_WIDEN_FACTORS MILLRACE_LOAD(codes, 0, 24) MILLRACE_MASK(25, 24, 28)   \
               MILLRACE_FACTORS_OF_HIGH MILLRACE_LOAD(codes, 32, 26) MILLRACE_FACTORS_OF_LOW MILLRACE_LESS(8, 12)   \
               MILLRACE_FLOAT(31, 12) MILLRACE_LOAD2(rows, 32, 16, 17) MILLRACE_FLOAT(8, 8)                         \
               MILLRACE_ADD(4, 31, 30) MILLRACE_FLOAT(31, 13) MILLRACE_LESS(9, 13) MILLRACE_FLOAT(9, 9)             \
               MILLRACE_ADD(0, 8, 29) MILLRACE_LOAD(starts, 0, 8) MILLRACE_MMLA(8, 16, 24) MILLRACE_CLEAR(13)       \
               MILLRACE_MMLA(13, 17, 25) MILLRACE_MASK(27, 26, 28) MILLRACE_LOAD2(others, 32, 18, 19)               \
               MILLRACE_ADD(5, 31, 30) MILLRACE_FLOAT(31, 14) MILLRACE_LESS(10, 14) MILLRACE_CLEAR(14)              \
               MILLRACE_FLOAT(10, 10) MILLRACE_ADD(1, 9, 29) MILLRACE_LOAD(starts, 16, 9) MILLRACE_CLEAR(12)        \
               MILLRACE_LESS(11, 15) MILLRACE_FLOAT(11, 11) MILLRACE_ADD(3, 11, 29) MILLRACE_LOAD(other_starts, 16, 11)\
               MILLRACE_MMLA(11, 19, 24) MILLRACE_MMLA(12, 16, 25) FETCH(0) MILLRACE_LOAD2(rows, 64, 20, 21)        \
               MILLRACE_MMLA(9, 17, 24) MILLRACE_MMLA(14, 18, 25) MILLRACE_ADD(2, 10, 29)                           \
               MILLRACE_LOAD(other_starts, 0, 10) MILLRACE_MMLA(10, 18, 24) MILLRACE_LOAD2(others, 64, 22, 23)      \
               MILLRACE_MMLA(10, 22, 26) MILLRACE_LOAD(codes, 64, 24) MILLRACE_ADD(6, 31, 30)                       \
               MILLRACE_FLOAT(31, 15) MILLRACE_CLEAR(15) MILLRACE_MMLA(15, 19, 25) MILLRACE_MASK(25, 24, 28)        \
               MILLRACE_MMLA(14, 22, 27) MILLRACE_MMLA(13, 21, 27) MILLRACE_MMLA(8, 20, 26) FETCH(64)               \
               MILLRACE_MMLA(11, 23, 26) MILLRACE_MMLA(9, 21, 26) MILLRACE_LOAD(codes, 96, 26)                      \
               MILLRACE_MMLA(15, 23, 27) MILLRACE_LOAD2(others, 96, 18, 19) MILLRACE_MMLA(12, 20, 27)               \
               MILLRACE_MASK(27, 26, 28) MILLRACE_MMLA(10, 18, 24) MILLRACE_MMLA(11, 19, 24)                        \
               MILLRACE_LOAD2(rows, 96, 16, 17) MILLRACE_MMLA(8, 16, 24) MILLRACE_LOAD2(rows, 128, 20, 21)          \
               MILLRACE_MMLA(12, 16, 25) FETCH(128) MILLRACE_MMLA(12, 20, 27) MILLRACE_MMLA(15, 19, 25)             \
               MILLRACE_MMLA(14, 18, 25) MILLRACE_MMLA(9, 17, 24) MILLRACE_MMLA(13, 17, 25)                         \
               MILLRACE_MMLA(8, 20, 26) MILLRACE_LOAD2(others, 128, 22, 23) MILLRACE_MMLA(14, 22, 27)               \
               MILLRACE_MMLA(11, 23, 26) MILLRACE_MMLA(13, 21, 27) MILLRACE_MMLA(9, 21, 26)                         \
               MILLRACE_MMLA(10, 22, 26) MILLRACE_MMLA(15, 23, 27) MILLRACE_ADD(7, 31, 30)                          \
               "add %[rows], %[rows], #160\n"                                                                       \
               "add %[others], %[others], #160\n"                                                                   \
               "add %[starts], %[starts], #32\n"                                                                    \
               "add %[other_starts], %[other_starts], #32\n"                                                        \
               "add %[codes], %[codes], #144\n"                                                                     \
               "add %[factors], %[factors], #144\n"                                                                 \
               FETCHED                                                                                              \
               "subs %[left], %[left], #1\n"                                                                        \
               "b.ne 2f\n"                                                                                          \
               MILLRACE_TAKE_RUN(320)                                                                               \
               "mov %[left], %[shared]\n"                                                                           \
               "2:\n"                                                                                               \
               "subs %[groups], %[groups], #1\n"                                                                    \
               "b.ne 1b\n"                                                                                          \
               "3:\n"                                                                                               \
               MILLRACE_LAST_GROUP                                                                                  \
               MILLRACE_TAKE_RUN(160)                                                                               \
               : [rows] "+&r"(rows), [others] "+&r"(others), [starts] "+&r"(starts), [other_starts] "+&r"(other_starts),\
                 [codes] "+&r"(codes), [factors] "+&r"(factors),                                                    \
                 [groups] "+&r"(groups), [ahead] "+&r"(ahead), [left] "+&r"(left)                                   \
               : [totals] "r"(totals), [shared] "r"(kSharedGroups)                                                  \
               : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",   \
                 "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",  \
                 "v27", "v28", "v29", "v30", "v31")

// totals of two tiles += groups of Q4_0 x prepared rows, of pairs of outputs `half` and half + 2. `groups` start with a
// run. Rows, what sums of low nibbles start from, and totals: the second tile's follow the first's. Totals of high
// nibbles (pairs 2 and 3) are 16-fold. Asks the memory for what lies at `ahead`, if that is not null.
inline void multiply_q4_0_eight(const std::byte* rows, const std::byte* starts, const std::byte* group, int half,
                                int64_t groups, const std::byte* ahead, float* totals) {
  const std::byte *others = rows + groups * 160, *other_starts = starts + groups * 32;
  const std::byte *factors = group + 8 * half, *codes = group + 16 + 16 * half;
  totals += 4 * half;
  int64_t left = kSharedGroups;
  if (ahead != nullptr) {
    MILLRACE_EIGHT(MILLRACE_FETCH, "add %[ahead], %[ahead], #144\n");
  } else {
    MILLRACE_EIGHT(MILLRACE_NOTHING, );
  }
}

#undef MILLRACE_MASK
#undef MILLRACE_LESS
#undef MILLRACE_FLOAT
#undef MILLRACE_ADD
#undef MILLRACE_LOAD_FACTORS
#undef MILLRACE_WIDEN_FACTORS
#undef MILLRACE_FACTORS_OF_HIGH
#undef MILLRACE_FACTORS_OF_LOW
#undef MILLRACE_NOTHING
#undef MILLRACE_STEP
#undef MILLRACE_FIRST_GROUP
#undef MILLRACE_LAST_GROUP
#undef MILLRACE_TAKE
#undef MILLRACE_TAKE_RUN
#undef MILLRACE_EIGHT

// clang-format on

}  // namespace
}  // namespace millrace::cpu

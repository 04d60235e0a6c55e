// The tile of group32.h written as assembly for machines with i8mm: four rows by eight outputs over any number of
// groups. Compilers keep the sums of such a loop in memory; here everything stays in registers, and a group's float
// arithmetic goes with the matrix products of the group after it. The order of instructions was searched for by
// measuring (lab/arm_tile_order.cpp): results of float multiplications and of matrix products stand in each other's
// way, so each kind had better come in a row. The order of every sum is that of the plain loop: the same bits. Sums
// come and go in registers: with few groups, a way through memory for each tile would take a tenth of the time.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kTile32Bytes = 160;  // of a tile of rows, a group
constexpr int64_t kTileAhead = 192;    // asked for with every group

// Registers: %[s0]-%[s7] (the compiler's choice) sums [row pair][output pair], v8-15 integer sums of the group at hand;
// in the loop v16-17 those of the group before as float, v18-19 factors of its rows, v20-21 those of its outputs and
// their products, v22-27 weights, v28-31 rows.
#define MILLRACE_FLOAT(to, from) "scvtf v" #to ".4s, v" #from ".4s\n"
#define MILLRACE_FMUL(to, a, b) "fmul v" #to ".4s, v" #a ".4s, v" #b ".4s\n"
#define MILLRACE_ADD(sum, a, b) "fmla v" #sum ".4s, v" #a ".4s, v" #b ".4s\n"
#define MILLRACE_FMLA(sum, a, b) "fmla %[s" #sum "].4s, v" #a ".4s, v" #b ".4s\n"
#define MILLRACE_LOAD_STEP(row_offset, offset) \
  "ldp q28, q29, [%[rows], #" #row_offset      \
  "]\n"                                        \
  "ldp q24, q25, [%[values], #" #offset        \
  "]\n"                                        \
  "ldp q26, q27, [%[values], #" #offset " + 32]\n"
#define MILLRACE_STEP       \
  MILLRACE_MMLA(8, 28, 24)  \
  MILLRACE_MMLA(12, 29, 24) \
  MILLRACE_MMLA(9, 28, 25)  \
  MILLRACE_MMLA(13, 29, 25) \
  MILLRACE_MMLA(10, 28, 26) MILLRACE_MMLA(14, 29, 26) MILLRACE_MMLA(11, 28, 27) MILLRACE_MMLA(15, 29, 27)
#define MILLRACE_FETCHED "add %[ahead], %[ahead], #192\n"
#define MILLRACE_NOTHING(offset)

// clang-format off
// The first group's products: there is none before it.
#define MILLRACE_FIRST_GROUP(FETCH, FETCHED) \
  MILLRACE_CLEAR(8) MILLRACE_CLEAR(9) MILLRACE_CLEAR(10) MILLRACE_CLEAR(11) \
  MILLRACE_CLEAR(12) MILLRACE_CLEAR(13) MILLRACE_CLEAR(14) MILLRACE_CLEAR(15) \
  FETCH(0) MILLRACE_LOAD_STEP(32, 0) MILLRACE_STEP \
  FETCH(64) MILLRACE_LOAD_STEP(64, 64) MILLRACE_STEP \
  FETCH(128) MILLRACE_LOAD_STEP(96, 128) MILLRACE_STEP \
  MILLRACE_LOAD_STEP(128, 192) MILLRACE_STEP \
  FETCHED \
  "add %[rows], %[rows], #160\n" \
  "add %[values], %[values], %[value_bytes]\n" \
  "subs %[groups], %[groups], #1\n"
// clang-format on

// The last group has none after it.
#define MILLRACE_TILE(FETCH, FETCHED) \
  asm volatile(\
      MILLRACE_FIRST_GROUP(FETCH, FETCHED)\
      "b.eq 2f\n"\
      "1:\n"\
      MILLRACE_LOAD2(rows, -160, 18, 19) MILLRACE_LOAD(factors, 0, 20) MILLRACE_FLOAT(16, 8) FETCH(0)\
      MILLRACE_FLOAT(17, 12) MILLRACE_LOAD2(values, 0, 22, 23) MILLRACE_FMUL(21, 20, 18)\
      MILLRACE_FMLA(0, 16, 21) MILLRACE_FMUL(20, 20, 19) MILLRACE_LOAD2(rows, 32, 28, 29)\
      MILLRACE_LOAD2(values, 32, 24, 25) MILLRACE_FMLA(4, 17, 20) MILLRACE_FLOAT(17, 13)\
      MILLRACE_LOAD(factors, 16, 20) MILLRACE_FLOAT(16, 9) MILLRACE_CLEAR(8) MILLRACE_MMLA(8, 28, 22)\
      MILLRACE_CLEAR(9) MILLRACE_MMLA(9, 28, 23) MILLRACE_FMUL(21, 20, 18) MILLRACE_FMUL(20, 20, 19)\
      MILLRACE_FMLA(5, 17, 20) MILLRACE_LOAD(factors, 32, 20) MILLRACE_FMLA(1, 16, 21) MILLRACE_CLEAR(12)\
      MILLRACE_FLOAT(16, 10) MILLRACE_CLEAR(10) MILLRACE_MMLA(10, 28, 24) MILLRACE_MMLA(12, 29, 22)\
      MILLRACE_FMUL(21, 20, 18) MILLRACE_FMUL(20, 20, 19) MILLRACE_LOAD2(rows, 64, 30, 31)\
      MILLRACE_FLOAT(17, 14) MILLRACE_CLEAR(13) FETCH(64) MILLRACE_MMLA(13, 29, 23)\
      MILLRACE_FMLA(2, 16, 21) MILLRACE_FMLA(6, 17, 20) MILLRACE_FLOAT(17, 15) MILLRACE_LOAD(factors, 48, 20)\
      MILLRACE_FLOAT(16, 11) MILLRACE_CLEAR(15) MILLRACE_CLEAR(11) MILLRACE_LOAD2(values, 64, 26, 27)\
      MILLRACE_LOAD2(values, 96, 22, 23) MILLRACE_MMLA(11, 28, 25) MILLRACE_MMLA(15, 29, 25) MILLRACE_CLEAR(14)\
      MILLRACE_MMLA(14, 29, 24) MILLRACE_LOAD2(values, 128, 24, 25) MILLRACE_MMLA(10, 30, 22)\
      MILLRACE_MMLA(9, 30, 27) MILLRACE_FMUL(21, 20, 18) MILLRACE_FMUL(20, 20, 19) MILLRACE_MMLA(8, 30, 26)\
      MILLRACE_MMLA(11, 30, 23) MILLRACE_LOAD2(rows, 96, 28, 29) MILLRACE_MMLA(13, 31, 27)\
      MILLRACE_MMLA(12, 31, 26) MILLRACE_MMLA(15, 31, 23) MILLRACE_MMLA(14, 31, 22)\
      MILLRACE_LOAD2(values, 160, 26, 27) MILLRACE_MMLA(14, 29, 26) FETCH(128)\
      MILLRACE_LOAD2(values, 192, 22, 23) MILLRACE_MMLA(8, 28, 24) MILLRACE_MMLA(12, 29, 24)\
      MILLRACE_MMLA(9, 28, 25) MILLRACE_FMLA(7, 17, 20) MILLRACE_MMLA(10, 28, 26) MILLRACE_MMLA(15, 29, 27)\
      MILLRACE_LOAD2(rows, 128, 30, 31) MILLRACE_MMLA(8, 30, 22) MILLRACE_MMLA(13, 29, 25)\
      MILLRACE_MMLA(13, 31, 23) MILLRACE_MMLA(11, 28, 27) MILLRACE_MMLA(12, 31, 22) MILLRACE_FMLA(3, 16, 21)\
      MILLRACE_LOAD2(values, 224, 24, 25) MILLRACE_MMLA(10, 30, 24) MILLRACE_MMLA(15, 31, 25)\
      MILLRACE_MMLA(9, 30, 23) MILLRACE_MMLA(14, 31, 24) MILLRACE_MMLA(11, 30, 25)\
      "add %[rows], %[rows], #160\n"\
      "add %[values], %[values], %[value_bytes]\n"\
      "add %[factors], %[factors], #64\n"\
      FETCHED\
      "subs %[groups], %[groups], #1\n"\
      "b.ne 1b\n"\
      "2:\n"\
      "ldp q30, q31, [%[rows], #-160]\n"\
      "ldp q24, q25, [%[factors]]\n"\
      "ldp q26, q27, [%[factors], #32]\n"\
      MILLRACE_FLOAT(8, 8) MILLRACE_FLOAT(9, 9) MILLRACE_FLOAT(10, 10) MILLRACE_FLOAT(11, 11)\
      MILLRACE_FLOAT(12, 12) MILLRACE_FLOAT(13, 13) MILLRACE_FLOAT(14, 14) MILLRACE_FLOAT(15, 15)\
      MILLRACE_FMUL(16, 24, 30) MILLRACE_FMUL(17, 25, 30) MILLRACE_FMUL(18, 26, 30) MILLRACE_FMUL(19, 27, 30)\
      MILLRACE_FMUL(20, 24, 31) MILLRACE_FMUL(21, 25, 31) MILLRACE_FMUL(22, 26, 31) MILLRACE_FMUL(23, 27, 31)\
      MILLRACE_FMLA(0, 8, 16) MILLRACE_FMLA(1, 9, 17) MILLRACE_FMLA(2, 10, 18) MILLRACE_FMLA(3, 11, 19)\
      MILLRACE_FMLA(4, 12, 20) MILLRACE_FMLA(5, 13, 21) MILLRACE_FMLA(6, 14, 22) MILLRACE_FMLA(7, 15, 23)\
      : [s0] "+w"(sums[0]), [s1] "+w"(sums[1]), [s2] "+w"(sums[2]), [s3] "+w"(sums[3]), [s4] "+w"(sums[4]),\
        [s5] "+w"(sums[5]), [s6] "+w"(sums[6]), [s7] "+w"(sums[7]), [rows] "+&r"(rows), [values] "+&r"(values),\
        [groups] "+&r"(groups), [factors] "+&r"(factors), [ahead] "+&r"(ahead)\
      : [value_bytes] "r"(value_bytes)\
      : "cc", "memory", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",\
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");

// sums of a tile += rows x panel, over `groups` (at least one). Rows are as Group32 prepares them, kTile32Bytes a
// group; values [4 steps][4 pairs][16], `value_bytes` from group to group; factors [4 pairs][4]. Meanwhile asks the
// memory for groups x kTileAhead bytes from `ahead` on, if that is not null. Only what exists may be asked for: a
// request for memory that nobody has touched yet takes longer than a whole group.
[[gnu::always_inline]] inline void multiply_group32_tile(const std::byte* rows, const std::byte* values,
                                                         int64_t value_bytes, const std::byte* factors, int64_t groups,
                                                         const std::byte* ahead, float32x4_t (&sums)[8]) {
  static_assert(kTile32Bytes == 160 && kTileAhead == 192);
  if (ahead != nullptr) {
    MILLRACE_TILE(MILLRACE_FETCH, MILLRACE_FETCHED)
  } else {
    MILLRACE_TILE(MILLRACE_NOTHING, )
  }
}

// Of the loop: v0-7 sums of the run at hand, v8-15 integer sums of the group at hand, v16-17 those of the group before
// as float, v20 factors of its outputs, v22-27 weights, v28-31 rows. After a run v18-19 factors of its rows.
#define MILLRACE_TAKE_RUN \
  "ldp q16, q17, [%[totals], #0]\n"\
      MILLRACE_ADD(16, 0, 18) MILLRACE_ADD(17, 1, 18) MILLRACE_CLEAR(0) MILLRACE_CLEAR(1)\
      "stp q16, q17, [%[totals], #0]\n"\
      "ldp q16, q17, [%[totals], #32]\n"\
      MILLRACE_ADD(16, 2, 18) MILLRACE_ADD(17, 3, 18) MILLRACE_CLEAR(2) MILLRACE_CLEAR(3)\
      "stp q16, q17, [%[totals], #32]\n"\
      "ldp q16, q17, [%[totals], #64]\n"\
      MILLRACE_ADD(16, 4, 19) MILLRACE_ADD(17, 5, 19) MILLRACE_CLEAR(4) MILLRACE_CLEAR(5)\
      "stp q16, q17, [%[totals], #64]\n"\
      "ldp q16, q17, [%[totals], #96]\n"\
      MILLRACE_ADD(16, 6, 19) MILLRACE_ADD(17, 7, 19) MILLRACE_CLEAR(6) MILLRACE_CLEAR(7)\
      "stp q16, q17, [%[totals], #96]\n"

#define MILLRACE_SHARED_TILE(FETCH, FETCHED) \
  asm volatile(\
      MILLRACE_CLEAR(0) MILLRACE_CLEAR(1) MILLRACE_CLEAR(2) MILLRACE_CLEAR(3)\
      MILLRACE_CLEAR(4) MILLRACE_CLEAR(5) MILLRACE_CLEAR(6) MILLRACE_CLEAR(7)\
      MILLRACE_FIRST_GROUP(FETCH, FETCHED)\
      "b.eq 3f\n"\
      "1:\n"\
      MILLRACE_LOAD2(rows, 32, 28, 29) MILLRACE_LOAD2(values, 0, 22, 23) MILLRACE_LOAD2(values, 32, 24, 25)\
      MILLRACE_FLOAT(17, 12) FETCH(0) MILLRACE_CLEAR(12) MILLRACE_FLOAT(16, 8) MILLRACE_LOAD(factors, 0, 20)\
      MILLRACE_ADD(4, 17, 20) MILLRACE_FLOAT(17, 13) MILLRACE_ADD(0, 16, 20) MILLRACE_LOAD(factors, 16, 20)\
      MILLRACE_FLOAT(16, 9) MILLRACE_CLEAR(9) MILLRACE_MMLA(9, 28, 23) MILLRACE_MMLA(12, 29, 22)\
      MILLRACE_LOAD2(rows, 64, 30, 31) MILLRACE_LOAD2(values, 64, 26, 27) MILLRACE_CLEAR(13)\
      MILLRACE_MMLA(13, 29, 23) MILLRACE_CLEAR(8) MILLRACE_MMLA(8, 28, 22) MILLRACE_ADD(1, 16, 20)\
      MILLRACE_LOAD2(values, 96, 22, 23) MILLRACE_FLOAT(16, 10) MILLRACE_CLEAR(10) MILLRACE_ADD(5, 17, 20)\
      MILLRACE_FLOAT(17, 14) MILLRACE_CLEAR(14) FETCH(64) MILLRACE_MMLA(14, 29, 24) MILLRACE_LOAD(factors, 32, 20)\
      MILLRACE_ADD(6, 17, 20) MILLRACE_ADD(2, 16, 20) MILLRACE_LOAD(factors, 48, 20) MILLRACE_FLOAT(17, 15)\
      MILLRACE_CLEAR(15) MILLRACE_MMLA(15, 29, 25) MILLRACE_MMLA(10, 28, 24) MILLRACE_FLOAT(16, 11)\
      MILLRACE_CLEAR(11) MILLRACE_MMLA(11, 28, 25) MILLRACE_MMLA(12, 31, 26) MILLRACE_MMLA(13, 31, 27)\
      MILLRACE_MMLA(9, 30, 27) MILLRACE_MMLA(8, 30, 26) MILLRACE_LOAD2(values, 160, 26, 27)\
      MILLRACE_MMLA(14, 31, 22) MILLRACE_LOAD2(rows, 96, 28, 29) MILLRACE_LOAD2(values, 128, 24, 25)\
      MILLRACE_MMLA(8, 28, 24) MILLRACE_MMLA(10, 30, 22) FETCH(128) MILLRACE_MMLA(10, 28, 26)\
      MILLRACE_ADD(7, 17, 20) MILLRACE_MMLA(12, 29, 24) MILLRACE_MMLA(11, 30, 23) MILLRACE_MMLA(15, 31, 23)\
      MILLRACE_LOAD2(rows, 128, 30, 31) MILLRACE_MMLA(14, 29, 26) MILLRACE_LOAD2(values, 192, 22, 23)\
      MILLRACE_MMLA(12, 31, 22) MILLRACE_MMLA(11, 28, 27) MILLRACE_MMLA(15, 29, 27) MILLRACE_MMLA(8, 30, 22)\
      MILLRACE_MMLA(13, 29, 25) MILLRACE_MMLA(9, 28, 25) MILLRACE_ADD(3, 16, 20) MILLRACE_LOAD2(values, 224, 24, 25)\
      MILLRACE_MMLA(10, 30, 24) MILLRACE_MMLA(13, 31, 23) MILLRACE_MMLA(9, 30, 23) MILLRACE_MMLA(11, 30, 25)\
      MILLRACE_MMLA(14, 31, 24) MILLRACE_MMLA(15, 31, 25)\
      "add %[rows], %[rows], #160\n"\
      "add %[values], %[values], %[value_bytes]\n"\
      "add %[factors], %[factors], #64\n"\
      FETCHED\
      "subs %[left], %[left], #1\n"\
      "b.ne 2f\n"\
      "ldp q18, q19, [%[rows], #-320]\n"\
      MILLRACE_TAKE_RUN\
      "mov %[left], #8\n"\
      "2:\n"\
      "subs %[groups], %[groups], #1\n"\
      "b.ne 1b\n"\
      "3:\n"\
      "ldp q18, q19, [%[rows], #-160]\n"\
      "ldp q24, q25, [%[factors]]\n"\
      "ldp q26, q27, [%[factors], #32]\n"\
      MILLRACE_FLOAT(8, 8) MILLRACE_FLOAT(9, 9) MILLRACE_FLOAT(10, 10) MILLRACE_FLOAT(11, 11)\
      MILLRACE_FLOAT(12, 12) MILLRACE_FLOAT(13, 13) MILLRACE_FLOAT(14, 14) MILLRACE_FLOAT(15, 15)\
      MILLRACE_ADD(0, 8, 24) MILLRACE_ADD(1, 9, 25) MILLRACE_ADD(2, 10, 26) MILLRACE_ADD(3, 11, 27)\
      MILLRACE_ADD(4, 12, 24) MILLRACE_ADD(5, 13, 25) MILLRACE_ADD(6, 14, 26) MILLRACE_ADD(7, 15, 27)\
      MILLRACE_TAKE_RUN\
      : [rows] "+&r"(rows), [values] "+&r"(values), [groups] "+&r"(groups), [factors] "+&r"(factors),\
        [ahead] "+&r"(ahead), [left] "+&r"(left)\
      : [value_bytes] "r"(value_bytes), [totals] "r"(totals)\
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",\
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",\
        "v31");

// The same where eight groups of a row have one factor (kSharedGroups), which meets their sum at the end. `groups`
// start with such a run; totals as float32 in memory.
inline void multiply_shared_tile(const std::byte* rows, const std::byte* values, int64_t value_bytes,
                                 const std::byte* factors, int64_t groups, const std::byte* ahead, float* totals) {
  static_assert(kTile32Bytes == 160 && kTileAhead == 192 && kSharedGroups == 8);
  int64_t left = kSharedGroups;
  if (ahead != nullptr) {
    MILLRACE_SHARED_TILE(MILLRACE_FETCH, MILLRACE_FETCHED)
  } else {
    MILLRACE_SHARED_TILE(MILLRACE_NOTHING, )
  }
}

#undef MILLRACE_ADD
#undef MILLRACE_TAKE_RUN
#undef MILLRACE_SHARED_TILE
#undef MILLRACE_FIRST_GROUP
#undef MILLRACE_FLOAT
#undef MILLRACE_FMUL
#undef MILLRACE_FMLA
#undef MILLRACE_LOAD_STEP
#undef MILLRACE_STEP
#undef MILLRACE_FETCHED
#undef MILLRACE_NOTHING
#undef MILLRACE_TILE

}  // namespace
}  // namespace millrace::cpu

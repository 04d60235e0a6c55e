// Eight rows against packed weights of Q4_K, as assembly for machines with i8mm: four outputs at a time, so that codes
// are taken apart once for four pairs of rows where group256_few.h does it for two. Sums of a span are scaled while the
// next one's products are under way. Integers are exact and floats are multiplied and added as in group256.h: the same
// bits.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/group256_few.h"

namespace millrace::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8

// clang-format off

// v0-3 and v4-7 scaled sums of four pairs of rows with one pair of outputs and with the other, v8-15 sums of the span at
// hand, v16-23 rows, v24-25, v29 and v31 codes, v26-27 scales of the span before, from v28, v30 mask.
#define MILLRACE_LOW(codes) "and v" #codes ".16b, v" #codes ".16b, v30.16b\n"
#define MILLRACE_HIGH(codes) "ushr v" #codes ".16b, v" #codes ".16b, #4\n"
#define MILLRACE_WORDS(scales) "tbl v" #scales ".16b, {v28.16b}, v" #scales ".16b\n"
#define MILLRACE_SCALE(whole, sum, scale) "mla v" #whole ".4s, v" #sum ".4s, v" #scale ".4s\n"
// A pair of spans: eight sums are scaled and start anew with each, then take four steps of eight products. The order was
// searched for by measuring, as that of group32_tile.h.
#define MILLRACE_SPANS(FETCH) \
  MILLRACE_SCALE(2, 10, 26) MILLRACE_LOAD2(rows, 32, 20, 21) MILLRACE_CLEAR(10) MILLRACE_LOAD2(rows, 0, 16, 17)     \
  MILLRACE_LOAD2(codes, 0, 24, 25) MILLRACE_LOW(24) MILLRACE_LOAD2(codes, 64, 29, 31) MILLRACE_LOW(25)              \
  MILLRACE_SCALE(0, 8, 26) MILLRACE_CLEAR(8) MILLRACE_SCALE(4, 12, 27) MILLRACE_CLEAR(12)                           \
  MILLRACE_SCALE(3, 11, 26) MILLRACE_SCALE(5, 13, 27) MILLRACE_SCALE(7, 15, 27) MILLRACE_SCALE(1, 9, 26)            \
  MILLRACE_CLEAR(9) MILLRACE_MMLA(9, 17, 24) MILLRACE_LOAD2(others, 0, 18, 19) MILLRACE_LOW(29)                     \
  MILLRACE_LOAD2(others, 32, 22, 23) MILLRACE_CLEAR(13) MILLRACE_MMLA(13, 17, 25) MILLRACE_SCALE(6, 14, 27)         \
  MILLRACE_MMLA(8, 16, 24) MILLRACE_MMLA(8, 20, 29) FETCH(0) MILLRACE_LOW(31) MILLRACE_LOAD(scales, 0, 28)          \
  MILLRACE_CLEAR(14) MILLRACE_MMLA(14, 18, 25) MILLRACE_CLEAR(11) MILLRACE_MMLA(11, 19, 24)                         \
  MILLRACE_MMLA(12, 16, 25) MILLRACE_MMLA(10, 18, 24) MILLRACE_CLEAR(15) MILLRACE_MMLA(15, 19, 25)                  \
  MILLRACE_MMLA(15, 23, 31) MILLRACE_LOAD2(codes, 128, 24, 25) MILLRACE_LOAD2(others, 64, 18, 19)                   \
  MILLRACE_LOAD(indices, 0, 26) MILLRACE_MMLA(12, 20, 31) MILLRACE_LOAD(indices, 32, 27) MILLRACE_LOW(25)           \
  MILLRACE_MMLA(14, 22, 31) MILLRACE_MMLA(14, 18, 25) MILLRACE_MMLA(9, 21, 29) FETCH(64) MILLRACE_LOW(24)           \
  MILLRACE_LOAD2(rows, 64, 16, 17) MILLRACE_MMLA(8, 16, 24) MILLRACE_MMLA(10, 22, 29) MILLRACE_MMLA(11, 23, 29)     \
  MILLRACE_LOAD2(others, 96, 22, 23) MILLRACE_MMLA(13, 21, 31) MILLRACE_LOAD2(codes, 192, 29, 31) MILLRACE_LOW(31)  \
  MILLRACE_MMLA(11, 19, 24) MILLRACE_LOW(29) MILLRACE_LOAD2(rows, 96, 20, 21) MILLRACE_MMLA(9, 17, 24)              \
  MILLRACE_MMLA(9, 21, 29) MILLRACE_WORDS(27) MILLRACE_MMLA(13, 17, 25) MILLRACE_MMLA(15, 19, 25)                   \
  MILLRACE_MMLA(11, 23, 29) FETCH(128) MILLRACE_MMLA(12, 16, 25) MILLRACE_MMLA(12, 20, 31)                          \
  MILLRACE_MMLA(10, 18, 24) MILLRACE_MMLA(10, 22, 29) MILLRACE_LOAD2(codes, 0, 24, 25) MILLRACE_HIGH(25)            \
  MILLRACE_HIGH(24) MILLRACE_WORDS(26) MILLRACE_MMLA(13, 21, 31) MILLRACE_LOAD2(rows, 128, 16, 17)                  \
  MILLRACE_MMLA(8, 20, 29) MILLRACE_MMLA(15, 23, 31) MILLRACE_MMLA(14, 22, 31) MILLRACE_LOAD2(others, 128, 18, 19)  \
  MILLRACE_LOAD2(codes, 64, 29, 31) MILLRACE_HIGH(31) MILLRACE_SCALE(6, 14, 27) MILLRACE_HIGH(29)                   \
  MILLRACE_LOAD(scales, 0, 28) MILLRACE_SCALE(0, 8, 26) MILLRACE_SCALE(5, 13, 27) MILLRACE_CLEAR(13)                \
  MILLRACE_CLEAR(8) MILLRACE_SCALE(3, 11, 26) MILLRACE_SCALE(2, 10, 26) MILLRACE_CLEAR(10)                          \
  MILLRACE_MMLA(10, 18, 24) MILLRACE_MMLA(8, 16, 24) FETCH(192) MILLRACE_SCALE(7, 15, 27) MILLRACE_SCALE(1, 9, 26)  \
  MILLRACE_CLEAR(9) MILLRACE_LOAD2(rows, 160, 20, 21) MILLRACE_CLEAR(14) MILLRACE_MMLA(13, 17, 25)                  \
  MILLRACE_MMLA(14, 18, 25) MILLRACE_SCALE(4, 12, 27) MILLRACE_CLEAR(12) MILLRACE_CLEAR(11)                         \
  MILLRACE_MMLA(12, 16, 25) MILLRACE_MMLA(9, 17, 24) MILLRACE_CLEAR(15) MILLRACE_MMLA(15, 19, 25)                   \
  MILLRACE_LOAD(indices, 48, 27) MILLRACE_LOAD2(others, 160, 22, 23) MILLRACE_MMLA(10, 22, 29)                      \
  MILLRACE_MMLA(13, 21, 31) MILLRACE_MMLA(11, 19, 24) MILLRACE_LOAD2(codes, 128, 24, 25) MILLRACE_HIGH(24)          \
  MILLRACE_HIGH(25) MILLRACE_MMLA(15, 23, 31) MILLRACE_MMLA(14, 22, 31) FETCH(256)                                  \
  MILLRACE_LOAD2(rows, 192, 16, 17) MILLRACE_LOAD(indices, 16, 26) MILLRACE_MMLA(9, 21, 29)                         \
  MILLRACE_MMLA(11, 23, 29) MILLRACE_MMLA(12, 20, 31) MILLRACE_MMLA(8, 20, 29) MILLRACE_LOAD2(codes, 192, 29, 31)   \
  MILLRACE_HIGH(29) MILLRACE_HIGH(31) MILLRACE_LOAD2(others, 192, 18, 19) MILLRACE_MMLA(15, 19, 25)                 \
  MILLRACE_MMLA(10, 18, 24) MILLRACE_WORDS(27) MILLRACE_MMLA(13, 17, 25) MILLRACE_LOAD2(rows, 224, 20, 21)          \
  MILLRACE_MMLA(9, 17, 24) MILLRACE_MMLA(14, 18, 25) MILLRACE_MMLA(8, 16, 24) FETCH(288) MILLRACE_MMLA(8, 20, 29)   \
  MILLRACE_MMLA(11, 19, 24) MILLRACE_MMLA(12, 16, 25) MILLRACE_MMLA(12, 20, 31)                                     \
  MILLRACE_LOAD2(others, 224, 22, 23) MILLRACE_MMLA(10, 22, 29) MILLRACE_MMLA(11, 23, 29) MILLRACE_WORDS(26)        \
  MILLRACE_MMLA(15, 23, 31) MILLRACE_MMLA(13, 21, 31) MILLRACE_MMLA(14, 22, 31) MILLRACE_MMLA(9, 21, 29)
// Of a pair of rows and a pair of outputs: sums += float(whole) * (v8, the weights' factors, * the rows'); then sums -=
// float(v15, minimums, x the rows' sums) * (v9, the minimums' factors, * the rows'). High parts of the rows' sums
// count 64.
#define MILLRACE_FINISH(whole, at, factors, low, high)                                                \
  "ldr q10, [%[sums], #" #at "]\n"                                                                    \
  "movi v13.4s, #0\n"                                                                                 \
  MILLRACE_MMLA(13, high, 15)                                                                         \
  "fmul v11.4s, v8.4s, v" #factors ".4s\n"                                                            \
  "scvtf v" #whole ".4s, v" #whole ".4s\n"                                                            \
  "shl v13.4s, v13.4s, #6\n"                                                                          \
  MILLRACE_MMLA(13, low, 15)                                                                          \
  "fmul v12.4s, v9.4s, v" #factors ".4s\n"                                                            \
  "fmla v10.4s, v" #whole ".4s, v11.4s\n"                                                             \
  "scvtf v13.4s, v13.4s\n"                                                                            \
  "fmls v10.4s, v13.4s, v12.4s\n"                                                                     \
  "str q10, [%[sums], #" #at "]\n"
#define MILLRACE_FINISH_PAIR(lane, at, w0, w1, w2, w3)                                                \
  "dup v8.2d, v16.d[" #lane "]\n"                                                                     \
  "dup v9.2d, v17.d[" #lane "]\n"                                                                     \
  "ldr q15, [%[minimums], #16 * " #lane "]\n"                                                         \
  MILLRACE_FINISH(w0, at, 18, 22, 24) MILLRACE_FINISH(w1, 64 + at, 19, 23, 25)                        \
  MILLRACE_FINISH(w2, 128 + at, 20, 28, 30) MILLRACE_FINISH(w3, 192 + at, 21, 29, 31)
#define MILLRACE_EIGHT(FETCH, FETCHED)                                                                \
  asm volatile("movi v30.16b, #15\n"                                                                  \
               MILLRACE_CLEAR4(0, 1, 2, 3) MILLRACE_CLEAR4(4, 5, 6, 7) MILLRACE_CLEAR4(8, 9, 10, 11)  \
               MILLRACE_CLEAR4(12, 13, 14, 15) "movi v26.4s, #0\n" "movi v27.4s, #0\n"                \
               "1:\n"                                                                                 \
               MILLRACE_SPANS(FETCH)                                                                  \
               "add %[rows], %[rows], #256\n"                                                         \
               "add %[others], %[others], #256\n"                                                     \
               "add %[codes], %[codes], #256\n"                                                       \
               "add %[scales], %[scales], #16\n"                                                      \
               FETCHED                                                                                \
               "subs %[spans], %[spans], #1\n"                                                       \
               "b.ne 1b\n"                                                                          \
               MILLRACE_SCALE(0, 8, 26) MILLRACE_SCALE(1, 9, 26) MILLRACE_SCALE(2, 10, 26) MILLRACE_SCALE(3, 11, 26)  \
               MILLRACE_SCALE(4, 12, 27) MILLRACE_SCALE(5, 13, 27) MILLRACE_SCALE(6, 14, 27) MILLRACE_SCALE(7, 15, 27) \
               "ldr d16, [%[factors]]\n"                                                              \
               "ldr d17, [%[factors], #16]\n"                                                         \
               "fcvtl v16.4s, v16.4h\n"                                                               \
               "fcvtl v17.4s, v17.4h\n"                                                               \
               "ldp q18, q19, [%[tile]]\n"                                                            \
               "ldp q20, q21, [%[other]]\n"                                                           \
               "ldp q22, q23, [%[tile], #32]\n"                                                       \
               "ldp q28, q29, [%[other], #32]\n"                                                      \
               "ldp q24, q25, [%[tile], #64]\n"                                                       \
               "ldp q30, q31, [%[other], #64]\n"                                                      \
               MILLRACE_FINISH_PAIR(0, 0, 0, 1, 2, 3)                                                 \
               MILLRACE_FINISH_PAIR(1, 16, 4, 5, 6, 7)                                                \
               : [rows] "+&r"(rows), [others] "+&r"(others), [codes] "+&r"(codes), [scales] "+&r"(scales),         \
                 [ahead] "+&r"(ahead), [spans] "+&r"(spans)                                                                 \
               : [tile] "r"(tile), [other] "r"(other), [factors] "r"(factors), [minimums] "r"(minimums),           \
                 [sums] "r"(sums), [indices] "r"(indices)                                             \
               : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",  \
                 "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", \
                 "v27", "v28", "v29", "v30", "v31")
#define MILLRACE_NOTHING(offset)

// sums of two tiles, one after the other, += a group of prepared rows (`tile` and `other`, their integers `values` bytes
// in) x outputs [4 * half, 4 * half + 4) of a group of Q4_K (see Q45K). Asks the memory for a group at `ahead`, if that
// is not null.
inline void multiply_q4_k_eight(const std::byte* tile, const std::byte* other, int64_t values, const std::byte* group,
                                int half, float* sums, const std::byte* ahead) {
  const std::byte *rows = tile + values, *others = other + values, *scales = group + 32;
  const std::byte *codes = group + 160 + 32 * half, *factors = group + 8 * half, *minimums = group + 96 + 32 * half;
  const uint32_t(*indices)[4] = kPairScales + 4 * half;
  sums += 8 * half;
  int64_t spans = 4;  // pairs of them
  if (ahead != nullptr) {
    MILLRACE_EIGHT(MILLRACE_FETCH, "add %[ahead], %[ahead], #296\n");
  } else {
    MILLRACE_EIGHT(MILLRACE_NOTHING, );
  }
}

#undef MILLRACE_LOW
#undef MILLRACE_HIGH
#undef MILLRACE_WORDS
#undef MILLRACE_SCALE
#undef MILLRACE_SPANS
#undef MILLRACE_FINISH
#undef MILLRACE_FINISH_PAIR
#undef MILLRACE_EIGHT
#undef MILLRACE_NOTHING

// clang-format on

#endif

}  // namespace
}  // namespace millrace::cpu

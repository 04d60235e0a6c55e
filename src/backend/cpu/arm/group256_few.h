// Few rows against packed weights of group256.h, as assembly for machines with i8mm: codes are taken apart in registers
// and meet the rows of a prepared tile at once, where widening a panel first would take longer than multiplying it.
// Sums are those of group256_tile.h, [pair of rows][pair of outputs], and so are the bits. A template's `pairs` is how
// many pairs of rows there are, 1 or 2.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

// clang-format off

// Q4_K, Q5_K: indices that make four words, twice two, of the scales of a pair of outputs: [pair][even span, odd span].
#define MILLRACE_INDICES(i) {0xffffff00u + (i), 0xffffff02u + (i), 0xffffff00u + (i), 0xffffff02u + (i)}
alignas(16) inline constexpr uint32_t kPairScales[8][4] = {
    MILLRACE_INDICES(0), MILLRACE_INDICES(1), MILLRACE_INDICES(4),  MILLRACE_INDICES(5),
    MILLRACE_INDICES(8), MILLRACE_INDICES(9), MILLRACE_INDICES(12), MILLRACE_INDICES(13)};
#undef MILLRACE_INDICES

// Q6_K: the same of eight scales extended to 16 bits, of which the second byte is the sign.
#define MILLRACE_INDICES(i) {0x01010100u + (i) * 0x01010101u, 0x03030302u + (i) * 0x01010101u, \
                             0x01010100u + (i) * 0x01010101u, 0x03030302u + (i) * 0x01010101u}
alignas(16) inline constexpr uint32_t kSignedScales[4][4] = {
    MILLRACE_INDICES(0), MILLRACE_INDICES(4), MILLRACE_INDICES(8), MILLRACE_INDICES(12)};
#undef MILLRACE_INDICES

#ifdef __ARM_FEATURE_MATMUL_INT8

#define MILLRACE_MLA(whole, sum, scale) "mla v" #whole ".4s, v" #sum ".4s, v" #scale ".4s\n"
#define MILLRACE_WRITES                                                                                             \
  "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",    \
      "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",   \
      "v31"

// Of a pair of outputs: sums += float(whole) * (the weights' factors * the rows'). `lane` of v`factors` has the
// factors; v28-29 factors of the rows.
#define MILLRACE_FLOATS(second, p, factors, lane, whole0, whole1) \
  "dup v8.2d, v" #factors ".d[" #lane "]\n"                       \
  "ldr q9, [%[sums], #16 * " #p "]\n"                             \
  "fmul v11.4s, v8.4s, v28.4s\n"                                  \
  "scvtf v" #whole0 ".4s, v" #whole0 ".4s\n"                      \
  "fmla v9.4s, v" #whole0 ".4s, v11.4s\n"                         \
  second("ldr q10, [%[sums], #64 + 16 * " #p "]\n"                \
         "fmul v12.4s, v8.4s, v29.4s\n"                           \
         "scvtf v" #whole1 ".4s, v" #whole1 ".4s\n"               \
         "fmla v10.4s, v" #whole1 ".4s, v12.4s\n")
#define MILLRACE_STORE(second, p) \
  "str q9, [%[sums], #16 * " #p "]\n" second("str q10, [%[sums], #64 + 16 * " #p "]\n")

// ---- Q4_K and Q5_K

// v0-7 scaled sums, v8-15 sums of an even span and v16-23 of the odd one after it, v24-25 rows of the first and v26-27
// of the second, v28-29 codes, v30 mask, v31 fifth bits, then scales.
#define MILLRACE_FOUR_BITS(second, offset, even0, even1, odd0, odd1)          \
  "ldr q28, [%[codes], #" #offset "]\n"                                       \
  "and v29.16b, v28.16b, v30.16b\n"                                           \
  "ushr v28.16b, v28.16b, #4\n"                                               \
  MILLRACE_MMLA(even0, 24, 29) second(MILLRACE_MMLA(even1, 25, 29))           \
  MILLRACE_MMLA(odd0, 26, 28) second(MILLRACE_MMLA(odd1, 27, 28))
// The fifth bit comes from the top of v31, which moves up.
#define MILLRACE_FIVE_BITS(second, offset, even0, even1, odd0, odd1)          \
  "ldr q28, [%[codes], #" #offset "]\n"                                       \
  "ushr v29.16b, v31.16b, #3\n"                                               \
  "add v31.16b, v31.16b, v31.16b\n"                                           \
  "bit v29.16b, v28.16b, v30.16b\n"                                           \
  MILLRACE_MMLA(even0, 24, 29) second(MILLRACE_MMLA(even1, 25, 29))           \
  "ushr v29.16b, v31.16b, #3\n"                                               \
  "add v31.16b, v31.16b, v31.16b\n"                                           \
  "sri v29.16b, v28.16b, #4\n"                                                \
  MILLRACE_MMLA(odd0, 26, 29) second(MILLRACE_MMLA(odd1, 27, 29))
#define MILLRACE_NO_BITS ""
#define MILLRACE_LOAD_BITS "ldr q31, [%[bits]], #16\n"
#define MILLRACE_STEP(second, load, codes, step)                              \
  MILLRACE_FETCH(64 * step)                                                   \
  load                                                                        \
  "ldp q24, q25, [%[rows], #32 * " #step "]\n"                                \
  "ldp q26, q27, [%[rows], #128 + 32 * " #step "]\n"                          \
  codes(second, 64 * step, 8, 12, 16, 20)                                     \
  codes(second, 64 * step + 16, 9, 13, 17, 21)                                \
  codes(second, 64 * step + 32, 10, 14, 18, 22)                               \
  codes(second, 64 * step + 48, 11, 15, 19, 23)
#define MILLRACE_SCALE(second, p, whole0, whole1, even0, even1, odd0, odd1)   \
  "ldp q24, q25, [%[indices], #32 * " #p "]\n"                                \
  "tbl v26.16b, {v31.16b}, v24.16b\n"                                         \
  "tbl v27.16b, {v31.16b}, v25.16b\n"                                         \
  MILLRACE_MLA(whole0, even0, 26) second(MILLRACE_MLA(whole1, even1, 26))     \
  MILLRACE_MLA(whole0, odd0, 27) second(MILLRACE_MLA(whole1, odd1, 27))
// A pair of spans; `bytes` is a quarter of a group, all of which is asked for: `last` lies at most a line before its end.
#define MILLRACE_SPANS(second, load, codes, bytes, last)                                             \
  MILLRACE_CLEAR4(8, 9, 10, 11) second(MILLRACE_CLEAR4(12, 13, 14, 15))                           \
  MILLRACE_CLEAR4(16, 17, 18, 19) second(MILLRACE_CLEAR4(20, 21, 22, 23))                         \
  MILLRACE_STEP(second, load, codes, 0) MILLRACE_STEP(second, load, codes, 1)                     \
  MILLRACE_STEP(second, load, codes, 2) MILLRACE_STEP(second, load, codes, 3)                     \
  MILLRACE_FETCH(256) MILLRACE_FETCH(last)                                                        \
  "ldr q31, [%[scales]], #16\n"                                                                   \
  MILLRACE_SCALE(second, 0, 0, 4, 8, 12, 16, 20) MILLRACE_SCALE(second, 1, 1, 5, 9, 13, 17, 21)   \
  MILLRACE_SCALE(second, 2, 2, 6, 10, 14, 18, 22) MILLRACE_SCALE(second, 3, 3, 7, 11, 15, 19, 23) \
  "add %[rows], %[rows], #256\n"                                                                  \
  "add %[codes], %[codes], #256\n"                                                                \
  "add %[ahead], %[ahead], #" #bytes "\n"
// sums -= float(minimums x the rows' sums) * (the minimums' factors * the rows'). v24-25 low parts of the rows' sums,
// v26-27 high parts, which count 64.
#define MILLRACE_MINIMUMS(second, p, factors, lane)  \
  "ldr q15, [%[group], #96 + 16 * " #p "]\n"         \
  "dup v8.2d, v" #factors ".d[" #lane "]\n"          \
  "movi v13.4s, #0\n"                                \
  MILLRACE_MMLA(13, 26, 15)                          \
  "shl v13.4s, v13.4s, #6\n"                         \
  MILLRACE_MMLA(13, 24, 15)                          \
  "fmul v11.4s, v8.4s, v28.4s\n"                     \
  "scvtf v13.4s, v13.4s\n"                           \
  "fmls v9.4s, v13.4s, v11.4s\n"                     \
  second("movi v14.4s, #0\n"                         \
         MILLRACE_MMLA(14, 27, 15)                   \
         "shl v14.4s, v14.4s, #6\n"                  \
         MILLRACE_MMLA(14, 25, 15)                   \
         "fmul v12.4s, v8.4s, v29.4s\n"              \
         "scvtf v14.4s, v14.4s\n"                    \
         "fmls v10.4s, v14.4s, v12.4s\n")
#define MILLRACE_FINISH(second, p, factors, least, lane, whole0, whole1) \
  MILLRACE_FLOATS(second, p, factors, lane, whole0, whole1)              \
  MILLRACE_MINIMUMS(second, p, least, lane)                              \
  MILLRACE_STORE(second, p)
#define MILLRACE_GROUP(second, load, codes_of, bytes, last)                                                         \
  asm volatile("movi v30.16b, #15\n"                                                                                \
               MILLRACE_CLEAR4(0, 1, 2, 3) second(MILLRACE_CLEAR4(4, 5, 6, 7))                                      \
               "1:\n"                                                                                               \
               MILLRACE_SPANS(second, load, codes_of, bytes, last)                                                   \
               "subs %[spans], %[spans], #1\n"                                                                      \
               "b.ne 1b\n"                                                                                          \
               "ldp q20, q21, [%[group]]\n"                                                                         \
               "ldp q28, q29, [%[tile]]\n"                                                                          \
               "ldp q24, q25, [%[tile], #32]\n"                                                                     \
               "ldp q26, q27, [%[tile], #64]\n"                                                                     \
               "fcvtl v16.4s, v20.4h\n"                                                                             \
               "fcvtl2 v17.4s, v20.8h\n"                                                                            \
               "fcvtl v18.4s, v21.4h\n"                                                                             \
               "fcvtl2 v19.4s, v21.8h\n"                                                                            \
               MILLRACE_FINISH(second, 0, 16, 18, 0, 0, 4) MILLRACE_FINISH(second, 1, 16, 18, 1, 1, 5)              \
               MILLRACE_FINISH(second, 2, 17, 19, 0, 2, 6) MILLRACE_FINISH(second, 3, 17, 19, 1, 3, 7)              \
               : [rows] "+&r"(rows), [codes] "+&r"(codes), [bits] "+&r"(bits), [scales] "+&r"(scales),              \
                 [ahead] "+&r"(ahead), [spans] "+&r"(spans)                                                         \
               : [tile] "r"(tile), [group] "r"(group), [sums] "r"(sums), [indices] "r"(kPairScales)                 \
               : MILLRACE_WRITES)

// sums of a tile += a group of prepared rows (`values` bytes in, their integers) x a group of Q4_K or Q5_K (see Q45K).
// Asks the memory for a group at `ahead`.
template <int pairs, bool fifth>
inline void multiply_q45_k_tile(const std::byte* tile, int64_t values, const std::byte* group, float* sums,
                                const std::byte* ahead) {
  const std::byte *rows = tile + values, *scales = group + 32, *bits = group + 160, *codes = bits + (fifth ? 256 : 0);
  int64_t spans = 4;  // pairs of them
  if constexpr (fifth && pairs == 2) {
    MILLRACE_GROUP(MILLRACE_TWO_PAIRS, MILLRACE_LOAD_BITS, MILLRACE_FIVE_BITS, 360, 320);
  } else if constexpr (fifth) {
    MILLRACE_GROUP(MILLRACE_ONE_PAIR, MILLRACE_LOAD_BITS, MILLRACE_FIVE_BITS, 360, 320);
  } else if constexpr (pairs == 2) {
    MILLRACE_GROUP(MILLRACE_TWO_PAIRS, MILLRACE_NO_BITS, MILLRACE_FOUR_BITS, 296, 288);
  } else {
    MILLRACE_GROUP(MILLRACE_ONE_PAIR, MILLRACE_NO_BITS, MILLRACE_FOUR_BITS, 296, 288);
  }
}

#undef MILLRACE_FOUR_BITS
#undef MILLRACE_FIVE_BITS
#undef MILLRACE_NO_BITS
#undef MILLRACE_LOAD_BITS
#undef MILLRACE_STEP
#undef MILLRACE_SCALE
#undef MILLRACE_SPANS
#undef MILLRACE_MINIMUMS
#undef MILLRACE_FINISH
#undef MILLRACE_GROUP

// ---- Q6_K

// v0-7 scaled sums, v8-15 sums of a subgroup, v16-17 codes of two pairs of outputs, v18-19 and v22-23 what they are
// made of, v20-21 scales of two subgroups, v24-25 rows, v26-29 indices, v30-31 masks.
#define MILLRACE_PRODUCTS(second, first0, first1, next0, next1)            \
  MILLRACE_MMLA(first0, 24, 16) second(MILLRACE_MMLA(first1, 25, 16))      \
  MILLRACE_MMLA(next0, 24, 17) second(MILLRACE_MMLA(next1, 25, 17))
// Codes that have a byte of their own, and the fourth subgroup's, put together of the others' lowest bits.
#define MILLRACE_OWN(third, at)                                \
  "ldp q16, q17, [%[codes], #128 * " #third " + " #at "]\n"    \
  "and v16.16b, v16.16b, v30.16b\n"                            \
  "and v17.16b, v17.16b, v30.16b\n"
#define MILLRACE_FOURTH(third, at)                 \
  "ldp q16, q17, [%[codes], #256 + " #at "]\n"     \
  "ldp q18, q19, [%[codes], #128 + " #at "]\n"     \
  "ldp q22, q23, [%[codes], #" #at "]\n"           \
  "shl v16.16b, v16.16b, #2\n"                     \
  "shl v17.16b, v17.16b, #2\n"                     \
  "sli v16.16b, v18.16b, #4\n"                     \
  "sli v17.16b, v19.16b, #4\n"                     \
  "sli v16.16b, v22.16b, #6\n"                     \
  "sli v17.16b, v23.16b, #6\n"                     \
  "eor v16.16b, v16.16b, v31.16b\n"                \
  "eor v17.16b, v17.16b, v31.16b\n"
#define MILLRACE_STEP(second, codes, subgroup, step)                          \
  MILLRACE_FETCH(128 * subgroup + 64 * step)                                  \
  "ldp q24, q25, [%[rows], #64 * " #subgroup " + 32 * " #step "]\n"           \
  codes(subgroup, 64 * step) MILLRACE_PRODUCTS(second, 8, 12, 9, 13)          \
  codes(subgroup, 64 * step + 32) MILLRACE_PRODUCTS(second, 10, 14, 11, 15)
#define MILLRACE_SUBGROUP(second, codes, subgroup, scales)                                      \
  MILLRACE_CLEAR4(8, 9, 10, 11)                                                                 \
  second(MILLRACE_CLEAR4(12, 13, 14, 15))                                                       \
  MILLRACE_STEP(second, codes, subgroup, 0)                                                     \
  MILLRACE_STEP(second, codes, subgroup, 1)                                                     \
  "tbl v16.16b, {v" #scales ".16b}, v26.16b\n"                                                  \
  "tbl v17.16b, {v" #scales ".16b}, v27.16b\n"                                                  \
  "tbl v18.16b, {v" #scales ".16b}, v28.16b\n"                                                  \
  "tbl v19.16b, {v" #scales ".16b}, v29.16b\n"                                                  \
  MILLRACE_MLA(0, 8, 16) MILLRACE_MLA(1, 9, 17) MILLRACE_MLA(2, 10, 18) MILLRACE_MLA(3, 11, 19) \
  second(MILLRACE_MLA(4, 12, 16) MILLRACE_MLA(5, 13, 17) MILLRACE_MLA(6, 14, 18) MILLRACE_MLA(7, 15, 19))
#define MILLRACE_SCALES             \
  "ldr q21, [%[scales]], #16\n"     \
  "sxtl v20.8h, v21.8b\n"           \
  "sxtl2 v21.8h, v21.16b\n"
#define MILLRACE_FINISH(second, p, factors, lane, whole0, whole1) \
  MILLRACE_FLOATS(second, p, factors, lane, whole0, whole1)       \
  MILLRACE_STORE(second, p)
#define MILLRACE_GROUP(second)                                                                                       \
  asm volatile("movi v30.16b, #0xfc\n"                                                                               \
               "movi v31.16b, #0x80\n"                                                                               \
               "ldp q26, q27, [%[indices]]\n"                                                                        \
               "ldp q28, q29, [%[indices], #32]\n"                                                                   \
               MILLRACE_CLEAR4(0, 1, 2, 3) second(MILLRACE_CLEAR4(4, 5, 6, 7))                                       \
               "1:\n"                                                                                                \
               MILLRACE_SCALES                                                                                       \
               MILLRACE_SUBGROUP(second, MILLRACE_OWN, 0, 20) MILLRACE_SUBGROUP(second, MILLRACE_OWN, 1, 21)         \
               MILLRACE_SCALES                                                                                       \
               MILLRACE_SUBGROUP(second, MILLRACE_OWN, 2, 20) MILLRACE_SUBGROUP(second, MILLRACE_FOURTH, 3, 21)      \
               "add %[rows], %[rows], #256\n"                                                                        \
               "add %[codes], %[codes], #384\n"                                                                      \
               "add %[ahead], %[ahead], #420\n"                                                                      \
               "subs %[chunks], %[chunks], #1\n"                                                                     \
               "b.ne 1b\n"                                                                                           \
               "ldr q20, [%[group]]\n"                                                                               \
               "ldp q28, q29, [%[tile]]\n"                                                                           \
               "fcvtl v16.4s, v20.4h\n"                                                                              \
               "fcvtl2 v17.4s, v20.8h\n"                                                                             \
               MILLRACE_FINISH(second, 0, 16, 0, 0, 4) MILLRACE_FINISH(second, 1, 16, 1, 1, 5)                       \
               MILLRACE_FINISH(second, 2, 17, 0, 2, 6) MILLRACE_FINISH(second, 3, 17, 1, 3, 7)                       \
               : [rows] "+&r"(rows), [codes] "+&r"(codes), [scales] "+&r"(scales), [ahead] "+&r"(ahead),             \
                 [chunks] "+&r"(chunks)                                                                              \
               : [tile] "r"(tile), [group] "r"(group), [sums] "r"(sums), [indices] "r"(kSignedScales)                \
               : MILLRACE_WRITES)

// The same with a group of Q6_K (see Q6K).
template <int pairs>
inline void multiply_q6_k_tile(const std::byte* tile, int64_t values, const std::byte* group, float* sums,
                               const std::byte* ahead) {
  const std::byte *rows = tile + values, *codes = group + 144, *scales = group + 16;
  int64_t chunks = 4;
  if constexpr (pairs == 2) {
    MILLRACE_GROUP(MILLRACE_TWO_PAIRS);
  } else {
    MILLRACE_GROUP(MILLRACE_ONE_PAIR);
  }
}

#undef MILLRACE_PRODUCTS
#undef MILLRACE_OWN
#undef MILLRACE_FOURTH
#undef MILLRACE_STEP
#undef MILLRACE_SUBGROUP
#undef MILLRACE_SCALES
#undef MILLRACE_FINISH
#undef MILLRACE_GROUP

#undef MILLRACE_MLA
#undef MILLRACE_WRITES
#undef MILLRACE_FLOATS
#undef MILLRACE_STORE

#endif

// clang-format on

}  // namespace
}  // namespace millrace::cpu

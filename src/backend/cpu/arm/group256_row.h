// One row against packed weights of group256.h, as assembly for machines with i8mm. A matrix instruction multiplies two
// rows; where there is only one, the second place is put to use: it takes the high nibbles of a vector while the first
// takes the low ones. With b a vector of bytes (low nibbles l, high ones h, so b = l + 16 h) and x = b & 0xf0:
//   [a; 0] b + [-a; c] x = [a l; 16 c h]
// which is one AND for two vectors of codes instead of an AND and a shift, and no code is ever written out.
//
// Such a row is prepared apart ("split"), per group of 256: its factor; the sums of its integers over 32, low parts and
// high (kLowBits); then for each pair of spans and step [a (8), 0 (8)][-a (8), c (8)], a of the first span, c of the
// second.
//
// Six bits go the same way, four codes in three bytes: of four subgroups of 16, the first three have a code u each in
// the upper six bits of their byte and two bits of the fourth's below: b = 4 u + y, y = b & 3. The fourth's sum is that
// of its three pairs of bits, each with its weight, taken together once a group. A row split in this way ("thirds") is,
// per group: its factor; per 64 inputs, what the last bits' sums start from [2][0, start] and for each of the three and
// its two steps [a (8), 0 (8)][-a (8), d (8)], d of the fourth.
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSplitSums = 16, kSplitValues = 32, kSplitBytes = kSplitValues + 512;

// One group of a split row. q: 256 integers; low and high: parts of their sums over 32.
inline void store_split(float factor, const int8_t* q, const uint8_t* low, const uint8_t* high, std::byte* out) {
  store_f32(out, vdupq_n_f32(factor));
  std::memcpy(out + kSplitSums, low, 8);
  std::memcpy(out + kSplitSums + 8, high, 8);
  for (int pair = 0; pair < 4; ++pair) {
    for (int k = 0; k < 4; ++k) {
      int8x8_t a = vld1_s8(q + pair * 64 + k * 8), c = vld1_s8(q + pair * 64 + 32 + k * 8);
      std::byte* to = out + kSplitValues + (pair * 4 + k) * 32;
      store_s8(to, vcombine_s8(a, vdup_n_s8(0)));
      store_s8(to + 16, vcombine_s8(vneg_s8(a), c));
    }
  }
}

constexpr int64_t kThirdsChunk = 16 + 6 * 32, kThirdsBytes = 16 + 4 * kThirdsChunk;

// One group of a row split in thirds. The fourth code stands for itself less 32.
inline void store_thirds(float factor, const int8_t* q, std::byte* out) {
  store_f32(out, vdupq_n_f32(factor));
  out += 16;
  for (int chunk = 0; chunk < 4; ++chunk, q += 64, out += kThirdsChunk) {
    int32_t start[4] = {0, -32 * vaddlvq_s8(vld1q_s8(q + 48)), 0, 0};
    start[3] = start[1];
    std::memcpy(out, start, 16);
    for (int i = 0; i < 6; ++i) {
      int8x8_t a = vld1_s8(q + 8 * i), d = vld1_s8(q + 48 + i % 2 * 8);
      store_s8(out + 16 + i * 32, vcombine_s8(a, vdup_n_s8(0)));
      store_s8(out + 32 + i * 32, vcombine_s8(vneg_s8(a), d));
    }
  }
}

#ifdef __ARM_FEATURE_MATMUL_INT8

// Four vectors of indices that make 16 bytes 16 words; the weights of low and high nibbles; those of low and high sums.
alignas(16) inline constexpr uint32_t kSplitConstants[6][4] = {
    {0xffffff00u, 0xffffff01u, 0xffffff02u, 0xffffff03u},
    {0xffffff04u, 0xffffff05u, 0xffffff06u, 0xffffff07u},
    {0xffffff08u, 0xffffff09u, 0xffffff0au, 0xffffff0bu},
    {0xffffff0cu, 0xffffff0du, 0xffffff0eu, 0xffffff0fu},
    {16, 1, 16, 1},
    {1, 64, 1, 64},
};

// v0-3 sums of the group, v4-7 of a pair of spans, [output][low, high] of a pair of outputs; v8-11 indices, v12 mask,
// v13 scales, v16-19 codes of four pairs of outputs, v20-23 their high nibbles, v24-25 the row.
#define MILLRACE_STEP(offset, row_offset) \
  "ldp q24, q25, [%[row], #" #row_offset  \
  "]\n"                                   \
  "ldp q16, q17, [%[codes], #" #offset    \
  "]\n"                                   \
  "ldp q18, q19, [%[codes], #" #offset    \
  " + 32]\n"                              \
  "usmmla v4.4s, v16.16b, v24.16b\n"      \
  "and v20.16b, v16.16b, v12.16b\n"       \
  "usmmla v5.4s, v17.16b, v24.16b\n"      \
  "and v21.16b, v17.16b, v12.16b\n"       \
  "usmmla v6.4s, v18.16b, v24.16b\n"      \
  "and v22.16b, v18.16b, v12.16b\n"       \
  "usmmla v7.4s, v19.16b, v24.16b\n"      \
  "and v23.16b, v19.16b, v12.16b\n"       \
  "usmmla v4.4s, v20.16b, v25.16b\n"      \
  "usmmla v5.4s, v21.16b, v25.16b\n"      \
  "usmmla v6.4s, v22.16b, v25.16b\n"      \
  "usmmla v7.4s, v23.16b, v25.16b\n"
// A pair of spans; row_offset is where its row begins.
#define MILLRACE_SPANS(pair, row_offset) \
  MILLRACE_CLEAR4(4, 5, 6, 7)            \
  "ldr q13, [%[group], #32 + 16 * " #pair "]\n"                                     \
  MILLRACE_FETCH(0) MILLRACE_STEP(0, row_offset)                                    \
  MILLRACE_FETCH(64) MILLRACE_STEP(64, row_offset + 32)                             \
  MILLRACE_FETCH(128) MILLRACE_STEP(128, row_offset + 64)                           \
  MILLRACE_FETCH(192) MILLRACE_STEP(192, row_offset + 96)                           \
  "tbl v26.16b, {v13.16b}, v8.16b\n"                                                \
  "tbl v27.16b, {v13.16b}, v9.16b\n"                                                \
  "tbl v28.16b, {v13.16b}, v10.16b\n"                                               \
  "tbl v29.16b, {v13.16b}, v11.16b\n"                                               \
  "mla v0.4s, v4.4s, v26.4s\n"                                                      \
  "mla v1.4s, v5.4s, v27.4s\n"                                                      \
  "mla v2.4s, v6.4s, v28.4s\n"                                                      \
  "mla v3.4s, v7.4s, v29.4s\n"                                                      \
  "add %[codes], %[codes], #256\n"                                                  \
  "add %[ahead], %[ahead], #256\n"

// totals of a panel's eight outputs += one group of Q4_K (see Q45K) x a split row. Asks the memory for a group at
// `ahead`.
inline void multiply_q4_k_row(const std::byte* row, const std::byte* group, float* totals, const std::byte* ahead) {
  const std::byte* codes = group + 160;
  asm volatile(
      "ldp q8, q9, [%[constants]]\n"
      "ldp q10, q11, [%[constants], #32]\n"
      "movi v12.16b, #0xf0\n"
      MILLRACE_CLEAR4(0, 1, 2, 3)
      MILLRACE_SPANS(0, 32) MILLRACE_SPANS(1, 160) MILLRACE_SPANS(2, 288) MILLRACE_SPANS(3, 416)
      // Minimums of a pair of outputs with the sums of the row, low and high parts.
      "ldp q8, q9, [%[constants], #64]\n"
      "ldp q16, q17, [%[group], #96]\n"
      "ldp q18, q19, [%[group], #128]\n"
      MILLRACE_CLEAR4(4, 5, 6, 7)
      "ldr q24, [%[row], #16]\n"
      MILLRACE_FETCH(0) MILLRACE_FETCH(64) MILLRACE_FETCH(128)
      "smmla v4.4s, v16.16b, v24.16b\n"
      "smmla v5.4s, v17.16b, v24.16b\n"
      "smmla v6.4s, v18.16b, v24.16b\n"
      "smmla v7.4s, v19.16b, v24.16b\n"
      "mul v0.4s, v0.4s, v8.4s\n"
      "mul v1.4s, v1.4s, v8.4s\n"
      "mul v2.4s, v2.4s, v8.4s\n"
      "mul v3.4s, v3.4s, v8.4s\n"
      "mul v4.4s, v4.4s, v9.4s\n"
      "mul v5.4s, v5.4s, v9.4s\n"
      "mul v6.4s, v6.4s, v9.4s\n"
      "mul v7.4s, v7.4s, v9.4s\n"
      "addp v0.4s, v0.4s, v1.4s\n"
      "addp v2.4s, v2.4s, v3.4s\n"
      "addp v4.4s, v4.4s, v5.4s\n"
      "addp v6.4s, v6.4s, v7.4s\n"
      "ldp q20, q21, [%[group]]\n"
      "ldr s24, [%[row]]\n"
      "fcvtl v22.4s, v20.4h\n"
      "fcvtl2 v23.4s, v20.8h\n"
      "fcvtl v26.4s, v21.4h\n"
      "fcvtl2 v27.4s, v21.8h\n"
      "fmul v22.4s, v22.4s, v24.s[0]\n"
      "fmul v23.4s, v23.4s, v24.s[0]\n"
      "fmul v26.4s, v26.4s, v24.s[0]\n"
      "fmul v27.4s, v27.4s, v24.s[0]\n"
      "scvtf v0.4s, v0.4s, #4\n"  // the sums are sixteenfold
      "scvtf v2.4s, v2.4s, #4\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v6.4s, v6.4s\n"
      "ldp q28, q29, [%[totals]]\n"
      "fmla v28.4s, v0.4s, v22.4s\n"
      "fmla v29.4s, v2.4s, v23.4s\n"
      "fmls v28.4s, v4.4s, v26.4s\n"
      "fmls v29.4s, v6.4s, v27.4s\n"
      "stp q28, q29, [%[totals]]\n"
      : [codes] "+&r"(codes), [ahead] "+&r"(ahead)
      : [row] "r"(row), [group] "r"(group), [totals] "r"(totals), [constants] "r"(kSplitConstants)
      : "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v16", "v17",
        "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29");
}

#undef MILLRACE_STEP
#undef MILLRACE_SPANS

// v0-11 sums of the group [third][pair of outputs], lanes [output][third, fourth]; v12-15 of a subgroup; v16-19 codes,
// v20-23 their lowest bits, v24-25 the row, v26-29 scales of a chunk's subgroups, v31 mask.
#define MILLRACE_STEP(offset, row_offset) \
  "ldp q24, q25, [%[row], #" #row_offset  \
  "]\n"                                   \
  "ldp q16, q17, [%[codes], #" #offset    \
  "]\n"                                   \
  "ldp q18, q19, [%[codes], #" #offset    \
  " + 32]\n"                              \
  "smmla v12.4s, v16.16b, v24.16b\n"      \
  "and v20.16b, v16.16b, v31.16b\n"       \
  "smmla v13.4s, v17.16b, v24.16b\n"      \
  "and v21.16b, v17.16b, v31.16b\n"       \
  "smmla v14.4s, v18.16b, v24.16b\n"      \
  "and v22.16b, v18.16b, v31.16b\n"       \
  "smmla v15.4s, v19.16b, v24.16b\n"      \
  "and v23.16b, v19.16b, v31.16b\n"       \
  "smmla v12.4s, v20.16b, v25.16b\n"      \
  "smmla v13.4s, v21.16b, v25.16b\n"      \
  "smmla v14.4s, v22.16b, v25.16b\n"      \
  "smmla v15.4s, v23.16b, v25.16b\n"
// A subgroup's sums times its scales and the fourth's (v29), into four of v0-11.
#define MILLRACE_SCALE(scales, a, b, c, d) \
  "zip1 v30.8h, v" #scales                 \
  ".8h, v29.8h\n"                          \
  "zip2 v24.8h, v" #scales                 \
  ".8h, v29.8h\n"                          \
  "sxtl v20.4s, v30.4h\n"                  \
  "sxtl2 v21.4s, v30.8h\n"                 \
  "sxtl v22.4s, v24.4h\n"                  \
  "sxtl2 v23.4s, v24.8h\n"                 \
  "mla v" #a                               \
  ".4s, v12.4s, v20.4s\n"                  \
  "mla v" #b                               \
  ".4s, v13.4s, v21.4s\n"                  \
  "mla v" #c                               \
  ".4s, v14.4s, v22.4s\n"                  \
  "mla v" #d ".4s, v15.4s, v23.4s\n"

// The three parts of the fourth's sums with their weights (v12-14), then outputs 0-3 and 4-7 in v0 and v2.
#define MILLRACE_WEIGH          \
  "mul v0.4s, v0.4s, v12.4s\n"  \
  "mul v1.4s, v1.4s, v12.4s\n"  \
  "mul v2.4s, v2.4s, v12.4s\n"  \
  "mul v3.4s, v3.4s, v12.4s\n"  \
  "mla v0.4s, v4.4s, v13.4s\n"  \
  "mla v1.4s, v5.4s, v13.4s\n"  \
  "mla v2.4s, v6.4s, v13.4s\n"  \
  "mla v3.4s, v7.4s, v13.4s\n"  \
  "mla v0.4s, v8.4s, v14.4s\n"  \
  "mla v1.4s, v9.4s, v14.4s\n"  \
  "mla v2.4s, v10.4s, v14.4s\n" \
  "mla v3.4s, v11.4s, v14.4s\n" \
  "addp v0.4s, v0.4s, v1.4s\n"  \
  "addp v2.4s, v2.4s, v3.4s\n"

// totals of a panel's eight outputs += one group of Q6_K x a row split in thirds.
inline void multiply_q6_k_row(const std::byte* row, const std::byte* group, float* totals, const std::byte* ahead) {
  alignas(16) static constexpr int32_t kWeights[3][4] = {{1, 64, 1, 64}, {1, 16, 1, 16}, {1, 4, 1, 4}};
  const std::byte *codes = group + 144, *scales = group + 16, *row_factor = row;
  int64_t chunks = 4;
  row += 16;
  asm volatile(
      "movi v31.16b, #3\n"
      MILLRACE_CLEAR4(0, 1, 2, 3) MILLRACE_CLEAR4(4, 5, 6, 7) MILLRACE_CLEAR4(8, 9, 10, 11)
      "1:\n"
      "ldp q26, q28, [%[scales]], #32\n"
      MILLRACE_CLEAR4(12, 13, 14, 15)
      "sxtl2 v27.8h, v26.16b\n"
      "sxtl v26.8h, v26.8b\n"
      "sxtl2 v29.8h, v28.16b\n"
      "sxtl v28.8h, v28.8b\n"
      MILLRACE_FETCH(0) MILLRACE_STEP(0, 16)
      MILLRACE_FETCH(64) MILLRACE_STEP(64, 48)
      MILLRACE_SCALE(26, 0, 1, 2, 3)
      MILLRACE_CLEAR4(12, 13, 14, 15)
      MILLRACE_FETCH(128) MILLRACE_STEP(128, 80)
      MILLRACE_FETCH(192) MILLRACE_STEP(192, 112)
      MILLRACE_SCALE(27, 4, 5, 6, 7)
      "ldr q12, [%[row]]\n"
      "ldr q13, [%[row]]\n"
      "ldr q14, [%[row]]\n"
      "ldr q15, [%[row]]\n"
      MILLRACE_FETCH(256) MILLRACE_STEP(256, 144)
      MILLRACE_FETCH(320) MILLRACE_STEP(320, 176)
      MILLRACE_SCALE(28, 8, 9, 10, 11)
      MILLRACE_FETCH(384)
      "add %[codes], %[codes], #384\n"
      "add %[ahead], %[ahead], #420\n"
      "add %[row], %[row], #208\n"
      "subs %[chunks], %[chunks], #1\n"
      "b.ne 1b\n"
      "ldp q12, q13, [%[weights]]\n"
      "ldr q14, [%[weights], #32]\n"
      MILLRACE_WEIGH
      "ldr q20, [%[group]]\n"
      "ldr s24, [%[row_factor]]\n"
      "fcvtl v22.4s, v20.4h\n"
      "fcvtl2 v23.4s, v20.8h\n"
      "fmul v22.4s, v22.4s, v24.s[0]\n"
      "fmul v23.4s, v23.4s, v24.s[0]\n"
      "scvtf v0.4s, v0.4s\n"
      "scvtf v2.4s, v2.4s\n"
      "ldp q28, q29, [%[totals]]\n"
      "fmla v28.4s, v0.4s, v22.4s\n"
      "fmla v29.4s, v2.4s, v23.4s\n"
      "stp q28, q29, [%[totals]]\n"
      : [codes] "+&r"(codes), [ahead] "+&r"(ahead), [row] "+&r"(row), [scales] "+&r"(scales), [chunks] "+&r"(chunks)
      : [row_factor] "r"(row_factor), [group] "r"(group), [totals] "r"(totals), [weights] "r"(kWeights)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
        "v31");
}

#undef MILLRACE_STEP
#undef MILLRACE_SCALE
#undef MILLRACE_WEIGH

#endif

}  // namespace
}  // namespace millrace::cpu

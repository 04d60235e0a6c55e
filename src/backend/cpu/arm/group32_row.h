// One row against packed weights of group32.h, as assembly for machines with i8mm. A matrix instruction multiplies two
// rows; where there is only one, the second place is put to use in Q4_0, as group256_row.h explains: with b = l + 16 h
// a vector of bytes and x = b & 0xf0, [a; 0] b + [-a; a] x = [a l; 16 a h], low and high nibbles being of different
// outputs.
//
// Such a row is prepared apart ("split"), per group of 32: its factor four times; what the sums of low and high nibbles
// start from [2][low, high], for low nibbles that stand for themselves less 8; then for each step [a (8), 0 (8)][-a
// (8), a (8)].
#pragma once

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSplit32Bytes = 160;

inline void store_split32(float factor, const int8_t* q, std::byte* out) {
  int32_t start[4] = {-8 * (vaddlvq_s8(vld1q_s8(q)) + vaddlvq_s8(vld1q_s8(q + 16))), 0, 0, 0};
  start[2] = start[0];
  store_f32(out, vdupq_n_f32(factor));
  std::memcpy(out + 16, start, 16);
  for (int k = 0; k < 4; ++k) {
    int8x8_t a = vld1_s8(q + 8 * k);
    store_s8(out + 32 + k * 32, vcombine_s8(a, vdup_n_s8(0)));
    store_s8(out + 48 + k * 32, vcombine_s8(vneg_s8(a), a));
  }
}

#ifdef __ARM_FEATURE_MATMUL_INT8

// totals of a panel's eight outputs, 16-fold, = Q4_0 groups x a split row. Panels follow one another in memory: asks
// for what lies `ahead` bytes on. v0-1 totals of outputs 0 4 1 5 and 2 6 3 7, v4-5 integer sums, v12 mask, v16-17
// codes, v20-21 their high nibbles, v24-25 the row.
inline void multiply_q4_0_row(const std::byte* row, const std::byte* group, int64_t groups, int64_t ahead,
                              float* totals) {
  alignas(16) static constexpr float kWeights[4] = {16, 1, 16, 1};
#define MILLRACE_STEP(offset, row_offset) \
  "ldp q24, q25, [%[row], #" #row_offset  \
  "]\n"                                   \
  "ldp q16, q17, [%[group], #" #offset    \
  "]\n"                                   \
  "and v20.16b, v16.16b, v12.16b\n"       \
  "and v21.16b, v17.16b, v12.16b\n"       \
  "smmla v4.4s, v16.16b, v24.16b\n"       \
  "smmla v5.4s, v17.16b, v24.16b\n"       \
  "smmla v4.4s, v20.16b, v25.16b\n"       \
  "smmla v5.4s, v21.16b, v25.16b\n"
  asm volatile(
      "movi v0.4s, #0\n"
      "movi v1.4s, #0\n"
      "movi v12.16b, #0xf0\n"
      "add %[ahead], %[group], %[ahead]\n"
      "1:\n"
      "prfm pldl2keep, [%[ahead]]\n"
      "ldr q4, [%[row], #16]\n"
      "ldr q5, [%[row], #16]\n"
      MILLRACE_STEP(16, 32)
      "prfm pldl2keep, [%[ahead], #64]\n"
      MILLRACE_STEP(48, 64)
      "ldr q28, [%[group]]\n"
      "ldr q29, [%[row]]\n"
      "fcvtl v30.4s, v28.4h\n"
      "fcvtl2 v31.4s, v28.8h\n"
      MILLRACE_STEP(80, 96)
      "prfm pldl2keep, [%[ahead], #128]\n"
      "fmul v30.4s, v30.4s, v29.4s\n"
      "fmul v31.4s, v31.4s, v29.4s\n"
      MILLRACE_STEP(112, 128)
      "add %[row], %[row], #160\n"
      "add %[group], %[group], #144\n"
      "add %[ahead], %[ahead], #144\n"
      "subs %[groups], %[groups], #1\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v5.4s, v5.4s\n"
      "fmla v0.4s, v4.4s, v30.4s\n"
      "fmla v1.4s, v5.4s, v31.4s\n"
      "b.ne 1b\n"
      // Low nibbles count 16 times; then outputs in their order.
      "ldr q13, [%[weights]]\n"
      "fmul v0.4s, v0.4s, v13.4s\n"
      "fmul v1.4s, v1.4s, v13.4s\n"
      "uzp1 v2.4s, v0.4s, v1.4s\n"
      "uzp2 v3.4s, v0.4s, v1.4s\n"
      "stp q2, q3, [%[totals]]\n"
      : [row] "+&r"(row), [group] "+&r"(group), [groups] "+&r"(groups), [ahead] "+&r"(ahead)
      : [totals] "r"(totals), [weights] "r"(kWeights)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v12", "v13", "v16", "v17", "v20", "v21", "v24", "v25",
        "v28", "v29", "v30", "v31");
#undef MILLRACE_STEP
}

// totals of a panel's eight outputs = Q8_0 groups x the first row of a prepared tile (`row_bytes` a group).
inline void multiply_q8_0_row(const std::byte* row, int64_t row_bytes, const std::byte* group, int64_t groups,
                              int64_t ahead, float* totals) {
#define MILLRACE_STEP(offset, step)    \
  "ldp q16, q17, [%[group], #" #offset \
  "]\n"                                \
  "ldp q18, q19, [%[group], #" #offset \
  " + 32]\n"                           \
  "smmla v4.4s, v" #step               \
  ".16b, v16.16b\n"                    \
  "smmla v5.4s, v" #step               \
  ".16b, v17.16b\n"                    \
  "smmla v6.4s, v" #step               \
  ".16b, v18.16b\n"                    \
  "smmla v7.4s, v" #step ".16b, v19.16b\n"
  asm volatile(
      "movi v0.4s, #0\n"
      "movi v1.4s, #0\n"
      "add %[ahead], %[group], %[ahead]\n"
      "1:\n"
      "movi v4.4s, #0\n"
      "movi v5.4s, #0\n"
      "movi v6.4s, #0\n"
      "movi v7.4s, #0\n"
      "ldr q24, [%[row], #32]\n"
      "ldr q25, [%[row], #64]\n"
      "ldr q26, [%[row], #96]\n"
      "ldr q27, [%[row], #128]\n"
      "prfm pldl2keep, [%[ahead]]\n"
      MILLRACE_STEP(16, 24)
      "prfm pldl2keep, [%[ahead], #64]\n"
      MILLRACE_STEP(80, 25)
      "prfm pldl2keep, [%[ahead], #128]\n"
      MILLRACE_STEP(144, 26)
      "prfm pldl2keep, [%[ahead], #192]\n"
      MILLRACE_STEP(208, 27)
      "prfm pldl2keep, [%[ahead], #256]\n"
      "ldr q28, [%[group]]\n"
      "ldr s29, [%[row]]\n"
      "fcvtl v30.4s, v28.4h\n"
      "fcvtl2 v31.4s, v28.8h\n"
      "zip1 v4.2d, v4.2d, v5.2d\n"
      "zip1 v6.2d, v6.2d, v7.2d\n"
      "fmul v30.4s, v30.4s, v29.s[0]\n"
      "fmul v31.4s, v31.4s, v29.s[0]\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v6.4s, v6.4s\n"
      "add %[row], %[row], %[row_bytes]\n"
      "add %[group], %[group], #272\n"
      "add %[ahead], %[ahead], #272\n"
      "subs %[groups], %[groups], #1\n"
      "fmla v0.4s, v4.4s, v30.4s\n"
      "fmla v1.4s, v6.4s, v31.4s\n"
      "b.ne 1b\n"
      "stp q0, q1, [%[totals]]\n"
      : [row] "+&r"(row), [group] "+&r"(group), [groups] "+&r"(groups), [ahead] "+&r"(ahead)
      : [totals] "r"(totals), [row_bytes] "r"(row_bytes)
      : "cc", "memory", "v0", "v1", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v24", "v25", "v26", "v27",
        "v28", "v29", "v30", "v31");
#undef MILLRACE_STEP
}

#endif

}  // namespace
}  // namespace millrace::cpu

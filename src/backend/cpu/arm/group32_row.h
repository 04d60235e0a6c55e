// One row against packed weights of group32.h, as assembly for machines with i8mm. A matrix instruction multiplies two
// rows; where there is only one, the second place is put to use in formats of four bits, as group256_row.h explains:
// with b = l + 16 h a vector of bytes and x = b & 0xf0, [a; 0] b + [-a; c] x = [a l; 16 c h].
//
// Such a row is prepared apart ("split"), per group of 32: its factor four times; what the sums of low and high nibbles
// start from [2 outputs][low, high], for low nibbles that stand for themselves less 8; then for each pair of steps
// [a (8), 0 (8)][-a (8), c (8)].
#pragma once

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSplit32Bytes = 96;

inline void store_split32(float factor, const int8_t* q, std::byte* out) {
  int8x8_t a = vld1_s8(q), c = vld1_s8(q + 8), d = vld1_s8(q + 16), e = vld1_s8(q + 24);
  int32_t start[4] = {-8 * (vaddlv_s8(a) + vaddlv_s8(d)), 0, 0, 0};
  start[2] = start[0];
  store_f32(out, vdupq_n_f32(factor));
  std::memcpy(out + 16, start, 16);
  store_s8(out + 32, vcombine_s8(a, vdup_n_s8(0)));
  store_s8(out + 48, vcombine_s8(vneg_s8(a), c));
  store_s8(out + 64, vcombine_s8(d, vdup_n_s8(0)));
  store_s8(out + 80, vcombine_s8(vneg_s8(d), e));
}

#ifdef __ARM_FEATURE_MATMUL_INT8

// totals of a panel's eight outputs = Q4_0 groups x a split row. Panels follow one another in memory: asks for what lies
// `ahead` bytes on. v0-1 totals, v4-7 integer sums [output][low, high] of pairs of outputs, v12 mask, v13 the weights of
// low and high, v16-19 codes, v20-23 their high nibbles, v24-27 the row.
inline void multiply_q4_0_row(const std::byte* row, const std::byte* group, int64_t groups, int64_t ahead,
                              float* totals) {
  alignas(16) static constexpr int32_t kWeights[4] = {16, 1, 16, 1};
#define MILLRACE_STEPS(offset, first, second)               \
  "ldp q16, q17, [%[group], #" #offset "]\n"                \
  "ldp q18, q19, [%[group], #" #offset " + 32]\n"           \
  "smmla v4.4s, v16.16b, v" #first ".16b\n"                 \
  "and v20.16b, v16.16b, v12.16b\n"                         \
  "smmla v5.4s, v17.16b, v" #first ".16b\n"                 \
  "and v21.16b, v17.16b, v12.16b\n"                         \
  "smmla v6.4s, v18.16b, v" #first ".16b\n"                 \
  "and v22.16b, v18.16b, v12.16b\n"                         \
  "smmla v7.4s, v19.16b, v" #first ".16b\n"                 \
  "and v23.16b, v19.16b, v12.16b\n"                         \
  "smmla v4.4s, v20.16b, v" #second ".16b\n"                \
  "smmla v5.4s, v21.16b, v" #second ".16b\n"                \
  "smmla v6.4s, v22.16b, v" #second ".16b\n"                \
  "smmla v7.4s, v23.16b, v" #second ".16b\n"
  asm volatile(
      "movi v0.4s, #0\n"
      "movi v1.4s, #0\n"
      "movi v12.16b, #0xf0\n"
      "ldr q13, [%[weights]]\n"
      "add %[ahead], %[group], %[ahead]\n"
      "1:\n"
      "prfm pldl2keep, [%[ahead]]\n"
      "ldr q4, [%[row], #16]\n"
      "ldr q5, [%[row], #16]\n"
      "ldr q6, [%[row], #16]\n"
      "ldr q7, [%[row], #16]\n"
      "ldp q24, q25, [%[row], #32]\n"
      MILLRACE_STEPS(16, 24, 25)
      "prfm pldl2keep, [%[ahead], #64]\n"
      "ldp q26, q27, [%[row], #64]\n"
      MILLRACE_STEPS(80, 26, 27)
      "prfm pldl2keep, [%[ahead], #128]\n"
      "ldr q28, [%[group]]\n"
      "ldr q29, [%[row]]\n"
      "mul v4.4s, v4.4s, v13.4s\n"
      "mul v5.4s, v5.4s, v13.4s\n"
      "mul v6.4s, v6.4s, v13.4s\n"
      "mul v7.4s, v7.4s, v13.4s\n"
      "fcvtl v30.4s, v28.4h\n"
      "fcvtl2 v31.4s, v28.8h\n"
      "addp v4.4s, v4.4s, v5.4s\n"
      "addp v6.4s, v6.4s, v7.4s\n"
      "fmul v30.4s, v30.4s, v29.4s\n"
      "fmul v31.4s, v31.4s, v29.4s\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v6.4s, v6.4s\n"
      "add %[row], %[row], #96\n"
      "add %[group], %[group], #144\n"
      "add %[ahead], %[ahead], #144\n"
      "subs %[groups], %[groups], #1\n"
      "fmla v0.4s, v4.4s, v30.4s\n"
      "fmla v1.4s, v6.4s, v31.4s\n"
      "b.ne 1b\n"
      "stp q0, q1, [%[totals]]\n"
      : [row] "+&r"(row), [group] "+&r"(group), [groups] "+&r"(groups), [ahead] "+&r"(ahead)
      : [totals] "r"(totals), [weights] "r"(kWeights)
      : "cc", "memory", "v0", "v1", "v4", "v5", "v6", "v7", "v12", "v13", "v16", "v17", "v18", "v19", "v20", "v21",
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
#undef MILLRACE_STEPS
}

// totals of a panel's eight outputs = Q8_0 groups x the first row of a prepared tile (`row_bytes` a group).
inline void multiply_q8_0_row(const std::byte* row, int64_t row_bytes, const std::byte* group, int64_t groups,
                              int64_t ahead, float* totals) {
#define MILLRACE_STEP(offset, step)                         \
  "ldp q16, q17, [%[group], #" #offset "]\n"                \
  "ldp q18, q19, [%[group], #" #offset " + 32]\n"           \
  "smmla v4.4s, v" #step ".16b, v16.16b\n"                  \
  "smmla v5.4s, v" #step ".16b, v17.16b\n"                  \
  "smmla v6.4s, v" #step ".16b, v18.16b\n"                  \
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

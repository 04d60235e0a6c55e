// One row against packed weights of group32.h, as assembly for machines with i8mm. A matrix instruction multiplies two
// rows; where there is only one, the second place is put to use in Q4_0, as group256_row.h explains: with b = l + 16 h
// a vector of bytes and x = b & 0xf0, [a; 0] b + [-a; a] x = [a l; 16 a h], low and high nibbles being of different
// outputs.
//
// Such a row is prepared apart ("split"), per group of 32: its factor four times; what the sums of low and high nibbles
// start from [2][low, high], for low nibbles that stand for themselves less 8; then for each step [a (8), 0 (8)][-a
// (8), a (8)].
#pragma once

#include "backend/cpu/arm/assembly.h"
#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSplit32Bytes = 160;

inline void store_split32(float32x4_t factor, int8x16_t first, int8x16_t second, std::byte* out) {
  const int8x16_t less = vdupq_n_s8(-8);
  const uint32_t start =
      static_cast<uint32_t>(vaddvq_s32(vdotq_s32(vdotq_s32(vdupq_n_s32(0), first, less), second, less)));
  store_f32(out, factor);
  store_s8(out + 16, vreinterpretq_s8_u64(vdupq_n_u64(start)));  // [low, high] twice, high from zero
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, out += 64) {
    const int8x16_t q = half == 0 ? first : second;
    const int64x2_t a = vreinterpretq_s64_s8(q), less_a = vreinterpretq_s64_s8(vnegq_s8(q)), none = vdupq_n_s64(0);
    store_s8(out + 32, vreinterpretq_s8_s64(vzip1q_s64(a, none)));
    store_s8(out + 48, vreinterpretq_s8_s64(vzip1q_s64(less_a, a)));
    store_s8(out + 64, vreinterpretq_s8_s64(vzip2q_s64(a, none)));
    store_s8(out + 80, vreinterpretq_s8_s64(vzip2q_s64(less_a, a)));
  }
}

// clang-format off

// Steps of two groups, one after the other in memory, against a split row. v4-5 and v6-7 integer sums of the two, v12
// mask, v16-19 codes, v20-23 their high nibbles, v24-27 the row.
#define MILLRACE_STEP(row_at, group_at, step, low, high, c0, c1, x0, x1, sum0, sum1) \
  "ldp q" #low ", q" #high ", [%[row], #" #row_at " + 32 + 32 * " #step "]\n"        \
  "ldp q" #c0 ", q" #c1 ", [%[group], #" #group_at " + 16 + 32 * " #step "]\n"       \
  "and v" #x0 ".16b, v" #c0 ".16b, v12.16b\n"                                        \
  "and v" #x1 ".16b, v" #c1 ".16b, v12.16b\n"                                        \
  "smmla v" #sum0 ".4s, v" #c0 ".16b, v" #low ".16b\n"                               \
  "smmla v" #sum1 ".4s, v" #c1 ".16b, v" #low ".16b\n"                               \
  "smmla v" #sum0 ".4s, v" #x0 ".16b, v" #high ".16b\n"                              \
  "smmla v" #sum1 ".4s, v" #x1 ".16b, v" #high ".16b\n"
#define MILLRACE_FIRST(step) MILLRACE_STEP(0, 0, step, 24, 25, 16, 17, 20, 21, 4, 5)
#define MILLRACE_SECOND(step) MILLRACE_STEP(160, 144, step, 26, 27, 18, 19, 22, 23, 6, 7)

// totals of `panels` panels' eight outputs each, 16-fold, = Q4_0 groups x a split row. Panels follow one another in
// memory: asks for what lies `ahead` bytes on. A run of up to eight groups has one factor of the row. Sums of a group
// wait for each other, so two groups go side by side. v0-1 sums of the run at hand and v8-9 totals, of outputs 0 4 1 5
// and 2 6 3 7.
inline void multiply_q4_0_row(const std::byte* split, const std::byte* group, int64_t groups, int64_t panels,
                              int64_t ahead, float* totals) {
  alignas(16) static constexpr float kWeights[4] = {16, 1, 16, 1};
  const std::byte* row = split;
  int64_t left = groups, run, twos;
  asm volatile(
      "movi v12.16b, #0xf0\n"
      "ldr q13, [%[weights]]\n"
      "add %[ahead], %[group], %[ahead]\n"
      "1:\n"
      "movi v8.4s, #0\n"
      "movi v9.4s, #0\n"
      "mov %[row], %[split]\n"
      "mov %[left], %[groups]\n"
      "2:\n"
      "movi v0.4s, #0\n"
      "movi v1.4s, #0\n"
      "mov %[run], #8\n"
      "cmp %[left], #8\n"
      "csel %[run], %[left], %[run], lt\n"
      "sub %[left], %[left], %[run]\n"
      "lsr %[twos], %[run], #1\n"
      "cbz %[twos], 4f\n"
      "3:\n"
      MILLRACE_FETCH(0)
      "ldr q4, [%[row], #16]\n"
      "ldr q5, [%[row], #16]\n"
      "ldr q6, [%[row], #176]\n"
      "ldr q7, [%[row], #176]\n"
      MILLRACE_FIRST(0) MILLRACE_SECOND(0)
      MILLRACE_FETCH(64)
      "ldr q28, [%[group]]\n"
      "fcvtl v30.4s, v28.4h\n"
      "fcvtl2 v31.4s, v28.8h\n"
      MILLRACE_FIRST(1) MILLRACE_SECOND(1)
      MILLRACE_FETCH(128)
      MILLRACE_FIRST(2) MILLRACE_SECOND(2)
      MILLRACE_FETCH(192)
      "ldr q28, [%[group], #144]\n"
      "fcvtl v2.4s, v28.4h\n"
      "fcvtl2 v3.4s, v28.8h\n"
      MILLRACE_FIRST(3) MILLRACE_SECOND(3)
      MILLRACE_FETCH(256)
      "add %[row], %[row], #320\n"
      "add %[group], %[group], #288\n"
      "add %[ahead], %[ahead], #288\n"
      "subs %[twos], %[twos], #1\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v5.4s, v5.4s\n"
      "scvtf v6.4s, v6.4s\n"
      "scvtf v7.4s, v7.4s\n"
      "fmla v0.4s, v4.4s, v30.4s\n"
      "fmla v1.4s, v5.4s, v31.4s\n"
      "fmla v0.4s, v6.4s, v2.4s\n"
      "fmla v1.4s, v7.4s, v3.4s\n"
      "b.ne 3b\n"
      "4:\n"
      "tbz %[run], #0, 5f\n"
      MILLRACE_FETCH(0) MILLRACE_FETCH(64) MILLRACE_FETCH(128)
      "ldr q4, [%[row], #16]\n"
      "ldr q5, [%[row], #16]\n"
      MILLRACE_FIRST(0) MILLRACE_FIRST(1) MILLRACE_FIRST(2) MILLRACE_FIRST(3)
      "ldr q28, [%[group]]\n"
      "fcvtl v30.4s, v28.4h\n"
      "fcvtl2 v31.4s, v28.8h\n"
      "scvtf v4.4s, v4.4s\n"
      "scvtf v5.4s, v5.4s\n"
      "fmla v0.4s, v4.4s, v30.4s\n"
      "fmla v1.4s, v5.4s, v31.4s\n"
      "add %[row], %[row], #160\n"
      "add %[group], %[group], #144\n"
      "add %[ahead], %[ahead], #144\n"
      "5:\n"
      "ldr q29, [%[row], #-160]\n"
      "fmla v8.4s, v0.4s, v29.4s\n"
      "fmla v9.4s, v1.4s, v29.4s\n"
      "cbnz %[left], 2b\n"
      // Low nibbles count 16 times; then outputs in their order.
      "fmul v0.4s, v8.4s, v13.4s\n"
      "fmul v1.4s, v9.4s, v13.4s\n"
      "uzp1 v2.4s, v0.4s, v1.4s\n"
      "uzp2 v3.4s, v0.4s, v1.4s\n"
      "stp q2, q3, [%[totals]], #32\n"
      "subs %[panels], %[panels], #1\n"
      "b.gt 1b\n"
      : [row] "+&r"(row), [group] "+&r"(group), [left] "+&r"(left), [panels] "+&r"(panels), [ahead] "+&r"(ahead),
        [totals] "+&r"(totals), [run] "=&r"(run), [twos] "=&r"(twos)
      : [split] "r"(split), [groups] "r"(groups), [weights] "r"(kWeights)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v12", "v13", "v16", "v17", "v18",
        "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

#undef MILLRACE_STEP
#undef MILLRACE_FIRST
#undef MILLRACE_SECOND

// clang-format on

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

}  // namespace
}  // namespace millrace::cpu

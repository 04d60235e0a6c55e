// Eight queries against a chunk of a bfloat16 cache that lies in the order products take it: the sums of
// attend_bf16.cpp in the same order. Only that kernel includes it; any worker calls it.
#pragma once

#include "backend/cpu/arm/i8mm/attend_bf16.h"

namespace millrace::cpu {
namespace {

// What becomes of a sum that is there already, and of the one that is new.
struct Merged {
  float keep[8], take[8];
};

// out [8][8], rows `stride` apart, become the sums over steps of a [steps][8][4] by b [steps][8][4], or take them in.
template <bool merges>
[[gnu::always_inline]] inline void multiply_eight(const std::byte* a, const std::byte* b, int32_t steps,
                                                  const Merged* merged, float* out, int64_t stride) {
  float32x4_t sum[4][4];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) sum[i / 4][i % 4] = vdupq_n_f32(0);
  for (int32_t s = 0; s < steps; ++s, a += 64, b += 64) {
    bfloat16x8_t of[4];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) of[m] = load_bf16(a + m * 16);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      bfloat16x8_t by = load_bf16(b + n * 16);
#pragma GCC unroll 4
      for (int m = 0; m < 4; ++m) sum[m][n] = vbfmmlaq_f32(sum[m][n], of[m], by);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // pair, half of the columns
    const int row = i / 2 * 2;
    float64x2_t left = vreinterpretq_f64_f32(sum[i / 2][i % 2 * 2]);
    float64x2_t right = vreinterpretq_f64_f32(sum[i / 2][i % 2 * 2 + 1]);
    float32x4_t first = vreinterpretq_f32_f64(vzip1q_f64(left, right));
    float32x4_t second = vreinterpretq_f32_f64(vzip2q_f64(left, right));
    float* to = out + row * stride + i % 2 * 4;
    if constexpr (merges) {
      first = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(to), merged->keep[row]), first, merged->take[row]);
      second = vfmaq_n_f32(vmulq_n_f32(vld1q_f32(to + stride), merged->keep[row + 1]), second, merged->take[row + 1]);
    }
    vst1q_f32(to, first);
    vst1q_f32(to + stride, second);
  }
}

// What turns scores of two queries into weights: 2^(score * factor + offset).
struct PairWeights {
  float32x4_t c2 = vdupq_n_f32(0.24221063f), c1 = vdupq_n_f32(0.69328292f), c0 = vdupq_n_f32(1.0f);
  float32x4_t offset[2];
  float32x4_t least = vdupq_n_f32(-127.0f), magic = vdupq_n_f32(12582912.0f), c3 = vdupq_n_f32(0.05500869f);
  int32x4_t exponent = vdupq_n_s32(1 << 23);
  float32x4_t factor;
};

// clang-format off
// exp2_rough in two halves, four vectors each, so that one half of some goes with the other half of those before: the
// steps of either wait for one another longer than the machine looks ahead. v24-28 constants, v29-31 what passes.
#define MILLRACE_START(x, shifted, offset, row, at) \
  "ldr q" #x ", [%[constants], #" #offset "]\n" \
  "ldr q" #shifted ", [%[" #row "], #" #at "]\n" \
  "fmla v" #x ".4s, v" #shifted ".4s, v28.4s\n"
#define MILLRACE_LEAST(x) "fmax v" #x ".4s, v" #x ".4s, v24.4s\n"
#define MILLRACE_SHIFT(x, shifted) "fadd v" #shifted ".4s, v" #x ".4s, v25.4s\n"
#define MILLRACE_WHOLE(to, shifted) "fsub v" #to ".4s, v" #shifted ".4s, v25.4s\n"
#define MILLRACE_REST(x, whole) "fsub v" #x ".4s, v" #x ".4s, v" #whole ".4s\n"
#define MILLRACE_TERM(to, offset, x, p) \
  "ldr q" #to ", [%[constants], #" #offset "]\n" \
  "fmla v" #to ".4s, v" #x ".4s, v" #p ".4s\n"
#define MILLRACE_SCALE(p, shifted) "mla v" #p ".4s, v" #shifted ".4s, v27.4s\n"

#define MILLRACE_FIRST_HALF(x0, x1, x2, x3, s0, s1, s2, s3) \
  MILLRACE_START(x0, s0, 48, first, 0) MILLRACE_START(x1, s1, 48, first, 16) \
  MILLRACE_START(x2, s2, 64, second, 0) MILLRACE_START(x3, s3, 64, second, 16) \
  MILLRACE_LEAST(x0) MILLRACE_LEAST(x1) MILLRACE_LEAST(x2) MILLRACE_LEAST(x3) \
  MILLRACE_SHIFT(x0, s0) MILLRACE_SHIFT(x1, s1) MILLRACE_SHIFT(x2, s2) MILLRACE_SHIFT(x3, s3) \
  MILLRACE_WHOLE(29, s0) MILLRACE_WHOLE(30, s1) MILLRACE_WHOLE(31, s2) MILLRACE_REST(x0, 29) \
  MILLRACE_WHOLE(29, s3) MILLRACE_REST(x1, 30) MILLRACE_REST(x2, 31) MILLRACE_REST(x3, 29) \
  "add %[first], %[first], #32\n" \
  "add %[second], %[second], #32\n"
// The first half of the next four with the second half of these.
#define MILLRACE_BOTH_HALVES(x0, x1, x2, x3, s0, s1, s2, s3, y0, y1, y2, y3, t0, t1, t2, t3) \
  MILLRACE_TERM(16, 0, y0, 26) MILLRACE_TERM(17, 0, y1, 26) \
  MILLRACE_START(x0, s0, 48, first, 0) MILLRACE_START(x1, s1, 48, first, 16) \
  MILLRACE_TERM(18, 0, y2, 26) MILLRACE_TERM(19, 0, y3, 26) \
  MILLRACE_START(x2, s2, 64, second, 0) MILLRACE_START(x3, s3, 64, second, 16) \
  MILLRACE_TERM(20, 16, y0, 16) MILLRACE_TERM(21, 16, y1, 17) \
  MILLRACE_LEAST(x0) MILLRACE_LEAST(x1) \
  MILLRACE_TERM(22, 16, y2, 18) MILLRACE_TERM(23, 16, y3, 19) \
  MILLRACE_LEAST(x2) MILLRACE_LEAST(x3) \
  MILLRACE_SHIFT(x0, s0) MILLRACE_SHIFT(x1, s1) \
  MILLRACE_TERM(16, 32, y0, 20) MILLRACE_TERM(17, 32, y1, 21) \
  MILLRACE_SHIFT(x2, s2) MILLRACE_SHIFT(x3, s3) \
  MILLRACE_TERM(18, 32, y2, 22) MILLRACE_TERM(19, 32, y3, 23) \
  MILLRACE_WHOLE(29, s0) MILLRACE_WHOLE(30, s1) \
  MILLRACE_SCALE(16, t0) MILLRACE_SCALE(17, t1) \
  MILLRACE_REST(x0, 29) MILLRACE_REST(x1, 30) \
  MILLRACE_SCALE(18, t2) MILLRACE_SCALE(19, t3) \
  MILLRACE_WHOLE(31, s2) MILLRACE_WHOLE(29, s3) \
  "bfcvtn v20.4h, v16.4s\n" \
  "bfcvtn v21.4h, v17.4s\n" \
  MILLRACE_REST(x2, 31) MILLRACE_REST(x3, 29) \
  "bfcvtn2 v20.8h, v18.4s\n" \
  "bfcvtn2 v21.8h, v19.4s\n" \
  "add %[first], %[first], #32\n" \
  "add %[second], %[second], #32\n" \
  "str q20, [%[weights]]\n" \
  "str q21, [%[weights], #64]\n" \
  "add %[weights], %[weights], #128\n"

// Scores of two queries, [columns] each, become weights [columns / 4][2][4], 64 bytes apart; columns a multiple of 8.
// Reads up to eight scores more than there are.
inline void weigh_pair(const PairWeights& of, const float* first, const float* second, int64_t columns,
                       std::byte* weights) {
  asm volatile(
      "ldp q24, q25, [%[constants], #80]\n"
      "ldp q26, q27, [%[constants], #112]\n"
      "ldr q28, [%[constants], #144]\n"
      MILLRACE_FIRST_HALF(0, 1, 2, 3, 4, 5, 6, 7)
      "1:\n"
      MILLRACE_BOTH_HALVES(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
      "subs %[columns], %[columns], #8\n"
      "b.le 2f\n"
      MILLRACE_BOTH_HALVES(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
      "subs %[columns], %[columns], #8\n"
      "b.gt 1b\n"
      "2:\n"
      : [first] "+&r"(first), [second] "+&r"(second), [columns] "+&r"(columns), [weights] "+&r"(weights)
      : [constants] "r"(&of)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
        "v31");
}
// clang-format on

#undef MILLRACE_START
#undef MILLRACE_LEAST
#undef MILLRACE_SHIFT
#undef MILLRACE_WHOLE
#undef MILLRACE_REST
#undef MILLRACE_TERM
#undef MILLRACE_SCALE
#undef MILLRACE_FIRST_HALF
#undef MILLRACE_BOTH_HALVES

}  // namespace
}  // namespace millrace::cpu

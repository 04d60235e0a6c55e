// What the kernels of attention over a bfloat16 cache have in common: how tokens lie in a page, and how scores become
// weights. Included by those kernels only, each of which is called by many workers at once.
#pragma once

#include "backend/cpu/arm/softmax.h"

namespace millrace::cpu {

// Attention of few queries over whole chunks (kernels.h); false: not for this shape.
bool i8mm_attend_few_bf16(const AttendRun& run);

namespace {

constexpr int32_t kStep = 4;              // dimensions, or positions, of a product
constexpr int32_t kBlockKeys = kKvBlock;  // four pairs

inline bfloat16x8_t load_bf16(const std::byte* at) { return vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at)); }
inline void store_bf16(std::byte* at, bfloat16x4_t x) { vst1_bf16(reinterpret_cast<bfloat16_t*>(at), x); }

inline bool interleaved(const KvView& kv) {
  return kv.page_tokens % kKvBlock == 0 && kv.k_dim % 8 == 0 && kv.v_dim % 8 == 0;
}

// How values lie in a page: so many tokens together, so many dimensions of four tokens one after another.
struct Order {
  int32_t tokens = kStep, width = kHeadDim;
  // From the first dimension of four tokens to another of the same, and to the next four; in bytes.
  int64_t dimension(int32_t dim) const { return int64_t{dim / width * width} * tokens * 2 + dim % width * 8; }
  int64_t four() const { return width * 8; }
};

inline Order order_of(const KvView& kv) {
  return {kv.page_tokens % 32 == 0 ? 32 : kv.page_tokens % 16 == 0 ? 16 : 8, kv.v_dim % 16 == 0 ? 16 : 8};
}

constexpr float kLog2e = 1.44269504f;

// 2^x for x <= 0 to 1e-4, far below what bfloat16 keeps; exactly 0 from -127 down. Several vectors step by step: each
// step alone would wait for the last.
template <int Vectors>
[[gnu::always_inline]] inline void exp2_rough(float32x4_t (&x)[Vectors]) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
  float32x4_t shifted[Vectors], p[Vectors];
#define MILLRACE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < Vectors; ++i)
  MILLRACE_EACH x[i] = vmaxq_f32(x[i], vdupq_n_f32(-127.0f));
  MILLRACE_EACH shifted[i] = vaddq_f32(x[i], magic);
  MILLRACE_EACH x[i] = vsubq_f32(x[i], vsubq_f32(shifted[i], magic));
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(0.24221063f), x[i], vdupq_n_f32(0.05500869f));
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(0.69328292f), x[i], p[i]);
  MILLRACE_EACH p[i] = vfmaq_f32(vdupq_n_f32(1.0f), x[i], p[i]);
  MILLRACE_EACH {
    int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(p[i]), vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23));
    x[i] = vreinterpretq_f32_s32(bits);
  }
#undef MILLRACE_EACH
}

inline bfloat16x8_t bf16_ones() {
  // g++ 12 makes a float16 1.0 of a constant bfloat16 1.0; it must not know that this is one.
  uint16_t one = 0x3f80;
  asm("" : "+r"(one));
  return vreinterpretq_bf16_u16(vdupq_n_u16(one));
}

}  // namespace
}  // namespace millrace::cpu

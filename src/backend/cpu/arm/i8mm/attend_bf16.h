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
  return kv.v_dim > 0 && kv.page_tokens % kKvBlock == 0 && kv.k_dim % 8 == 0 && kv.v_dim % 8 == 0;
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

// A constant that the next instruction overwrites, from memory: a copy from another register would take a place of the
// arithmetic, and g++ prefers copies.
[[gnu::always_inline]] inline float32x4_t again(const float32x4_t& constant) {
  float32x4_t value;
  asm volatile("ldr %q0, %1" : "=w"(value) : "m"(constant));
  return value;
}

// Polynomial of 2^x on [-1/2, 1/2], from the constant up.
struct Exp2Constants {
  float32x4_t c0 = vdupq_n_f32(1.0f), c1 = vdupq_n_f32(0.69328292f), c2 = vdupq_n_f32(0.24221063f);
};

// 2^x for x <= 0 to 1e-4, far below what bfloat16 keeps; exactly 0 from -127 down. Several vectors step by step: each
// step alone would wait for the last.
template <int Vectors>
[[gnu::always_inline]] inline void exp2_rough(const Exp2Constants& constants, float32x4_t (&x)[Vectors]) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);  // adding it leaves round(x) in the low bits
  float32x4_t shifted[Vectors], p[Vectors];
  int32x4_t exponent = vdupq_n_s32(1 << 23);
  asm("" : "+w"(exponent));  // or compilers make two instructions of one
#define MILLRACE_EACH _Pragma("GCC unroll 8") for (int i = 0; i < Vectors; ++i)
  MILLRACE_EACH x[i] = vmaxq_f32(x[i], vdupq_n_f32(-127.0f));
  MILLRACE_EACH shifted[i] = vaddq_f32(x[i], magic);
  MILLRACE_EACH x[i] = vsubq_f32(x[i], vsubq_f32(shifted[i], magic));
  MILLRACE_EACH p[i] = vfmaq_f32(again(constants.c2), x[i], vdupq_n_f32(0.05500869f));
  MILLRACE_EACH p[i] = vfmaq_f32(again(constants.c1), x[i], p[i]);
  MILLRACE_EACH p[i] = vfmaq_f32(again(constants.c0), x[i], p[i]);
  MILLRACE_EACH x[i] =
      vreinterpretq_f32_s32(vmlaq_s32(vreinterpretq_s32_f32(p[i]), vreinterpretq_s32_f32(shifted[i]), exponent));
#undef MILLRACE_EACH
}

// The softmax of four queries over a chunk, or over the chunks so far.
struct Softmax {
  float32x4_t most, total;
};

// Takes in the next chunk; what has seen nothing leaves the other as it is. Sums become sums * keep + the chunk's *
// take.
inline void merge(const Softmax& chunk, Softmax& running, float32x4_t& keep, float32x4_t& take) {
  const float32x4_t none = vdupq_n_f32(kNothing), zero = vdupq_n_f32(0), one = vdupq_n_f32(1);
  uint32x4_t empty = vceqq_f32(chunk.most, none), fresh = vbicq_u32(vceqq_f32(running.most, none), empty);
  float32x4_t highest = vbslq_f32(vcltq_f32(running.most, chunk.most), chunk.most, running.most);
  keep = vbslq_f32(empty, one, vbslq_f32(fresh, zero, exp_f32(vsubq_f32(running.most, highest))));
  take = vbslq_f32(empty, zero, vbslq_f32(fresh, one, exp_f32(vsubq_f32(chunk.most, highest))));
  running.total = vfmaq_f32(vmulq_f32(running.total, keep), chunk.total, take);
  running.most = highest;
}

inline bfloat16x8_t bf16_ones() {
  // g++ 12 makes a float16 1.0 of a constant bfloat16 1.0; it must not know that this is one.
  uint16_t one = 0x3f80;
  asm("" : "+r"(one));
  return vreinterpretq_bf16_u16(vdupq_n_u16(one));
}

}  // namespace
}  // namespace millrace::cpu

// What the products of quantised weights share: sums of int8 products of a pair of rows with a pair of outputs, and the
// tiles they come in. Rows are prepared in tiles of four (two pairs), outputs packed in panels of eight (four pairs); a
// vector holds eight inputs of the first of a pair, then eight of the second. Integer sums are exact, so neither the
// instruction nor the order of steps can show; where sums turn into float32, each output has one accumulator that takes
// groups in ascending order.
#pragma once

#include <algorithm>

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"
#include "base/check.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kTileRows = 4;
constexpr int kPanel = 8;
constexpr int kPairs = kPanel / 2;
constexpr int64_t kSharedGroups = 8;  // groups of 32 of a row with one factor, where weights are of few bits

inline int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The size of parts that are about equal and at most `most`.
inline int64_t equal_parts(int64_t count, int64_t most) {
  int64_t parts = (count + most - 1) / most;
  return (count + parts - 1) / parts;
}

// Sums of two rows with two outputs. sums() is [row 0 output 0, row 0 output 1, row 1 output 0, row 1 output 1].
#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr bool kMatrixProducts = true;
struct PairSum {
  int32x4_t value = vdupq_n_s32(0);
  void add(int8x16_t rows, int8x16_t outputs) { value = vmmlaq_s32(value, rows, outputs); }
  int32x4_t sums() const { return value; }
};
#else
constexpr bool kMatrixProducts = false;
struct PairSum {
  int32x4_t same = vdupq_n_s32(0), cross = vdupq_n_s32(0);  // first with first, and first with second
  void add(int8x16_t rows, int8x16_t outputs) {
    same = vdotq_s32(same, rows, outputs);
    cross = vdotq_s32(cross, rows, vextq_s8(outputs, outputs, 8));
  }
  int32x4_t sums() const {
    int32x2_t s = vpadd_s32(vget_low_s32(same), vget_high_s32(same)),
              x = vpadd_s32(vget_low_s32(cross), vget_high_s32(cross));
    return vcombine_s32(vzip1_s32(s, x), vzip2_s32(x, s));
  }
};
#endif

inline int8x16_t load_s8(const std::byte* at) { return vld1q_s8(reinterpret_cast<const int8_t*>(at)); }
inline uint8x16_t load_u8(const std::byte* at) { return vld1q_u8(reinterpret_cast<const uint8_t*>(at)); }
inline float32x4_t load_f32(const std::byte* at) { return vld1q_f32(reinterpret_cast<const float*>(at)); }
inline void store_u8(std::byte* at, uint8x16_t value) { vst1q_u8(reinterpret_cast<uint8_t*>(at), value); }
inline void store_s8(std::byte* at, int8x16_t value) { vst1q_s8(reinterpret_cast<int8_t*>(at), value); }
inline void store_f32(std::byte* at, float32x4_t value) { vst1q_f32(reinterpret_cast<float*>(at), value); }

// The first row's sums of two pairs of outputs.
inline int32x4_t first_row(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
inline float32x4_t low_twice(float32x4_t x) {
  return vreinterpretq_f32_f64(vdupq_laneq_f64(vreinterpretq_f64_f32(x), 0));
}
inline float32x4_t high_twice(float32x4_t x) {
  return vreinterpretq_f32_f64(vdupq_laneq_f64(vreinterpretq_f64_f32(x), 1));
}

inline float32x4_t twice(float32x4_t x, int half) { return half == 0 ? low_twice(x) : high_twice(x); }
inline uint8_t* as_bytes(std::byte* at) { return reinterpret_cast<uint8_t*>(at); }

// [a, a, b, b]: the factors of two rows, as they meet a PairSum.
inline float32x4_t per_row(float a, float b) { return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); }

// Eight float16 factors of a panel.
inline void load_eight_f16(const std::byte* at, float32x4_t (&out)[2]) {
  float16x8_t half = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(at)));
  out[0] = vcvt_f32_f16(vget_low_f16(half));
  out[1] = vcvt_f32_f16(vget_high_f16(half));
}

// 16 values times `inverse`, rounded to int8; none is beyond 127 then. Adding the constant leaves the integer, ties to
// even, in the low byte: quicker than converting and narrowing.
inline int8x16_t round_sixteen(const float* in, float32x4_t inverse) {
  const float32x4_t magic = vdupq_n_f32(12582912.0f);
  uint16x8_t q[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) q[j] = vreinterpretq_u16_f32(vaddq_f32(vmulq_f32(vld1q_f32(in + 4 * j), inverse), magic));
  return vreinterpretq_s8_u8(
      vuzp1q_u8(vreinterpretq_u8_u16(vuzp1q_u16(q[0], q[1])), vreinterpretq_u8_u16(vuzp1q_u16(q[2], q[3]))));
}

// What int8 values are had by: 127 over the largest, or nothing if all are zero.
inline float32x4_t inverse_factors(float32x4_t largest) {
  uint32x4_t some = vcgtzq_f32(largest);
  return vreinterpretq_f32_u32(vandq_u32(some, vreinterpretq_u32_f32(vdivq_f32(vdupq_n_f32(127.0f), largest))));
}

inline float32x4_t largest_of(const float* in, int64_t count) {
  float32x4_t most[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
#pragma GCC unroll 2
  for (int64_t i = 0; i < count; i += 16) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) most[j] = vmaxq_f32(most[j], vabsq_f32(vld1q_f32(in + i + 4 * j)));
  }
  return vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3]));
}

// Quantises `count` values (a multiple of 16) to int8 by their largest; returns the factor that undoes it.
inline float quantise(const float* in, int64_t count, int8_t* out) {
  float largest = vmaxvq_f32(largest_of(in, count));
  float32x4_t inverse = inverse_factors(vdupq_n_f32(largest));
  for (int64_t i = 0; i < count; i += 16) vst1q_s8(out + i, round_sixteen(in + i, inverse));
  return largest / 127.0f;
}

// Sums of a tile in the order of pairs, as the tile kernels keep them between calls: [pair of rows][pair of
// outputs][4].
constexpr int64_t kTileFloats = kTileRows * kPanel;

// Writes the sums of a tile's `rows` rows and the panel's outputs that exist, times `after`, a power of two.
inline void write_tile(const LinearPart& part, const float* sums, int64_t row, int64_t rows, int64_t output,
                       float after) {
  const float* bias = part.weight->bias;
  int64_t outputs = std::min<int64_t>(kPanel, part.end - output);
  for (int64_t r = 0; r < rows; ++r) {
    float* out = part.out.row(row + r) + output;
    const float* from = sums + r / 2 * 16 + r % 2 * 2;
    if (outputs == kPanel && bias == nullptr) {
      for (int p = 0; p < kPairs; ++p) vst1_f32(out + 2 * p, vmul_n_f32(vld1_f32(from + 4 * p), after));
      continue;
    }
    for (int64_t n = 0; n < outputs; ++n) {
      float value = from[n / 2 * 4 + n % 2] * after;
      out[n] = bias != nullptr ? value + bias[output + n] : value;
    }
  }
}

// The same sums in registers.
using TileSums = float32x4_t[2 * kPairs];

// Each row's outputs [4 * half, 4 * half + 4): what the two vectors of a row pair have in common.
inline float32x4_t of_first_row(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t of_second_row(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

inline void write_sums(const LinearPart& part, const TileSums& sums, int64_t row, int64_t rows, int64_t output,
                       float after) {
  if (rows < kTileRows || part.end - output < kPanel) {
    float stored[kTileFloats];
    for (int i = 0; i < 2 * kPairs; ++i) vst1q_f32(stored + 4 * i, sums[i]);
    return write_tile(part, stored, row, rows, output, after);
  }
  const float* bias = part.weight->bias;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // pair of rows, half of the outputs
    int pair = i / 2, half = i % 2;
    float32x4_t a = sums[pair * kPairs + 2 * half], b = sums[pair * kPairs + 2 * half + 1];
    float32x4_t first = vmulq_n_f32(of_first_row(a, b), after), second = vmulq_n_f32(of_second_row(a, b), after);
    if (bias != nullptr) {
      float32x4_t more = vld1q_f32(bias + output + 4 * half);
      first = vaddq_f32(first, more), second = vaddq_f32(second, more);
    }
    vst1q_f32(part.out.row(row + 2 * pair) + output + 4 * half, first);
    vst1q_f32(part.out.row(row + 2 * pair + 1) + output + 4 * half, second);
  }
}

// The same of sums in memory.
inline void write_stored(const LinearPart& part, const float* sums, int64_t row, int64_t rows, int64_t output,
                         float after) {
  TileSums total;
#pragma GCC unroll 8
  for (int i = 0; i < 2 * kPairs; ++i) total[i] = vld1q_f32(sums + 4 * i);
  write_sums(part, total, row, rows, output, after);
}

// How far on the loops of one row ask for what they read next, given where in the weight the panel at hand ends: not at
// all where that would be beyond the weight, for asking in vain takes long.
inline int64_t bytes_ahead(const Weight& weight, int64_t end) {
  constexpr int64_t kFar = 12 << 10;
  return end + kFar <= weight.bytes ? kFar : 0;
}

// Writes one row's eight sums of a panel.
inline void write_row(const LinearPart& part, int64_t row, int64_t output, float32x4_t low, float32x4_t high,
                      float after) {
  const float* bias = part.weight->bias;
  int64_t outputs = std::min<int64_t>(kPanel, part.end - output);
  float* out = part.out.row(row) + output;
  if (outputs == kPanel && bias == nullptr) {
    vst1q_f32(out, vmulq_n_f32(low, after));
    vst1q_f32(out + 4, vmulq_n_f32(high, after));
    return;
  }
  float sums[kPanel];
  vst1q_f32(sums, vmulq_n_f32(low, after));
  vst1q_f32(sums + 4, vmulq_n_f32(high, after));
  for (int64_t n = 0; n < outputs; ++n) out[n] = bias != nullptr ? sums[n] + bias[output + n] : sums[n];
}

}  // namespace
}  // namespace millrace::cpu

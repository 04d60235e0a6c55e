// The softmax of one query over one chunk, shared by the Arm attention kernels. Columns nobody sees become exactly
// zero, and zeros change no sum, so a chunk may be processed in full or up to its last seen column with the same bits.
#pragma once

#include <limits>

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

// Scale, softcap, slope and mask, in place: scores [columns], a multiple of 4. Returns the largest.
inline float finish_scores(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores) {
  const Attention& attention = *chunk.attention;
  const float kNothing = -std::numeric_limits<float>::infinity();
  float slope = attention.slopes != nullptr ? attention.slopes[chunk.head[query]] : 0.0f;
  int64_t distance = chunk.first - chunk.position[query];
  const int32_t steps[4] = {0, 1, 2, 3};
  int32x4_t column = vld1q_s32(steps), begin = vdupq_n_s32(chunk.begin[query]), end = vdupq_n_s32(chunk.end[query]);
  float32x4_t most = vdupq_n_f32(kNothing);
  for (int32_t j = 0; j < columns; j += 4, column = vaddq_s32(column, vdupq_n_s32(4))) {
    float32x4_t x = vmulq_n_f32(vld1q_f32(scores + j), attention.scale);
    if (attention.softcap > 0)
      x = vmulq_n_f32(tanh_f32(vdivq_f32(x, vdupq_n_f32(attention.softcap))), attention.softcap);
    if (slope != 0) {
      int32x4_t away = vaddq_s32(column, vdupq_n_s32(static_cast<int32_t>(distance)));
      x = vfmaq_n_f32(x, vcvtq_f32_s32(away), slope);
    }
    uint32x4_t seen = vandq_u32(vcgeq_s32(column, begin), vcltq_s32(column, end));
    x = vbslq_f32(seen, x, vdupq_n_f32(kNothing));
    vst1q_f32(scores + j, x);
    most = vmaxq_f32(most, x);
  }
  return vmaxvq_f32(most);
}

}  // namespace
}  // namespace millrace::cpu

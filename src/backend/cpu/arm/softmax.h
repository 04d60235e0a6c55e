// The softmax of one query over one chunk, shared by the Arm attention kernels. Columns a query does not see become
// exactly zero, and zeros change no sum, so a chunk may be processed in full or up to its last seen column with the
// same bits.
#pragma once

#include <algorithm>
#include <limits>

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Softcap and slope change what a score is; without them it is the product times the scale, and the scale can wait.
inline bool is_plain(const Attention& attention) {
  return attention.softcap <= 0 && attention.slopes == nullptr && attention.scale > 0;
}

inline void shape_scores(const AttendChunk& chunk, int32_t query, int32_t columns, float unit, float* scores) {
  const Attention& attention = *chunk.attention;
  float slope = attention.slopes != nullptr ? attention.slopes[chunk.head[query]] : 0.0f;
  const int32_t steps[4] = {0, 1, 2, 3};
  int32x4_t away = vaddq_s32(vld1q_s32(steps), vdupq_n_s32(static_cast<int32_t>(chunk.first - chunk.position[query])));
  for (int32_t j = 0; j < columns; j += 4, away = vaddq_s32(away, vdupq_n_s32(4))) {
    float32x4_t x = vmulq_n_f32(vld1q_f32(scores + j), attention.scale * unit);
    if (attention.softcap > 0)
      x = vmulq_n_f32(tanh_f32(vdivq_f32(x, vdupq_n_f32(attention.softcap))), attention.softcap);
    vst1q_f32(scores + j, vfmaq_n_f32(x, vcvtq_f32_s32(away), slope));
  }
}

// Scores of one query in units of `unit`, a power of two, [columns] of which a multiple of 4 exist: shaped if they must
// be, masked; then factor * score is what the softmax is of. `most` is the largest of that.
struct Scores {
  float factor, most;
};
inline Scores finish_scores(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores, float unit = 1) {
  bool plain = is_plain(*chunk.attention);
  if (!plain) shape_scores(chunk, query, columns, unit, scores);
  int32_t begin = std::min(chunk.begin[query], columns), end = std::max(begin, std::min(chunk.end[query], columns));
  std::fill_n(scores, begin, kNothing);
  std::fill_n(scores + end, columns - end, kNothing);
  float32x4_t most[4] = {vdupq_n_f32(kNothing), vdupq_n_f32(kNothing), vdupq_n_f32(kNothing), vdupq_n_f32(kNothing)};
  int32_t j = 0;
  for (; j + 16 <= columns; j += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = vmaxq_f32(most[i], vld1q_f32(scores + j + 4 * i));
  }
  for (; j < columns; j += 4) most[0] = vmaxq_f32(most[0], vld1q_f32(scores + j));
  float largest = vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
  float factor = plain ? chunk.attention->scale * unit : 1.0f;
  return {factor, begin < end ? largest * factor : kNothing};
}

}  // namespace
}  // namespace millrace::cpu

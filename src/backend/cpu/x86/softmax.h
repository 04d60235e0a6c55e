// The softmax of one query over one chunk, shared by the x86 attention kernels. Columns a query does not see become
// exactly zero, and zeros change no sum, so a chunk may be processed in full or up to its last seen column with the
// same bits.
#pragma once

#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

inline void fill_floats(float* out, int64_t count, float value) {
  for (int64_t i = 0; i < count; ++i) out[i] = value;
}

// Softcap and slope change what a score is; without them it is the product times the scale, and the scale can wait.
inline bool is_plain(const Attention& attention) {
  return attention.softcap <= 0 && attention.slopes == nullptr && attention.scale > 0;
}

inline void shape_scores(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores) {
  const Attention& attention = *chunk.attention;
  float slope = attention.slopes != nullptr ? attention.slopes[chunk.head[query]] : 0.0f;
  const float steps[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  float away = static_cast<float>(chunk.first - chunk.position[query]);
  for (int32_t j = 0; j < columns; j += kLanes) {
    Floats x = load(scores + j) * splat(attention.scale);
    if (attention.softcap > 0) x = tanh_f32(x / splat(attention.softcap)) * splat(attention.softcap);
    store(scores + j, fma(load(steps) + splat(away + static_cast<float>(j)), splat(slope), x));
  }
}

// Scores of one query, [columns] of which a multiple of 16 exist: shaped if they must be, masked; then factor * score
// is what the softmax is of. `most` is the largest of that.
struct Scores {
  float factor, most;
};
inline Scores finish_scores(const AttendChunk& chunk, int32_t query, int32_t columns, float* scores) {
  bool plain = is_plain(*chunk.attention);
  if (!plain) shape_scores(chunk, query, columns, scores);
  int32_t begin = chunk.begin[query] < columns ? chunk.begin[query] : columns;
  int32_t end = chunk.end[query] < columns ? chunk.end[query] : columns;
  if (end < begin) end = begin;
  fill_floats(scores, begin, kNothing);
  fill_floats(scores + end, columns - end, kNothing);
  Floats most[2] = {splat(kNothing), splat(kNothing)};
  for (int32_t j = 0; j < columns; j += kLanes) most[j / kLanes % 2] = larger(most[j / kLanes % 2], load(scores + j));
  float factor = plain ? chunk.attention->scale : 1.0f;
  return {factor, begin < end ? largest_lane(larger(most[0], most[1])) * factor : kNothing};
}

// Scores become exp(factor * score - most); returns their sum.
inline float exponentials(float* scores, int32_t columns, Scores of) {
  Floats sum = splat(0), offset = splat(-of.most);
  for (int32_t j = 0; j < columns; j += kLanes) {
    Floats e = exp_f32(fma(load(scores + j), splat(of.factor), offset));
    store(scores + j, e);
    sum = sum + e;
  }
  return sum_lanes(sum);
}

}  // namespace
}  // namespace millrace::cpu

// Choosing scales: given real numbers and a range of whole codes, the scale (and offset) whose codes reproduce the
// numbers with the smallest squared error that a search finds. `w` says how much the error of each number counts; null:
// all alike. Only used when quantising; pure functions in a fixed order of operations, so the same numbers give the
// same codes on every machine.
#pragma once

#include <cstdint>

namespace millrace::fit {

// Copies a group, so that what follows meets only numbers whose squares are finite: NaN becomes 0, huge numbers 1e9.
void load(const float* in, float* out, int count);

// What the errors of a group's numbers count: importance * sqrt(2 * the group's mean square + x^2), brought to a mean
// of one. An input that is mostly zero says little of what it may become, so that large weights keep some of their say.
// False if there is nothing to go by, and all count alike.
bool weigh(const float* x, const float* importance, int count, float* out);

// The whole number nearest to value, held within [low, high]; NaN gives low.
inline int nearest(float value, int low, int high) {
  const float bound_low = static_cast<float>(low), bound_high = static_cast<float>(high);
  const float held = value > bound_low ? (value < bound_high ? value : bound_high) : bound_low;
  return static_cast<int>(held - bound_low + 0.5f) + low;
}

inline float inverse(float scale) { return scale != 0.0f ? 1.0f / scale : 0.0f; }

// value rounded to a float16 that is finite.
uint16_t to_f16(float value);

// x ~ scale * q with low <= q <= high, low < 0 < high. The scale may be negative where the range is lopsided.
float scale(const float* x, const float* w, int count, int low, int high);

// x ~ scale * q + offset with 0 <= q <= high and scale >= 0; offset <= 0 if `below_zero`.
struct Affine {
  float scale = 0.0f, offset = 0.0f;
};
Affine affine(const float* x, const float* w, int count, int high, bool below_zero);

// The squared error of x ~ scale * q + offset with the best codes of the range.
float error(const float* x, const float* w, int count, float scale, float offset, int low, int high);

// Those codes.
void codes(const float* x, int count, float scale, float offset, int low, int high, int8_t* out);

// One float16 for all subgroups of a group: unit * k_i should be near wanted_i with whole 0 <= k_i <= high. Returns the
// unit.
uint16_t common_unit(const float* wanted, int count, int high);

}  // namespace millrace::fit

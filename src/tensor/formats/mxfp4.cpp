// MXFP4: 32 codes of four bits (a sign, two exponent bits, one mantissa bit) and a power of two they share. As GGUF
// files have it, the exponent byte 255 is a power of two like any other.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

// Half of 2^(exponent - 127), because the table holds twice the values.
float half_power(int exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23);
}

// The code nearest to value / step, ties to the even code.
int nearest_code(float value, float factor) {
  const float size = std::fabs(value) * factor;  // in halves of the smallest positive number, which is kFP4Values' unit
  const int code = size <= 0.5f   ? 0
                   : size < 1.5f  ? 1
                   : size <= 2.5f ? 2
                   : size < 3.5f  ? 3
                   : size <= 5.0f ? 4
                   : size < 7.0f  ? 5
                   : size <= 10.f ? 6
                                  : 7;
  return value < 0.0f && code != 0 ? code + 8 : code;
}

float error_of(const float* x, const float* w, int exponent) {
  const float step = half_power(exponent), factor = 1.0f / step;
  float sum = 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float difference = x[i] - static_cast<float>(layout::kFP4Values[nearest_code(x[i], factor)]) * step;
    sum += w != nullptr ? w[i] * (difference * difference) : difference * difference;
  }
  return sum;
}

void quantise(const float* x, const float* w, layout::MXFP4& group) {
  float most = 0.0f;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  // The largest code is 1.5 * 2^2: the exponent that puts the largest number at or above it, or the next, which never
  // clips. Where small numbers matter more, the one below may be better still.
  const int top = static_cast<int>(std::bit_cast<uint32_t>(most) >> 23) - 2;
  int exponent = 0;
  float best = -1.0f;
  for (int tried = w != nullptr ? top - 1 : top; most != 0.0f && tried <= top + 1; ++tried) {
    const int held = std::clamp(tried, 2, 252);
    const float error = error_of(x, w, held);
    if (best >= 0.0f && !(error < best)) continue;
    best = error;
    exponent = held;
  }
  group.exponent = static_cast<uint8_t>(exponent);
  const float factor = exponent == 0 ? 0.0f : 1.0f / half_power(exponent);
  for (int i = 0; i < 16; ++i) {
    group.codes[i] = static_cast<uint8_t>(nearest_code(x[i], factor) | nearest_code(x[i + 16], factor) << 4);
  }
}

}  // namespace

void mxfp4_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::MXFP4, 32>(in, out, values, [](const layout::MXFP4& group, float* x) {
    const float step = half_power(group.exponent);
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>(layout::kFP4Values[group.codes[i] & 15]) * step;
      x[i + 16] = static_cast<float>(layout::kFP4Values[group.codes[i] >> 4]) * step;
    }
  });
}

void mxfp4_put(const int8_t* codes, std::byte* group) {
  pack_halves(codes, reinterpret_cast<layout::MXFP4*>(group)->codes);
}

void mxfp4_grid(const std::byte* group, Grid& grid) {
  even_grid(half_power(reinterpret_cast<const layout::MXFP4*>(group)->exponent), 0.0f, 0, 15, grid);
  grid.levels = layout::kFP4Values;
}

void mxfp4_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::MXFP4, 32>(in, importance, out, values, quantise);
}

}  // namespace millrace::formats

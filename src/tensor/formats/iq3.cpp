// IQ3_XXS and IQ3_S: 256 values in 8 subgroups of 32; four values at a time are a row of a grid with signs.
#include <bit>

#include "tensor/formats/formats.h"
#include "tensor/formats/grids.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

float signed_by(float value, uint32_t signs, int i) { return (signs >> i & 1u) != 0 ? -value : value; }

}  // namespace

void iq3_xxs_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ3XXS, 256>(in, out, values, [](const layout::IQ3XXS& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int k = 0; k < 32; ++k) {  // eight values, of two rows
      const uint32_t word = layout::load_u32(group.words + k / 4 * 4), seven = word >> (k % 4 * 7) & 127u;
      const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
      const float step = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
      const uint32_t rows = kIQ3XXSGrid[group.rows[2 * k]] | uint32_t{kIQ3XXSGrid[group.rows[2 * k + 1]]} << 16;
      for (int i = 0; i < 8; ++i)
        x[8 * k + i] = signed_by(step * static_cast<float>(kIQ3XXSSizes[rows >> (4 * i) & 7u]), signs, i);
    }
  });
}

void iq3_s_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ3S, 256>(in, out, values, [](const layout::IQ3S& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int k = 0; k < 64; ++k) {  // four values, of a row
      const int subgroup = k / 8, scale = group.scales[subgroup / 2] >> (subgroup % 2 * 4) & 15;
      const float step = d * static_cast<float>(1 + 2 * scale);
      const uint16_t row = kIQ3SGrid[group.rows[k] | (group.rows_high[k / 8] >> (k % 8) & 1) << 8];
      for (int i = 0; i < 4; ++i)
        x[4 * k + i] =
            signed_by(step * static_cast<float>(2 * (row >> (4 * i) & 7) + 1), group.signs[k / 2], k % 2 * 4 + i);
    }
  });
}

}  // namespace millrace::formats

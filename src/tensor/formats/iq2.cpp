// IQ2_XS and IQ2_S: 256 values in 16 subgroups; eight values at a time are a row of a grid with signs.
#include <bit>

#include "tensor/formats/formats.h"
#include "tensor/formats/grids.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

float step_of(const uint8_t* scales, float d, int subgroup) {
  const int scale = scales[subgroup / 2] >> (subgroup % 2 * 4) & 15;
  return d * (0.5f + static_cast<float>(scale)) * 0.25f;
}

void read_row(uint16_t row, uint32_t signs, float step, float* x) {
  for (int i = 0; i < 8; ++i) {
    const float value = step * static_cast<float>(kIQ2Sizes[row >> (2 * i) & 3]);
    x[i] = (signs >> i & 1u) != 0 ? -value : value;
  }
}

}  // namespace

void iq2_xs_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ2XS, 256>(in, out, values, [](const layout::IQ2XS& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int k = 0; k < 32; ++k) {
      const uint32_t word = layout::load_u16(group.words + 2 * k), seven = word >> 9;
      const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
      read_row(kIQ2XSGrid[word & 511u], signs, step_of(group.scales, d, k / 2), x + 8 * k);
    }
  });
}

void iq2_s_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ2S, 256>(in, out, values, [](const layout::IQ2S& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int k = 0; k < 32; ++k) {
      const int number = group.rows[k] | (group.rows_high[k / 4] >> (2 * (k % 4)) & 3) << 8;
      read_row(kIQ2SGrid[number], group.signs[k], step_of(group.scales, d, k / 2), x + 8 * k);
    }
  });
}

}  // namespace millrace::formats

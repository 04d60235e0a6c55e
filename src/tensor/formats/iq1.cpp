// IQ1_S and IQ1_M: eight values at a time are a row of a grid of -1, 0 and 1, moved up or down by an eighth.
#include "tensor/formats/formats.h"
#include "tensor/formats/grids.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

void read_row(uint16_t row, float step, bool down, float* x) {
  const float move = down ? -0.125f : 0.125f;
  for (int i = 0; i < 8; ++i) x[i] = step * (static_cast<float>((row >> (2 * i) & 3) - 1) + move);
}

}  // namespace

void iq1_s_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ1S, 256>(in, out, values, [](const layout::IQ1S& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int k = 0; k < 32; ++k) {
      const int word = layout::load_u16(group.words + k / 4 * 2);
      const int number = group.rows[k] | (word >> (k % 4 * 3) & 7) << 8;
      read_row(kIQ1Grid[number], d * static_cast<float>(2 * (word >> 12 & 7) + 1), (word & 0x8000) != 0, x + 8 * k);
    }
  });
}

void iq1_m_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ1M, 256>(in, out, values, [](const layout::IQ1M& group, float* x) {
    int bits = 0;
    for (int i = 0; i < 4; ++i) bits |= layout::load_u16(group.scales + 2 * i) >> 12 << (4 * i);
    const float d = f16_to_f32(static_cast<uint16_t>(bits));
    for (int k = 0; k < 32; ++k) {
      const int high = group.rows_high[k / 2] >> (k % 2 * 4), subgroup = k / 2;
      const int scale = layout::load_u16(group.scales + subgroup / 4 * 2) >> (subgroup % 4 * 3) & 7;
      read_row(kIQ1Grid[group.rows[k] | (high & 7) << 8], d * static_cast<float>(2 * scale + 1), (high & 8) != 0,
               x + 8 * k);
    }
  });
}

}  // namespace millrace::formats

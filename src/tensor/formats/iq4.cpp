// IQ4_NL and IQ4_XS: codes of four bits that name one of sixteen unevenly spaced levels.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

void read_levels(const uint8_t* codes, float step, float* x) {
  for (int i = 0; i < 16; ++i) {
    x[i] = step * static_cast<float>(layout::kIQ4Values[codes[i] & 15]);
    x[i + 16] = step * static_cast<float>(layout::kIQ4Values[codes[i] >> 4]);
  }
}

}  // namespace

void iq4_nl_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ4NL, 32>(in, out, values, [](const layout::IQ4NL& group, float* x) {
    read_levels(group.codes, layout::load_f16(group.d), x);
  });
}

void iq4_xs_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::IQ4XS, 256>(in, out, values, [](const layout::IQ4XS& group, float* x) {
    const float d = layout::load_f16(group.d);
    const int upper = layout::load_u16(group.scales_high);
    for (int j = 0; j < 8; ++j) {
      const int scale = (group.scales_low[j / 2] >> (j % 2 * 4) & 15) | (upper >> (j * 2) & 3) << 4;
      read_levels(group.codes + j * 16, d * static_cast<float>(scale - 32), x + j * 32);
    }
  });
}

}  // namespace millrace::formats

// Q8_0: 32 codes of eight bits with one scale. The codes are fine enough that no search for the scale pays.
#include <algorithm>
#include <cmath>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {

void q8_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q8_0, 32>(in, out, values, [](const layout::Q8_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(group.codes[i]) * d;
  });
}

void q8_0_from_float(const float* in, std::byte* out, int64_t values) {
  write_groups<layout::Q8_0, 32>(in, out, values, [](const float* x, layout::Q8_0& group) {
    float most = 0.0f;
    for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
    const uint16_t d = fit::to_f16(most / 127.0f);
    layout::store_u16(group.d, d);
    // Rounded against the scale as it is stored, so each code is the nearest the reader can be given.
    fit::codes(x, 32, f16_to_f32(d), 0.0f, -127, 127, group.codes);
  });
}

}  // namespace millrace::formats

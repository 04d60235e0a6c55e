// Q8_0: 32 codes of eight bits with one scale. The codes are fine enough that no search for the scale pays
// unless some numbers matter more than others.
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

void q8_0_put(const int8_t* codes, std::byte* group) {
  std::copy_n(codes, 32, reinterpret_cast<layout::Q8_0*>(group)->codes);
}

void q8_0_grid(const std::byte* group, Grid& grid) {
  even_grid(layout::load_f16(reinterpret_cast<const layout::Q8_0*>(group)->d), 0.0f, -127, 127, grid);
}

void q8_0_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q8_0, 32>(in, importance, out, values, [](const float* x, const float* w, layout::Q8_0& group) {
    float most = 0.0f;
    for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
    const uint16_t d = fit::to_f16(w != nullptr ? fit::scale(x, w, 32, -127, 127) : most / 127.0f);
    layout::store_u16(group.d, d);
    // Rounded against the scale as it is stored, so each code is the nearest the reader can be given.
    fit::codes(x, 32, f16_to_f32(d), 0.0f, -127, 127, group.codes);
  });
}

}  // namespace millrace::formats

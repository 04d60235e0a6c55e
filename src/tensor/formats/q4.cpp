// Q4_0 and Q4_1: 32 codes of four bits with one scale, or scale and offset.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {

void q4_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q4_0, 32>(in, out, values, [](const layout::Q4_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>((group.codes[i] & 15) - 8) * d;
      x[i + 16] = static_cast<float>((group.codes[i] >> 4) - 8) * d;
    }
  });
}

void q4_1_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q4_1, 32>(in, out, values, [](const layout::Q4_1& group, float* x) {
    const float d = layout::load_f16(group.d), m = layout::load_f16(group.m);
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>(group.codes[i] & 15) * d + m;
      x[i + 16] = static_cast<float>(group.codes[i] >> 4) * d + m;
    }
  });
}

void q4_0_from_float(const float* in, std::byte* out, int64_t values) {
  write_groups<layout::Q4_0, 32>(in, out, values, [](const float* x, layout::Q4_0& group) {
    const uint16_t d = fit::to_f16(fit::scale(x, 32, -8, 7));
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), 0.0f, -8, 7, codes);
    for (int8_t& code : codes) code = static_cast<int8_t>(code + 8);
    layout::store_u16(group.d, d);
    pack_halves(codes, group.codes);
  });
}

void q4_1_from_float(const float* in, std::byte* out, int64_t values) {
  write_groups<layout::Q4_1, 32>(in, out, values, [](const float* x, layout::Q4_1& group) {
    const fit::Affine best = fit::affine(x, 32, 15, false);
    const uint16_t d = fit::to_f16(best.scale), m = fit::to_f16(best.offset);
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), f16_to_f32(m), 0, 15, codes);
    layout::store_u16(group.d, d);
    layout::store_u16(group.m, m);
    pack_halves(codes, group.codes);
  });
}

}  // namespace millrace::formats

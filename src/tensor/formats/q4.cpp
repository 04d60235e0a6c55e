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

void q4_0_put(const int8_t* codes, std::byte* group) {
  int8_t stored[32];
  for (int i = 0; i < 32; ++i) stored[i] = static_cast<int8_t>(codes[i] + 8);
  pack_halves(stored, reinterpret_cast<layout::Q4_0*>(group)->codes);
}

void q4_1_put(const int8_t* codes, std::byte* group) {
  pack_halves(codes, reinterpret_cast<layout::Q4_1*>(group)->codes);
}

void q4_0_grid(const std::byte* group, Grid& grid) {
  even_grid(layout::load_f16(reinterpret_cast<const layout::Q4_0*>(group)->d), 0.0f, -8, 7, grid);
}

void q4_1_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::Q4_1*>(group);
  even_grid(layout::load_f16(stored.d), layout::load_f16(stored.m), 0, 15, grid);
}

void q4_0_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q4_0, 32>(in, importance, out, values, [](const float* x, const float* w, layout::Q4_0& group) {
    const uint16_t d = fit::to_f16(fit::scale(x, w, 32, -8, 7));
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), 0.0f, -8, 7, codes);
    layout::store_u16(group.d, d);
    q4_0_put(codes, reinterpret_cast<std::byte*>(&group));
  });
}

void q4_1_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q4_1, 32>(in, importance, out, values, [](const float* x, const float* w, layout::Q4_1& group) {
    const fit::Affine best = fit::affine(x, w, 32, 15, false);
    const uint16_t d = fit::to_f16(best.scale), m = fit::to_f16(best.offset);
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), f16_to_f32(m), 0, 15, codes);
    layout::store_u16(group.d, d);
    layout::store_u16(group.m, m);
    pack_halves(codes, group.codes);
  });
}

}  // namespace millrace::formats

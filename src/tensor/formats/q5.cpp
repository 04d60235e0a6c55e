// Q5_0 and Q5_1: 32 codes of five bits with one scale, or scale and offset.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

// Both formats keep the fifth bits of all 32 codes in one word.
template <class Group>
int low_code(const Group& group, uint32_t high, int i) {
  return static_cast<int>((group.codes[i] & 15u) | (high >> i & 1u) << 4);
}
template <class Group>
int high_code(const Group& group, uint32_t high, int i) {
  return static_cast<int>((group.codes[i] >> 4) | (high >> (i + 16) & 1u) << 4);
}

template <class Group>
void pack(const int8_t* codes, Group& group) {
  uint32_t high = 0;
  for (int i = 0; i < 32; ++i) high |= (static_cast<uint32_t>(codes[i]) >> 4 & 1u) << i;
  layout::store_u32(group.high, high);
  pack_halves(codes, group.codes);
}

}  // namespace

void q5_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q5_0, 32>(in, out, values, [](const layout::Q5_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    const uint32_t high = layout::load_u32(group.high);
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>(low_code(group, high, i) - 16) * d;
      x[i + 16] = static_cast<float>(high_code(group, high, i) - 16) * d;
    }
  });
}

void q5_1_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q5_1, 32>(in, out, values, [](const layout::Q5_1& group, float* x) {
    const float d = layout::load_f16(group.d), m = layout::load_f16(group.m);
    const uint32_t high = layout::load_u32(group.high);
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>(low_code(group, high, i)) * d + m;
      x[i + 16] = static_cast<float>(high_code(group, high, i)) * d + m;
    }
  });
}

void q5_0_put(const int8_t* codes, std::byte* group) {
  int8_t stored[32];
  for (int i = 0; i < 32; ++i) stored[i] = static_cast<int8_t>(codes[i] + 16);
  pack(stored, *reinterpret_cast<layout::Q5_0*>(group));
}

void q5_1_put(const int8_t* codes, std::byte* group) { pack(codes, *reinterpret_cast<layout::Q5_1*>(group)); }

void q5_0_grid(const std::byte* group, Grid& grid) {
  even_grid(layout::load_f16(reinterpret_cast<const layout::Q5_0*>(group)->d), 0.0f, -16, 15, grid);
}

void q5_1_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::Q5_1*>(group);
  even_grid(layout::load_f16(stored.d), layout::load_f16(stored.m), 0, 31, grid);
}

void q5_0_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q5_0, 32>(in, importance, out, values, [](const float* x, const float* w, layout::Q5_0& group) {
    const uint16_t d = fit::to_f16(fit::scale(x, w, 32, -16, 15));
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), 0.0f, -16, 15, codes);
    layout::store_u16(group.d, d);
    q5_0_put(codes, reinterpret_cast<std::byte*>(&group));
  });
}

void q5_1_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q5_1, 32>(in, importance, out, values, [](const float* x, const float* w, layout::Q5_1& group) {
    const fit::Affine best = fit::affine(x, w, 32, 31, false);
    const uint16_t d = fit::to_f16(best.scale), m = fit::to_f16(best.offset);
    int8_t codes[32];
    fit::codes(x, 32, f16_to_f32(d), f16_to_f32(m), 0, 31, codes);
    layout::store_u16(group.d, d);
    layout::store_u16(group.m, m);
    pack(codes, group);
  });
}

}  // namespace millrace::formats

// Q3_K: 256 values in 16 subgroups of 16, codes of three bits; each subgroup has a signed scale of six bits, counted in
// a unit that the whole group shares.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"
#include "tensor/formats/signed_scales.h"

namespace millrace::formats {
namespace {

int scale_of(const layout::Q3K& group, int j) {
  const int low = group.scales[j % 8] >> (j / 8 * 4) & 15;
  const int high = group.scales[8 + j % 4] >> (j / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void put_codes(const int8_t* codes, layout::Q3K& group) {
  std::fill_n(group.codes, 64, uint8_t{0});
  std::fill_n(group.high, 32, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    const int code = codes[i] + 4;
    uint8_t& low = group.codes[i / 128 * 32 + i % 32];
    uint8_t& high = group.high[i % 32];
    low = static_cast<uint8_t>(low | (code & 3) << (i % 128 / 32 * 2));
    high = static_cast<uint8_t>(high | code >> 2 << (i / 32));
  }
}

void quantise(const float* x, const float* w, layout::Q3K& group) {
  const SignedScales chosen = choose_signed_scales(x, w, 31, -4, 3);
  group = {};
  layout::store_u16(group.d, chosen.unit);
  for (int j = 0; j < 16; ++j) {
    const int scale = chosen.scales[j] + 32;
    group.scales[j % 8] = static_cast<uint8_t>(group.scales[j % 8] | (scale & 15) << (j / 8 * 4));
    group.scales[8 + j % 4] = static_cast<uint8_t>(group.scales[8 + j % 4] | scale >> 4 << (j / 4 * 2));
  }
  put_codes(chosen.codes, group);
}

}  // namespace

void q3_k_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q3K, 256>(in, out, values, [](const layout::Q3K& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int j = 0; j < 16; ++j) {
      const float step = d * static_cast<float>(scale_of(group, j));
      const uint8_t* codes = group.codes + j / 8 * 32 + j % 2 * 16;
      const uint8_t* high = group.high + j % 2 * 16;
      const int shift = j % 8 / 2 * 2;
      for (int i = 0; i < 16; ++i) {
        const int code = (codes[i] >> shift & 3) | (high[i] >> (j / 2) & 1) << 2;
        x[j * 16 + i] = step * static_cast<float>(code - 4);
      }
    }
  });
}

void q3_k_put(const int8_t* codes, std::byte* group) { put_codes(codes, *reinterpret_cast<layout::Q3K*>(group)); }

void q3_k_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::Q3K*>(group);
  int8_t scales[16];
  for (int j = 0; j < 16; ++j) scales[j] = static_cast<int8_t>(scale_of(stored, j));
  signed_grid(layout::load_f16(stored.d), scales, -4, 3, grid);
}

void q3_k_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q3K, 256>(in, importance, out, values, quantise);
}

}  // namespace millrace::formats

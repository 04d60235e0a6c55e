// Q6_K: 256 values in 16 subgroups of 16, codes of six bits; each subgroup has a signed scale of eight bits, counted in
// a unit that the whole group shares.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"
#include "tensor/formats/signed_scales.h"

namespace millrace::formats {
namespace {

void put_codes(const int8_t* codes, layout::Q6K& group) {
  std::fill_n(group.codes, 128, uint8_t{0});
  std::fill_n(group.high, 64, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    const int code = codes[i] + 32, half = i / 128, place = i % 128;
    uint8_t& low = group.codes[half * 64 + place % 64];
    uint8_t& high = group.high[half * 32 + place % 32];
    low = static_cast<uint8_t>(low | (code & 15) << (place / 64 * 4));
    high = static_cast<uint8_t>(high | code >> 4 << (place / 32 * 2));
  }
}

void quantise(const float* x, const float* w, layout::Q6K& group) {
  const SignedScales chosen = choose_signed_scales(x, w, 127, -32, 31);
  layout::store_u16(group.d, chosen.unit);
  for (int j = 0; j < 16; ++j) group.scales[j] = chosen.scales[j];
  put_codes(chosen.codes, group);
}

}  // namespace

void q6_k_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q6K, 256>(in, out, values, [](const layout::Q6K& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int j = 0; j < 16; ++j) {
      const float step = d * static_cast<float>(group.scales[j]);
      const int half = j / 8, place = j % 8 * 16;
      const uint8_t* codes = group.codes + half * 64 + place % 64;
      const uint8_t* high = group.high + half * 32 + place % 32;
      const int shift = place / 64 * 4, high_shift = place / 32 * 2;
      for (int i = 0; i < 16; ++i) {
        const int code = (codes[i] >> shift & 15) | (high[i] >> high_shift & 3) << 4;
        x[j * 16 + i] = step * static_cast<float>(code - 32);
      }
    }
  });
}

void q6_k_put(const int8_t* codes, std::byte* group) { put_codes(codes, *reinterpret_cast<layout::Q6K*>(group)); }

void q6_k_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::Q6K*>(group);
  signed_grid(layout::load_f16(stored.d), stored.scales, -32, 31, grid);
}

void q6_k_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q6K, 256>(in, importance, out, values, quantise);
}

}  // namespace millrace::formats

// Q2_K: 256 values in 16 subgroups of 16, codes of two bits; each subgroup has a scale and a minimum of four bits,
// counted in units that the whole group shares.
#include <algorithm>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

constexpr int kSubgroups = 16, kSubgroup = 16, kMost = 15, kHigh = 3;

// Scale and minimum of a subgroup in whole units: so coarse that a wide neighbourhood is tried.
uint8_t choose(const float* x, const float* w, const fit::Affine& wanted, float unit, float minimum_unit) {
  const int near_scale = fit::nearest(wanted.scale * fit::inverse(unit), 0, kMost);
  const int near_minimum = fit::nearest(-wanted.offset * fit::inverse(minimum_unit), 0, kMost);
  float best = -1.0f;
  int chosen = 0;
  for (int s = std::max(0, near_scale - 2); s <= std::min(kMost, near_scale + 2); ++s) {
    for (int m = std::max(0, near_minimum - 2); m <= std::min(kMost, near_minimum + 2); ++m) {
      const float error =
          fit::error(x, w, kSubgroup, unit * static_cast<float>(s), -(minimum_unit * static_cast<float>(m)), 0, kHigh);
      if (best >= 0.0f && !(error < best)) continue;
      best = error;
      chosen = s | m << 4;
    }
  }
  return static_cast<uint8_t>(chosen);
}

void put_codes(const int8_t* codes, layout::Q2K& group) {
  for (int i = 0; i < 64; ++i) {
    const int8_t* four = codes + i / 32 * 128 + i % 32;
    group.codes[i] = static_cast<uint8_t>(four[0] | four[32] << 2 | four[64] << 4 | four[96] << 6);
  }
}

void quantise(const float* x, const float* w, layout::Q2K& group) {
  auto weights = [&](int j) { return w != nullptr ? w + j * kSubgroup : nullptr; };
  fit::Affine wanted[kSubgroups];
  float scales[kSubgroups], minima[kSubgroups];
  for (int j = 0; j < kSubgroups; ++j) {
    wanted[j] = fit::affine(x + j * kSubgroup, weights(j), kSubgroup, kHigh, true);
    scales[j] = wanted[j].scale;
    minima[j] = -wanted[j].offset;
  }
  const uint16_t d_bits = fit::common_unit(scales, kSubgroups, kMost);
  const uint16_t dmin_bits = fit::common_unit(minima, kSubgroups, kMost);
  const float d = f16_to_f32(d_bits), dmin = f16_to_f32(dmin_bits);
  layout::store_u16(group.d, d_bits);
  layout::store_u16(group.dmin, dmin_bits);
  int8_t codes[256];
  for (int j = 0; j < kSubgroups; ++j) {
    const float* part = x + j * kSubgroup;
    group.scales[j] = choose(part, weights(j), wanted[j], d, dmin);
    fit::codes(part, kSubgroup, d * static_cast<float>(group.scales[j] & 15),
               -(dmin * static_cast<float>(group.scales[j] >> 4)), 0, kHigh, codes + j * kSubgroup);
  }
  put_codes(codes, group);
}

}  // namespace

void q2_k_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q2K, 256>(in, out, values, [](const layout::Q2K& group, float* x) {
    const float d = layout::load_f16(group.d), dmin = layout::load_f16(group.dmin);
    for (int j = 0; j < kSubgroups; ++j) {
      const float step = d * static_cast<float>(group.scales[j] & 15);
      const float minimum = dmin * static_cast<float>(group.scales[j] >> 4);
      const uint8_t* codes = group.codes + j / 8 * 32 + j % 2 * 16;
      const int shift = j % 8 / 2 * 2;
      for (int i = 0; i < 16; ++i) x[j * 16 + i] = step * static_cast<float>(codes[i] >> shift & 3) - minimum;
    }
  });
}

void q2_k_put(const int8_t* codes, std::byte* group) { put_codes(codes, *reinterpret_cast<layout::Q2K*>(group)); }

void q2_k_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::Q2K*>(group);
  const float d = layout::load_f16(stored.d), dmin = layout::load_f16(stored.dmin);
  grid.low = 0, grid.high = kHigh, grid.levels = nullptr;
  for (int i = 0; i < 256; ++i) {
    grid.step[i] = d * static_cast<float>(stored.scales[i / kSubgroup] & 15);
    grid.offset[i] = -(dmin * static_cast<float>(stored.scales[i / kSubgroup] >> 4));
  }
}

void q2_k_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q2K, 256>(in, importance, out, values, quantise);
}

}  // namespace millrace::formats

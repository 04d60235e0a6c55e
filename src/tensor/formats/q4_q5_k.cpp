// Q4_K and Q5_K: 256 values in 8 subgroups of 32. Each subgroup has a scale and a minimum of six bits, counted in units
// that the whole group shares. The two formats differ by one bit per code.
#include <algorithm>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

constexpr int kSubgroups = 8, kSubgroup = 32, kMost = 63;

struct Scales {
  uint16_t d = 0, dmin = 0;
  uint8_t scales[kSubgroups] = {}, minima[kSubgroups] = {};
};

// Given the shared units, the whole scale and minimum around the wanted ones whose codes fit the subgroup best.
void refine(const float* x, const float* w, const fit::Affine& wanted, float unit, float minimum_unit, int high,
            uint8_t& scale, uint8_t& minimum) {
  const int near_scale = fit::nearest(wanted.scale * fit::inverse(unit), 0, kMost);
  const int near_minimum = fit::nearest(-wanted.offset * fit::inverse(minimum_unit), 0, kMost);
  float best = -1.0f;
  for (int s = std::max(0, near_scale - 1); s <= std::min(kMost, near_scale + 1); ++s) {
    for (int m = std::max(0, near_minimum - 1); m <= std::min(kMost, near_minimum + 1); ++m) {
      const float error =
          fit::error(x, w, kSubgroup, unit * static_cast<float>(s), -(minimum_unit * static_cast<float>(m)), 0, high);
      if (best >= 0.0f && !(error < best)) continue;
      best = error;
      scale = static_cast<uint8_t>(s);
      minimum = static_cast<uint8_t>(m);
    }
  }
}

Scales choose_scales(const float* x, const float* w, int high) {
  auto part = [&](int j) { return w != nullptr ? w + j * kSubgroup : nullptr; };
  fit::Affine wanted[kSubgroups];
  float scales[kSubgroups], minima[kSubgroups];
  for (int j = 0; j < kSubgroups; ++j) {
    wanted[j] = fit::affine(x + j * kSubgroup, part(j), kSubgroup, high, true);
    scales[j] = wanted[j].scale;
    minima[j] = -wanted[j].offset;
  }
  Scales out;
  out.d = fit::common_unit(scales, kSubgroups, kMost);
  out.dmin = fit::common_unit(minima, kSubgroups, kMost);
  for (int j = 0; j < kSubgroups; ++j) {
    refine(x + j * kSubgroup, part(j), wanted[j], f16_to_f32(out.d), f16_to_f32(out.dmin), high, out.scales[j],
           out.minima[j]);
  }
  return out;
}

// The low four bits of the codes, which both formats keep alike.
void put_low(const int8_t* codes, uint8_t* out) {
  for (int half = 0; half < 4; ++half) {
    for (int i = 0; i < 32; ++i) {
      const int8_t* pair = codes + half * 64 + i;
      out[half * 32 + i] = static_cast<uint8_t>((pair[0] & 15) | (pair[32] & 15) << 4);
    }
  }
}

// Fills the scales and gives the codes.
template <class Group>
void quantise(const float* x, const float* w, int high, Group& group, int8_t (&codes)[256]) {
  const Scales chosen = choose_scales(x, w, high);
  const float d = f16_to_f32(chosen.d), dmin = f16_to_f32(chosen.dmin);
  layout::store_u16(group.d, chosen.d);
  layout::store_u16(group.dmin, chosen.dmin);
  layout::pack_scales(chosen.scales, chosen.minima, group.scales);
  for (int j = 0; j < kSubgroups; ++j) {
    fit::codes(x + j * kSubgroup, kSubgroup, d * static_cast<float>(chosen.scales[j]),
               -(dmin * static_cast<float>(chosen.minima[j])), 0, high, codes + j * kSubgroup);
  }
}

// The value of each subgroup's step and its minimum.
template <class Group>
void steps(const Group& group, float (&step)[kSubgroups], float (&minimum)[kSubgroups]) {
  uint8_t scales[kSubgroups], minima[kSubgroups];
  layout::unpack_scales(group.scales, scales, minima);
  const float d = layout::load_f16(group.d), dmin = layout::load_f16(group.dmin);
  for (int j = 0; j < kSubgroups; ++j) {
    step[j] = d * static_cast<float>(scales[j]);
    minimum[j] = dmin * static_cast<float>(minima[j]);
  }
}

template <class Group>
void grid_of(const Group& group, int high, Grid& grid) {
  float step[kSubgroups], minimum[kSubgroups];
  steps(group, step, minimum);
  grid.low = 0, grid.high = high, grid.levels = nullptr;
  for (int i = 0; i < 256; ++i) {
    grid.step[i] = step[i / kSubgroup];
    grid.offset[i] = -minimum[i / kSubgroup];
  }
}

}  // namespace

void q4_k_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q4K, 256>(in, out, values, [](const layout::Q4K& group, float* x) {
    float step[kSubgroups], minimum[kSubgroups];
    steps(group, step, minimum);
    for (int j = 0; j < kSubgroups; ++j) {
      const uint8_t* codes = group.codes + j / 2 * 32;
      const int shift = j % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        x[j * 32 + i] = step[j] * static_cast<float>(codes[i] >> shift & 15) - minimum[j];
      }
    }
  });
}

void q5_k_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q5K, 256>(in, out, values, [](const layout::Q5K& group, float* x) {
    float step[kSubgroups], minimum[kSubgroups];
    steps(group, step, minimum);
    for (int j = 0; j < kSubgroups; ++j) {
      const uint8_t* codes = group.codes + j / 2 * 32;
      const int shift = j % 2 * 4;
      for (int i = 0; i < 32; ++i) {
        const int code = (codes[i] >> shift & 15) | (group.high[i] >> j & 1) << 4;
        x[j * 32 + i] = step[j] * static_cast<float>(code) - minimum[j];
      }
    }
  });
}

void q4_k_put(const int8_t* codes, std::byte* group) { put_low(codes, reinterpret_cast<layout::Q4K*>(group)->codes); }

void q5_k_put(const int8_t* codes, std::byte* group) {
  auto& stored = *reinterpret_cast<layout::Q5K*>(group);
  put_low(codes, stored.codes);
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int j = 0; j < kSubgroups; ++j) bits |= (codes[j * 32 + i] >> 4 & 1) << j;
    stored.high[i] = static_cast<uint8_t>(bits);
  }
}

void q4_k_grid(const std::byte* group, Grid& grid) { grid_of(*reinterpret_cast<const layout::Q4K*>(group), 15, grid); }
void q5_k_grid(const std::byte* group, Grid& grid) { grid_of(*reinterpret_cast<const layout::Q5K*>(group), 31, grid); }

void q4_k_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q4K, 256>(in, importance, out, values, [](const float* x, const float* w, layout::Q4K& group) {
    int8_t codes[256];
    quantise(x, w, 15, group, codes);
    q4_k_put(codes, reinterpret_cast<std::byte*>(&group));
  });
}

void q5_k_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::Q5K, 256>(in, importance, out, values, [](const float* x, const float* w, layout::Q5K& group) {
    int8_t codes[256];
    quantise(x, w, 31, group, codes);
    q5_k_put(codes, reinterpret_cast<std::byte*>(&group));
  });
}

}  // namespace millrace::formats

// IQ4_NL and IQ4_XS: codes of four bits that name one of sixteen unevenly spaced levels.
#include <cmath>

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

// The level nearest to a number, by halving: levels ascend.
int nearest_level(float value) {
  int low = 0, high = 15;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (value < static_cast<float>(layout::kIQ4Values[middle]) ? high : low) = middle;
  }
  const float below = static_cast<float>(layout::kIQ4Values[low]), above = static_cast<float>(layout::kIQ4Values[high]);
  return value - below < above - value ? low : high;
}

float error_of(const float* x, const float* w, float step) {
  const float factor = fit::inverse(step);
  float sum = 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float difference = x[i] - step * static_cast<float>(layout::kIQ4Values[nearest_level(x[i] * factor)]);
    sum += w != nullptr ? w[i] * (difference * difference) : difference * difference;
  }
  return sum;
}

// The step of 32 numbers whose levels reproduce them best: the extreme number is placed near the last level of either
// side, then least squares and rounding take turns.
float best_step(const float* x, const float* w) {
  float extreme = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  float best = extreme / -127.0f, best_gain = -1.0f;
  for (const float last : {-127.0f, 113.0f}) {
    for (int place = -8; place <= 8; ++place) {
      float step = extreme / (last * (1.0f + 0.03f * static_cast<float>(place)));
      for (int round = 0; round < 2; ++round) {
        float lx = 0.0f, l2 = 0.0f;
        const float factor = fit::inverse(step);
        for (int i = 0; i < 32; ++i) {
          const float level = static_cast<float>(layout::kIQ4Values[nearest_level(x[i] * factor)]);
          const float weighed = w != nullptr ? w[i] * level : level;
          lx += weighed * x[i];
          l2 += weighed * level;
        }
        if (!(l2 > 0.0f)) break;
        const float gain = lx / l2 * lx;
        if (!(gain > best_gain)) break;
        best_gain = gain;
        best = step = lx / l2;
      }
    }
  }
  return best;
}

void put_levels(const float* x, float step, uint8_t* out) {
  int8_t codes[32];
  const float factor = fit::inverse(step);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<int8_t>(nearest_level(x[i] * factor));
  pack_halves(codes, out);
}

void write_nl(const float* x, const float* w, layout::IQ4NL& group) {
  const uint16_t d = fit::to_f16(best_step(x, w));
  layout::store_u16(group.d, d);
  put_levels(x, f16_to_f32(d), group.codes);
}

int scale_of(const layout::IQ4XS& group, int j) {
  const int upper = layout::load_u16(group.scales_high);
  return ((group.scales_low[j / 2] >> (j % 2 * 4) & 15) | (upper >> (j * 2) & 3) << 4) - 32;
}

void write_xs(const float* x, const float* w, layout::IQ4XS& group) {
  auto weights = [&](int j) { return w != nullptr ? w + j * 32 : nullptr; };
  float wanted[8], extreme = 0.0f;
  for (int j = 0; j < 8; ++j) {
    wanted[j] = best_step(x + j * 32, weights(j));
    if (std::fabs(wanted[j]) > std::fabs(extreme)) extreme = wanted[j];
  }
  // The range of scales has one step more below zero than above, so the extreme one goes there.
  const uint16_t d_bits = fit::to_f16(extreme / -32.0f);
  const float d = f16_to_f32(d_bits);
  layout::store_u16(group.d, d_bits);
  int high = 0;
  std::fill_n(group.scales_low, 4, uint8_t{0});
  for (int j = 0; j < 8; ++j) {
    const int near = fit::nearest(wanted[j] * fit::inverse(d), -32, 31);
    int chosen = near;
    float best = -1.0f;
    for (int s = std::max(-32, near - 1); s <= std::min(31, near + 1); ++s) {
      const float error = error_of(x + j * 32, weights(j), d * static_cast<float>(s));
      if (best >= 0.0f && !(error < best)) continue;
      best = error;
      chosen = s;
    }
    put_levels(x + j * 32, d * static_cast<float>(chosen), group.codes + j * 16);
    const int stored = chosen + 32;
    group.scales_low[j / 2] = static_cast<uint8_t>(group.scales_low[j / 2] | (stored & 15) << (j % 2 * 4));
    high |= stored >> 4 << (j * 2);
  }
  layout::store_u16(group.scales_high, static_cast<uint16_t>(high));
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
    for (int j = 0; j < 8; ++j)
      read_levels(group.codes + j * 16, d * static_cast<float>(scale_of(group, j)), x + j * 32);
  });
}

void iq4_nl_put(const int8_t* codes, std::byte* group) {
  pack_halves(codes, reinterpret_cast<layout::IQ4NL*>(group)->codes);
}

void iq4_xs_put(const int8_t* codes, std::byte* group) {
  for (int j = 0; j < 8; ++j) pack_halves(codes + j * 32, reinterpret_cast<layout::IQ4XS*>(group)->codes + j * 16);
}

void iq4_nl_grid(const std::byte* group, Grid& grid) {
  even_grid(layout::load_f16(reinterpret_cast<const layout::IQ4NL*>(group)->d), 0.0f, 0, 15, grid);
  grid.levels = layout::kIQ4Values;
}

void iq4_xs_grid(const std::byte* group, Grid& grid) {
  const auto& stored = *reinterpret_cast<const layout::IQ4XS*>(group);
  const float d = layout::load_f16(stored.d);
  grid.low = 0, grid.high = 15, grid.levels = layout::kIQ4Values;
  for (int i = 0; i < 256; ++i) {
    grid.step[i] = d * static_cast<float>(scale_of(stored, i / 32));
    grid.offset[i] = 0.0f;
  }
}

void iq4_nl_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::IQ4NL, 32>(in, importance, out, values, write_nl);
}

void iq4_xs_from_float(const float* in, const float* importance, std::byte* out, int64_t values) {
  write_groups<layout::IQ4XS, 256>(in, importance, out, values, write_xs);
}

}  // namespace millrace::formats

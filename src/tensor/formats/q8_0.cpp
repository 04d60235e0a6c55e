// Q8_0: 32 codes of eight bits with one scale; of those no file has, Q8_ZERO with a
// zero point too and INT8_128 with one float32 factor for 128. The codes are fine enough that no search for the scale
// pays unless some numbers matter more than others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {

void q8_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q8_0, 32>(in, out, values, [](const layout::Q8_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(group.codes[i]) * d;
  });
}

void q8_zero_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q8Zero, 32>(in, out, values, [](const layout::Q8Zero& group, float* x) {
    const float d = layout::load_f16(group.d);
    const int zero = layout::load_u16(group.zero);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(group.codes[i] - zero) * d;
  });
}

void int8_128_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Int8Wide, 128>(in, out, values, [](const layout::Int8Wide& group, float* x) {
    const auto d = std::bit_cast<float>(layout::load_u32(group.d));
    for (int i = 0; i < 128; ++i) x[i] = static_cast<float>(group.codes[i]) * d;
  });
}

// The least and the largest of a group, and zero, become codes.
void q8_zero_from_float(const float* in, std::byte* out, int64_t values) {
  for (int64_t at = 0; at < values; at += 32, out += sizeof(layout::Q8Zero)) {
    auto& group = *reinterpret_cast<layout::Q8Zero*>(out);
    float least = 0, most = 0;
    for (int i = 0; i < 32; ++i)
      if (std::isfinite(in[at + i])) least = std::min(least, in[at + i]), most = std::max(most, in[at + i]);
    const uint16_t scale = fit::to_f16((most - least) / 255);
    const float d = f16_to_f32(scale);
    auto code = [&](float x) { return d > 0 ? std::clamp(std::round(x / d), -255.0f, 255.0f) : 0.0f; };
    const float zero = -code(least);
    layout::store_u16(group.d, scale);
    layout::store_u16(group.zero, static_cast<uint16_t>(zero));
    for (int i = 0; i < 32; ++i) {
      const float x = std::isnan(in[at + i]) ? 0.0f : in[at + i];
      group.codes[i] = static_cast<uint8_t>(std::clamp(code(x) + zero, 0.0f, 255.0f));
    }
  }
}

// The largest of a group becomes 127. Factors are float16 numbers, so that other forms have them too.
void int8_128_from_float(const float* in, std::byte* out, int64_t values) {
  for (int64_t at = 0; at < values; at += 128, out += sizeof(layout::Int8Wide)) {
    auto& group = *reinterpret_cast<layout::Int8Wide*>(out);
    float largest = 0;
    for (int i = 0; i < 128; ++i)
      if (std::isfinite(in[at + i])) largest = std::max(largest, std::abs(in[at + i]));
    const float d = f16_to_f32(fit::to_f16(largest / 127));
    std::memcpy(group.d, &d, sizeof d);
    for (int i = 0; i < 128; ++i) {
      const float x = std::isnan(in[at + i]) ? 0.0f : std::clamp(in[at + i], -largest, largest);
      group.codes[i] = static_cast<int8_t>(d > 0 ? std::lrint(std::clamp(x / d, -127.0f, 127.0f)) : 0);
    }
  }
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

// NF4, BNB_FP4 and FP4_F16: four-bit codes that name entries of a table, with float16 factors; FP8_F32 and
// FP8_128: E4M3 with float32 ones, for 32 or 128 numbers. What bitsandbytes, NVFP4 and FP8 checkpoints are kept as once
// loaded.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace {

const float layout::kNF4Values[16] = {
    -1.0f,         -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f, -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f,  0.246112302f,  0.337915242f,  0.440709829f,  0.562617004f, 0.722956836f,   1.0f};

const float layout::kBnbFP4Values[16] = {
    0.0f, 0.00520833349f,  0.666666687f,  1.0f,  0.333333343f,  0.5f,  0.166666672f,  0.25f,
    0.0f, -0.00520833349f, -0.666666687f, -1.0f, -0.333333343f, -0.5f, -0.166666672f, -0.25f};

namespace formats {
namespace {

void read_table(const layout::NF4& group, const float (&table)[16], float* x) {
  const float d = layout::load_f16(group.d);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * table[group.codes[i] & 15];
    x[i + 16] = d * table[group.codes[i] >> 4];
  }
}

}  // namespace

void nf4_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::NF4, 32>(in, out, values,
                               [](const layout::NF4& group, float* x) { read_table(group, layout::kNF4Values, x); });
}

void bnb_fp4_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::NF4, 32>(in, out, values,
                               [](const layout::NF4& group, float* x) { read_table(group, layout::kBnbFP4Values, x); });
}

void fp4_half_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::FP4Half, 32>(in, out, values, [](const layout::FP4Half& group, float* x) {
    const float first = layout::load_f16(group.d[0]), second = layout::load_f16(group.d[1]);
    for (int i = 0; i < 16; ++i) {
      x[i] = first * static_cast<float>(layout::kFP4Values[group.codes[i] & 15]);
      x[i + 16] = second * static_cast<float>(layout::kFP4Values[group.codes[i] >> 4]);
    }
  });
}

void fp8_f32_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::FP8Float, 32>(in, out, values, [](const layout::FP8Float& group, float* x) {
    const auto d = std::bit_cast<float>(layout::load_u32(group.d));
    for (int i = 0; i < 32; ++i) x[i] = (f8_e4m3_to_f32(group.codes[i]) + 0.0f) * d;
  });
}

void fp8_128_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::FP8Wide, 128>(in, out, values, [](const layout::FP8Wide& group, float* x) {
    const auto d = std::bit_cast<float>(layout::load_u32(group.d));
    for (int i = 0; i < 128; ++i) x[i] = (f8_e4m3_to_f32(group.codes[i]) + 0.0f) * d;
  });
}

// The largest of a group becomes the largest code, 448.
void fp8_128_from_float(const float* in, std::byte* out, int64_t values) {
  for (int64_t at = 0; at < values; at += 128, out += sizeof(layout::FP8Wide)) {
    auto& group = *reinterpret_cast<layout::FP8Wide*>(out);
    float largest = 0;
    for (int i = 0; i < 128; ++i)
      if (std::isfinite(in[at + i])) largest = std::max(largest, std::abs(in[at + i]));
    const float d = largest / 448;
    std::memcpy(group.d, &d, sizeof d);
    for (int i = 0; i < 128; ++i) {
      const float x = std::isnan(in[at + i]) ? 0.0f : std::clamp(in[at + i], -largest, largest);
      group.codes[i] = f32_to_f8_e4m3(d > 0 ? std::clamp(x / d, -448.0f, 448.0f) : 0.0f);
    }
  }
}

}  // namespace formats
}  // namespace millrace

// Small floats against their definition, computed in double arithmetic, over every value and every rounding boundary.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace millrace {
namespace {

struct SmallFloat {
  const char* name;
  int bits, exponent_bits, mantissa_bits;
  bool infinities;
  double (*widen)(uint32_t);
  uint32_t (*narrow)(float);

  uint32_t sign() const { return 1u << (bits - 1); }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  bool is_special(uint32_t code) const {
    const uint32_t magnitude = code & (sign() - 1);
    if (!infinities) return magnitude == sign() - 1;
    return magnitude >> mantissa_bits == (1u << exponent_bits) - 1;
  }
  // The number a code stands for, as the format is defined.
  double defined(uint32_t code) const {
    const uint32_t magnitude = code & (sign() - 1);
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const double mantissa = static_cast<double>(magnitude & ((1u << mantissa_bits) - 1));
    const double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias() - mantissa_bits)
                                      : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
    return (code & sign()) != 0 ? -size : size;
  }
};

const SmallFloat kFormats[] = {
    {"f16", 16, 5, 10, true, [](uint32_t code) { return double{f16_to_f32(static_cast<uint16_t>(code))}; },
     [](float value) { return uint32_t{f32_to_f16(value)}; }},
    {"bf16", 16, 8, 7, true, [](uint32_t code) { return double{bf16_to_f32(static_cast<uint16_t>(code))}; },
     [](float value) { return uint32_t{f32_to_bf16(value)}; }},
    {"f8_e5m2", 8, 5, 2, true, [](uint32_t code) { return double{f8_e5m2_to_f32(static_cast<uint8_t>(code))}; },
     [](float value) { return uint32_t{f32_to_f8_e5m2(value)}; }},
    {"f8_e4m3", 8, 4, 3, false, [](uint32_t code) { return double{f8_e4m3_to_f32(static_cast<uint8_t>(code))}; },
     [](float value) { return uint32_t{f32_to_f8_e4m3(value)}; }},
};

TEST(Half, EveryCodeHasTheValueItsDefinitionGives) {
  for (const SmallFloat& format : kFormats) {
    for (uint32_t code = 0; code < 1u << format.bits; ++code) {
      const double value = format.widen(code);
      ASSERT_EQ(std::signbit(value), (code & format.sign()) != 0) << format.name << " " << code;
      if (!format.is_special(code)) {
        ASSERT_EQ(value, format.defined(code)) << format.name << " " << code;
      } else if (format.infinities && (code & ((1u << format.mantissa_bits) - 1)) == 0) {
        ASSERT_TRUE(std::isinf(value)) << format.name << " " << code;
      } else {
        ASSERT_TRUE(std::isnan(value)) << format.name << " " << code;
      }
    }
  }
}

TEST(Half, EveryCodeSurvivesTheWayThereAndBack) {
  for (const SmallFloat& format : kFormats) {
    for (uint32_t code = 0; code < 1u << format.bits; ++code) {
      const auto value = static_cast<float>(format.widen(code));
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(format.widen(format.narrow(value)))) << format.name << " " << code;
      } else {
        ASSERT_EQ(format.narrow(value), code) << format.name;
      }
    }
  }
}

// Between two neighbours the nearer one, in the exact middle the even one: tried at the middle and one float32 to each
// side.
TEST(Half, RoundsToNearestAndTiesToEven) {
  for (const SmallFloat& format : kFormats) {
    for (uint32_t code = 0; code + 1 < format.sign(); ++code) {
      if (format.is_special(code) || format.is_special(code + 1)) continue;
      const double middle = (format.defined(code) + format.defined(code + 1)) / 2;
      const auto exact = static_cast<float>(middle);
      ASSERT_EQ(double{exact}, middle);
      const float below = std::nextafter(exact, 0.0f), above = std::nextafter(exact, INFINITY);
      for (const float sign : {1.0f, -1.0f}) {
        const uint32_t bit = sign < 0 ? format.sign() : 0;
        ASSERT_EQ(format.narrow(sign * below), bit | code) << format.name;
        ASSERT_EQ(format.narrow(sign * exact), bit | (code % 2 == 0 ? code : code + 1)) << format.name << " " << code;
        ASSERT_EQ(format.narrow(sign * above), bit | (code + 1)) << format.name;
      }
    }
  }
}

TEST(Half, WhatIsTooLargeAndWhatIsTooSmall) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::max()), 0xfc00);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32_to_f8_e5m2(61439.996f), 0x7b);
  EXPECT_EQ(f32_to_f8_e5m2(61440.0f), 0x7c);
  EXPECT_EQ(f32_to_f8_e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_f8_e4m3(-INFINITY), 0xfe);
  EXPECT_EQ(f32_to_f8_e4m3(464.0f), 0x7e);
  const float denormal = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(f32_to_f16(denormal), 0);
  EXPECT_EQ(f32_to_f16(-denormal), 0x8000);
  EXPECT_EQ(f32_to_bf16(denormal), 0);
  EXPECT_EQ(f32_to_f8_e5m2(denormal), 0);
  EXPECT_EQ(f32_to_f8_e4m3(-denormal), 0x80);
}

TEST(Half, NanKeepsItsSignAndBecomesQuiet) {
  const float signalling = std::bit_cast<float>(0x7f800001u), negative = std::bit_cast<float>(0xffc12345u);
  EXPECT_EQ(f32_to_f16(signalling), 0x7e00);
  EXPECT_EQ(f32_to_f16(negative), 0xfe00 | (0xc12345 >> 13 & 0x3ff));
  EXPECT_EQ(f32_to_bf16(signalling), 0x7fc0);
  EXPECT_EQ(f32_to_bf16(negative), 0xffc1);
  EXPECT_EQ(std::bit_cast<uint32_t>(f16_to_f32(0x7c01)), 0x7fc02000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(f16_to_f32(0xfdff)), 0xffffe000u);
}

TEST(Half, PowersOfTwo) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(f8_e8m0_to_f32(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127));
  EXPECT_TRUE(std::isnan(f8_e8m0_to_f32(255)));
}

}  // namespace
}  // namespace millrace

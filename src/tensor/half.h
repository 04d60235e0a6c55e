// Small floating-point numbers to float32 and back, in plain integer and float32 arithmetic: no hardware support
// needed, and the same bits on every machine, compiler and denormal mode. Widening is exact. Narrowing rounds to
// nearest, ties to even. A NaN stays a NaN of the same sign (a signalling one becomes quiet, as the hardware
// conversions have it). Pure functions; any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace millrace {

// IEEE binary16: 5 exponent bits, 10 mantissa bits, infinities.
inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t mantissa = half & 0x3ffu;
  // Each case is computed and one is chosen, so that loops over this vectorise.
  const uint32_t normal = (exponent + 112) << 23 | mantissa << 13;
  const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f);
  const uint32_t special = 0x7f800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u);
  return std::bit_cast<float>(sign | (exponent == 0 ? tiny : exponent == 31 ? special : normal));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: the result is subnormal; adding 0.5 lets the adder do the rounding
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

// bfloat16: the upper half of a float32.
inline float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// FP8 E5M2: the upper half of a binary16, infinities included.
inline float f8_e5m2_to_f32(uint8_t byte) { return f16_to_f32(static_cast<uint16_t>(byte << 8)); }

inline uint8_t f32_to_f8_e5m2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7eu);
  if (magnitude >= 0x47700000u) return static_cast<uint8_t>(sign | 0x7cu);  // 61440 and above round to infinity
  if (magnitude < 0x38800000u) {                                            // below 2^-14: steps of 2^-16
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p7f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p7f)));
  }
  const uint32_t odd = magnitude >> 21 & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x38000000u + 0xfffffu + odd) >> 21));
}

// FP8 E4M3 as models use it ("fn"): no infinities, one NaN of each sign (0x7f, 0xff), largest finite 448.
inline float f8_e4m3_to_f32(uint8_t byte) {
  const uint32_t sign = uint32_t{byte} >> 7 << 31;
  const uint32_t exponent = byte >> 3 & 15u;
  const uint32_t mantissa = byte & 7u;
  const uint32_t normal = (exponent + 120) << 23 | mantissa << 20;
  const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-9f);
  const bool nan = (byte & 0x7fu) == 0x7fu;
  return std::bit_cast<float>(sign | (nan ? 0x7fc00000u : exponent == 0 ? tiny : normal));
}

// There is no infinity to round to: what is too large, infinities included, becomes the largest finite number.
inline uint8_t f32_to_f8_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448
  if (magnitude < 0x3c800000u) {                                            // below 2^-6: steps of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14f)));
  }
  const uint32_t odd = magnitude >> 20 & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

// E8M0, the scale of the OCP microscaling formats: a power of two, 2^(byte - 127); 255 is NaN.
inline float f8_e8m0_to_f32(uint8_t byte) {
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : byte == 255 ? 0x7fc00000u : uint32_t{byte} << 23);
}

}  // namespace millrace

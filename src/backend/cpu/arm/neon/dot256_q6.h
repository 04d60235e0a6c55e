// Q6_K where SDOT multiplies: all four subgroups of 64 inputs (a chunk) are taken apart side by side, vector after
// vector, for the fourth's codes lie in the bytes of the others.
//
// One row meets a packed group in an order made for two vector pipes. What binds is places there: per chunk and eight
// outputs 32 SDOT, 24 AND, 24 shifts and 12 SXTL, which one pipe takes only, and 8 MLA of two places on the other:
// 54 cycles. The core looks few instructions ahead, so shifts must not come one after the other, and a chunk's sums are
// scaled among the next one's products. A group takes 231 cycles from the first cache (273 subgroup after subgroup).
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/neon/dot256_tile.h"

namespace millrace::cpu {
namespace {

// Vector i of a group, of each of its chunk's four subgroups.
[[gnu::always_inline]] inline void q6_vectors(const std::byte* group, int i, int8x16_t (&out)[4]) {
  const std::byte* from = group + Q6K::kCodes + i * 48;
  const uint8x16_t a = load_u8(from), b = load_u8(from + 16), c = load_u8(from + 32), own = vdupq_n_u8(0xfc);
  out[0] = vreinterpretq_s8_u8(vandq_u8(a, own));
  out[1] = vreinterpretq_s8_u8(vandq_u8(b, own));
  out[2] = vreinterpretq_s8_u8(vandq_u8(c, own));
  out[3] = vreinterpretq_s8_u8(vsliq_n_u8(vsliq_n_u8(vshlq_n_u8(c, 2), b, 4), a, 6));
}

// whole [2 quads] = the subgroups of a group times their scales; `row` begins with its integers.
[[gnu::always_inline]] inline void q6_row_sums(const std::byte* row, const std::byte* group,
                                               int32x4_t (&whole)[kQuads]) {
  static_assert(Q6K::vector_at(0, 2, 0, 0) == Q6K::kCodes + 32 && Q6K::vector_at(0, 0, 1, 0) == Q6K::kCodes + 4 * 48);
  const std::byte *codes = group + Q6K::kCodes, *scales = group + Q6K::kScales;
  const int8x16_t own = vdupq_n_s8(-4);  // of a byte, what is not the fourth's
  int32x4_t sums[4][kQuads];
  int16x8_t wide[4];  // scales
  int8x16_t fourth, x[4], bytes[8][3], sixteen[2];
  clear_in_order(whole[0]);
  clear_in_order(whole[1]);
  each<3>([&](auto third) { bytes[0][third] = ordered_load<int8x16_t>(codes + 16 * third); });
#pragma GCC unroll kWrittenOut
  for (int c = 0; c < 4; ++c, row += 64, codes += 384, scales += 32) {
    each<8>([&](auto v) __attribute__((always_inline)) {
      constexpr int lane = v / 2, quad = v % 2, after = (v + 1) % 8;
      if (v < 7 || c < 3) {
        const std::byte* from = codes + (v < 7 ? (v + 1) * 48 : 384);
        bytes[after][0] = ordered_load<int8x16_t>(from);
        bytes[after][1] = ordered_load<int8x16_t>(from + 16);
        bytes[after][2] = ordered_load<int8x16_t>(from + 32);
      }
      if constexpr (v == 2) {
        sixteen[0] = ordered_load<int8x16_t>(scales);
        sixteen[1] = ordered_load<int8x16_t>(scales + 16);
      }
      auto start = [&](auto k) __attribute__((always_inline)) {
        if constexpr (v < 2) {
          if (c > 0) scale_in_order(whole[quad], sums[k][quad], ordered_wide<quad>(wide[k]));
          clear_in_order(sums[k][quad]);
        }
      };
      int8x16_t next = ordered_up<2>(bytes[v][2]);
      int8x16_t first = ordered_and(bytes[v][0], own);
      if (v > 0 || c > 0) sums[3][1 - quad] = ordered_dot<(v + 7) % 8 / 2>(sums[3][1 - quad], fourth, x[3]);
      if constexpr (v == 0) {
        x[0] = ordered_load<int8x16_t>(row);
        x[1] = ordered_load<int8x16_t>(row + 16);
        x[2] = ordered_load<int8x16_t>(row + 32);
        x[3] = ordered_load<int8x16_t>(row + 48);
      }
      next = ordered_up<4>(bytes[v][1], next);
      int8x16_t second = ordered_and(bytes[v][1], own);
      start(std::integral_constant<int, 0>());
      sums[0][quad] = ordered_dot<lane>(sums[0][quad], first, x[0]);
      next = ordered_up<6>(bytes[v][0], next);
      int8x16_t third = ordered_and(bytes[v][2], own);
      start(std::integral_constant<int, 1>());
      sums[1][quad] = ordered_dot<lane>(sums[1][quad], second, x[1]);
      if constexpr (v >= 3 && v < 7) wide[v - 3] = ordered_wide<(v - 3) % 2>(sixteen[(v - 3) / 2]);
      start(std::integral_constant<int, 2>());
      sums[2][quad] = ordered_dot<lane>(sums[2][quad], third, x[2]);
      start(std::integral_constant<int, 3>());
      fourth = next;
    });
  }
  sums[3][1] = ordered_dot<3>(sums[3][1], fourth, x[3]);
  each<4>([&](auto k) __attribute__((always_inline)) {
    scale_in_order(whole[0], sums[k][0], ordered_wide<0>(wide[k]));
    scale_in_order(whole[1], sums[k][1], ordered_wide<1>(wide[k]));
  });
}

}  // namespace
}  // namespace millrace::cpu

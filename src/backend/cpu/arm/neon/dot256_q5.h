// One to three rows against a packed group of Q5_K, in an order made for two vector pipes: sixteen inputs of eight
// outputs are 8 SDOT, 7 AND and 7 shifts, which one pipe takes only. Five of their eight vectors lie by themselves
// (planes.h); the other three are put together among the products of the sixteen before. A group and one row take 221
// cycles from the first cache, at best 214. Four rows gained 1 % by it: not worth compiling.
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/neon/dot256_tile.h"

namespace millrace::cpu {
namespace {

// whole [R][2 quads] = the subgroups of a group times their scales; `rows` begins with their integers.
template <int R>
[[gnu::always_inline]] inline void q5_row_sums(const std::byte* rows, const std::byte* group,
                                               int32x4_t (&whole)[R][kQuads]) {
  constexpr int64_t kSixteen = kFivesBytes / 2;  // bytes of sixteen inputs
  const std::byte *codes = group + Q5K::fives_at(0), *scales = group + Q5K::kScales;
  const int8x16_t five = vdupq_n_s8(31);
  int32x4_t sums[R][kQuads], scale[kQuads];
  int8x16_t fives[4][5], others[2][3], of_spans;
  auto load = [&](auto h) __attribute__((always_inline)) {
    each<5>([&](auto i) __attribute__((always_inline)) {
      fives[h % 4][i] = ordered_load<int8x16_t>(codes + h * kSixteen + 16 * i);
    });
  };
  // Instruction i of the seven that put together vectors 5 to 7 of sixteen inputs.
  auto join = [&](auto h, auto i) __attribute__((always_inline)) {
    const int8x16_t(&from)[5] = fives[h % 4];
    int8x16_t(&to)[3] = others[h % 2];
    if constexpr (i == 0) to[0] = ordered_down<2>(from[3]);
    if constexpr (i == 1) to[0] = ordered_down<5>(from[0], to[0]);
    if constexpr (i == 2) to[1] = ordered_down<2>(from[4]);
    if constexpr (i == 3) to[1] = ordered_down<5>(from[1], to[1]);
    if constexpr (i == 4) to[2] = ordered_down<3>(from[4]);
    if constexpr (i == 5) to[2] = ordered_down<4>(from[3], to[2]);
    if constexpr (i == 6) to[2] = ordered_down<5>(from[2], to[2]);
  };
  each<R>([&](auto r) __attribute__((always_inline)) {
    clear_in_order(whole[r][0]);
    clear_in_order(whole[r][1]);
  });
  load(std::integral_constant<int, 0>());
  each<7>([&](auto i) __attribute__((always_inline)) { join(std::integral_constant<int, 0>(), i); });
  load(std::integral_constant<int, 1>());
#pragma GCC unroll kWrittenOut
  for (int c = 0; c < 4; ++c, rows += 64 * R, codes += 4 * kSixteen, scales += 16) {  // two spans at a time
    each<4>([&](auto h) __attribute__((always_inline)) {
      int8x16_t x[R];
      each<R>([&](auto r) __attribute__((always_inline)) { x[r] = ordered_load<int8x16_t>(rows + 16 * (h * R + r)); });
      each<8>([&](auto v) __attribute__((always_inline)) {
        constexpr int quad = v % 2;
        int8x16_t w = others[h % 2][v < 5 ? 2 : v - 5];
        if constexpr (v < 5) w = ordered_and(fives[h][v], five);
        if constexpr (v == 5 || v == 6) w = ordered_and(w, five);
        if constexpr (v < 7) {
          if (h < 3 || c < 3) join(std::integral_constant<int, h + 1>(), v);
        }
        each<R>([&](auto r) __attribute__((always_inline)) {
          if constexpr (h % 2 == 0 && v < 2) {
            if (h > 0 || c > 0) scale_in_order(whole[r][quad], sums[r][quad], scale[quad]);
            clear_in_order(sums[r][quad]);
          }
          sums[r][quad] = ordered_dot<v / 2>(sums[r][quad], w, x[r]);
        });
        if constexpr (h % 2 == 1 && v == 5) {
          if constexpr (h == 1) of_spans = ordered_load<int8x16_t>(scales);
          each<kQuads>([&](auto n) __attribute__((always_inline)) {
            const std::byte* numbers = reinterpret_cast<const std::byte*>(kSpanScales[h / 2][n]);
            scale[n] = ordered_bytes(of_spans, ordered_load<int8x16_t>(numbers));
          });
        }
      });
      if (h < 2 || c < 3) load(std::integral_constant<int, h + 2>());
    });
  }
  each<R>([&](auto r) __attribute__((always_inline)) {
    scale_in_order(whole[r][0], sums[r][0], scale[0]);
    scale_in_order(whole[r][1], sums[r][1], scale[1]);
  });
}

}  // namespace
}  // namespace millrace::cpu

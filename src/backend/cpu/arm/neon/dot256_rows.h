// Rows for the products of dot256.h: quantised to int8 in groups of 256. A tile is four rows, the last of an input as
// many as are left. Per group of a tile of R rows: factors [4]; sums of each row's integers over 32 inputs, in a low
// part of six bits and the rest, [R][8 low, 8 high]; the same over 16 inputs, [R][16 low, 16 high]; integers [16][R][16
// inputs].
#pragma once

#include "backend/cpu/arm/neon/dot.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kDotSuper = 256;
constexpr int kDotLowBits = 6;

template <int R>
struct SuperRows {
  static constexpr int64_t kSums32 = 16, kSums16 = kSums32 + R * 16, kValues = kSums16 + R * 32;
  static constexpr int64_t kBytes = kValues + R * kDotSuper;
};

inline int64_t dot_prepared_bytes(int64_t rows, int64_t cols) {
  int64_t left = rows % kTileRows, last = left == 0 ? 0 : SuperRows<1>::kBytes + (left - 1) * (48 + kDotSuper);
  return cols / kDotSuper * (rows / kTileRows * SuperRows<kTileRows>::kBytes + last);
}

// Sums of eight times sixteen.
inline int16x8_t dot_sums_of_sixteens(const int8x16_t (&q)[16], int first) {
  int16x8_t sums[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sums[i] = vpaddlq_s8(q[first + i]);
#pragma GCC unroll 3
  for (int count = 4; count > 0; count /= 2) {
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) sums[i] = vpaddq_s16(sums[2 * i], sums[2 * i + 1]);
  }
  return sums[0];
}

inline int8x16_t low_parts(int16x8_t a, int16x8_t b) {
  const int16x8_t low = vdupq_n_s16((1 << kDotLowBits) - 1);
  return vcombine_s8(vmovn_s16(vandq_s16(a, low)), vmovn_s16(vandq_s16(b, low)));
}
inline int8x16_t high_parts(int16x8_t a, int16x8_t b) {
  return vcombine_s8(vshrn_n_s16(a, kDotLowBits), vshrn_n_s16(b, kDotLowBits));
}

// A group of row r of a tile.
template <int R>
inline void dot_prepare_group(const float* in, int r, std::byte* out) {
  using At = SuperRows<R>;
  float largest = vmaxvq_f32(largest_of(in, kDotSuper));
  float32x4_t inverse = inverse_factors(vdupq_n_f32(largest));
  int8x16_t q[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    q[i] = round_sixteen(in + 16 * i, inverse);
    store_s8(out + At::kValues + (i * R + r) * 16, q[i]);
  }
  reinterpret_cast<float*>(out)[r] = largest / 127.0f;
  int16x8_t a = dot_sums_of_sixteens(q, 0), b = dot_sums_of_sixteens(q, 8), both = vpaddq_s16(a, b);
  store_s8(out + At::kSums16 + r * 32, low_parts(a, b));
  store_s8(out + At::kSums16 + r * 32 + 16, high_parts(a, b));
  int8x16_t low = low_parts(both, both), high = high_parts(both, both);
  store_s8(out + At::kSums32 + r * 16, vcombine_s8(vget_low_s8(low), vget_low_s8(high)));
}

template <int R>
inline void dot_prepare_tile(Tensor in, int64_t begin, std::byte* out) {
  for (int64_t g = 0; g < in.cols / kDotSuper; ++g, out += SuperRows<R>::kBytes) {
    store_f32(out, vdupq_n_f32(0));
    for (int r = 0; r < R; ++r) dot_prepare_group<R>(in.row(begin + r) + g * kDotSuper, r, out);
  }
}

inline void dot_prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  out += begin / kTileRows * (in.cols / kDotSuper) * SuperRows<kTileRows>::kBytes;
  switch (end - begin) {
    case 1:
      return dot_prepare_tile<1>(in, begin, out);
    case 2:
      return dot_prepare_tile<2>(in, begin, out);
    case 3:
      return dot_prepare_tile<3>(in, begin, out);
    default:
      return dot_prepare_tile<4>(in, begin, out);
  }
}

}  // namespace
}  // namespace millrace::cpu

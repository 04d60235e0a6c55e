// The formats of group256.h: how each packs a group of 256 inputs for eight outputs, and how its integers are had back.
#pragma once

#include <algorithm>
#include <bit>

#include "backend/cpu/arm/formats32.h"
#include "backend/cpu/arm/group256.h"

namespace millrace::cpu {
namespace {

// Eight scales of a byte each, signed or not, as int32.
inline void load_scales(const std::byte* at, bool is_signed, int32x4_t (&out)[2]) {
  int16x8_t wide =
      is_signed ? vmovl_s8(vld1_s8(as<int8_t>(at))) : vreinterpretq_s16_u16(vmovl_u8(vld1_u8(as<uint8_t>(at))));
  out[0] = vmovl_s16(vget_low_s16(wide));
  out[1] = vmovl_s16(vget_high_s16(wide));
}

// What every format's panel has in common: [8 float16 factors]([8 float16 minimum factors])[scales: subgroups x 8]
// ([minimums: halves x 4 pairs x 16]), then the codes.
template <int halves, bool mins, bool signed_scales>
struct SuperGroup {
  static constexpr int kHalves = halves;
  static constexpr bool kMins = mins;
  static constexpr bool kSplits = false;
  static constexpr int64_t kDirectRows = 0;
  static constexpr bool kEights = false;
  static constexpr bool kWidens = false;
  static constexpr int kExactSets = 0, kExactStart = 0;  // see dot256_tile.h
  static constexpr int kSubgroups = 8 * halves;
  static constexpr int64_t kScales = mins ? 32 : 16, kMinimums = kScales + kSubgroups * 8;
  static constexpr int64_t kCodes = kMinimums + (mins ? halves * 64 : 0);

  static void factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group, out); }
  static void minimum_factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group + 16, out); }
  static void scales(const std::byte* group, int span, int half, int32x4_t (&out)[2]) {
    load_scales(group + kScales + (span * halves + half) * 8, signed_scales, out);
  }
  static int8x16_t minimums(const std::byte* group, int pair, int half) {
    return load_s8(group + kMinimums + (half * kPairs + pair) * 16);
  }

  static uint8_t& scale_at(std::byte* group, int n, int subgroup) { return byte_at(group + kScales, subgroup * 8 + n); }
  static uint8_t scale_at(const std::byte* group, int n, int subgroup) {
    return byte_at(group + kScales, subgroup * 8 + n);
  }
  // Where subgroups stand for inputs.
  static int64_t minimum_index(int n, int subgroup) {
    Place at(n, subgroup);
    return (at.step * kPairs + at.pair) * 16 + at.byte;
  }
  static uint8_t& minimum_at(std::byte* group, int n, int subgroup) {
    return byte_at(group + kMinimums, minimum_index(n, subgroup));
  }
  static uint8_t minimum_at(const std::byte* group, int n, int subgroup) {
    return byte_at(group + kMinimums, minimum_index(n, subgroup));
  }
};

// Calls one(row's group, n) for the rows that exist, on a cleared panel.
template <class Stored, class F>
void pack_rows(const std::byte* const (&rows)[kPanel], std::byte* out, int64_t bytes, F one) {
  std::memset(out, 0, static_cast<size_t>(bytes));
  for (int n = 0; n < kPanel; ++n) {
    if (rows[n] != nullptr) one(*as<Stored>(rows[n]), n);
  }
}

// ---- Q4_K and Q5_K
// ------------------------------------------------------------------------------------------------------

// Codes as the file pairs them: a byte has a code of an even span low and of the odd span after it high. Vectors
// [pair of spans][step][pair of outputs]; scales [pair of spans][output][even, odd span]: what a split row wants. Fifth
// bits: vectors [pair of spans][step], from the top bit down [pair of outputs][even, odd span]. Without matrix products
// codes of five bits lie span after span (planes.h).
//
// Which bytes of the scales of a pair of spans are those of an even or odd span's outputs 0 to 3 and 4 to 7, as words.
alignas(16) inline constexpr uint8_t kSpanScales[2][2][16] = {
    {{0, 255, 255, 255, 2, 255, 255, 255, 4, 255, 255, 255, 6, 255, 255, 255},
     {8, 255, 255, 255, 10, 255, 255, 255, 12, 255, 255, 255, 14, 255, 255, 255}},
    {{1, 255, 255, 255, 3, 255, 255, 255, 5, 255, 255, 255, 7, 255, 255, 255},
     {9, 255, 255, 255, 11, 255, 255, 255, 13, 255, 255, 255, 15, 255, 255, 255}}};

template <class Stored, bool fifth>
struct Q45K : SuperGroup<1, true, false> {
  static constexpr int64_t kBits = kCodes, kNibbles = kCodes + (fifth ? kSpans * kOneBitBytes : 0);
  static_assert(kBits == 160);
  static constexpr int64_t kBytes = kNibbles + kSpans * kNibbleBytes, kFileBytes = sizeof(Stored);
  static constexpr float kAfter = 1;
  static constexpr bool kSplits = !fifth;
  static constexpr int64_t kDirectRows = fifth ? 4 : 16;
  static constexpr bool kEights = !fifth;
  static constexpr int64_t kSplitRow = 0, kSplitRowBytes = kSplitBytes;
  static constexpr bool kFives = fifth && !kMatrixProducts;
  static_assert(!kFives || kBytes == kCodes + kSpans * kFivesBytes);

#ifdef __ARM_FEATURE_MATMUL_INT8
  static void multiply_row(const std::byte* row, const std::byte* group, float* totals, const std::byte* ahead) {
    static_assert(kScales == 32 && kMinimums == 96 && (fifth || kNibbles == 160));
    multiply_q4_k_row(row, group, totals, ahead);
  }
  template <int pairs>
  static void multiply_tile(const std::byte* tile, int64_t values, const std::byte* group, float* sums,
                            const std::byte* ahead) {
    multiply_q45_k_tile<pairs, fifth>(tile, values, group, sums, ahead);
  }
  static void multiply_eight(const std::byte* tile, const std::byte* other, int64_t values, const std::byte* group,
                             int half, float* sums, const std::byte* ahead) {
    multiply_q4_k_eight(tile, other, values, group, half, sums, ahead);
  }
#endif
  static int64_t scale_index(int n, int subgroup) { return kScales + subgroup / 2 * 16 + 2 * n + subgroup % 2; }
  static void scales(const std::byte* group, int span, int, int32x4_t (&out)[2]) {
    uint8x16_t both = load_u8(group + kScales + span / 2 * 16);
    if constexpr (!kMatrixProducts) {
      for (int n = 0; n < 2; ++n) out[n] = vreinterpretq_s32_u8(vqtbl1q_u8(both, vld1q_u8(kSpanScales[span % 2][n])));
      return;
    }
    uint16x8_t wide = vmovl_u8(vget_low_u8(span % 2 == 0 ? vuzp1q_u8(both, both) : vuzp2q_u8(both, both)));
    out[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
    out[1] = vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(wide)));
  }
  static constexpr bool kWidens = !fifth;
  // A subgroup is at most 32 x 15 x 127 = 60,960, with its scale 63 times that, four of them 15,361,920 < 2^24.
  static constexpr int kExactSets = fifth ? 0 : 2, kExactStart = 60960;
  // Two spans at a time, as their codes lie together.
  static void widen_spans(const std::byte* group, std::byte* out) {
    constexpr int64_t kSpanBytes = 64 + kSpanSteps * 64;
    const std::byte* codes = group + kNibbles;
    for (int j = 0; j < kSpans / 2; ++j, out += 2 * kSpanBytes) {
      uint8x16_t scale = load_u8(group + kScales + j * 16);
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        store_u8(out + p * 16, vqtbl1q_u8(scale, vreinterpretq_u8_u32(vld1q_u32(kPairScales[2 * p]))));
        store_u8(out + kSpanBytes + p * 16, vqtbl1q_u8(scale, vreinterpretq_u8_u32(vld1q_u32(kPairScales[2 * p + 1]))));
      }
#pragma GCC unroll 16
      for (int i = 0; i < kSpanSteps * kPairs; ++i, codes += 16) {
        uint8x16_t both = load_u8(codes);
        store_u8(out + 64 + i * 16, vandq_u8(both, vdupq_n_u8(15)));
        store_u8(out + kSpanBytes + 64 + i * 16, vshrq_n_u8(both, 4));
      }
    }
  }
  static uint8x16_t span_nibbles(const std::byte* group, int span, int pair, int step) {
    uint8x16_t both = load_u8(group + kNibbles + ((span / 2 * kSpanSteps + step) * kPairs + pair) * 16);
    return span % 2 == 0 ? vandq_u8(both, vdupq_n_u8(15)) : vshrq_n_u8(both, 4);
  }
  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    if constexpr (kFives) {
      const std::byte* from = group + fives_at(span) + j * (kFivesBytes / 2);
      out[0] = vreinterpretq_s8_u8(five_bits(from, pair));
      out[1] = vreinterpretq_s8_u8(five_bits(from, kPairs + pair));
      return;
    }
    uint8x16_t low = span_nibbles(group, span, pair, 2 * j), high = span_nibbles(group, span, pair, 2 * j + 1);
    if constexpr (fifth) {
      uint8x16_t bit = vdupq_n_u8(fifth_bit(pair, span));
      low = vorrq_u8(low, vandq_u8(vtstq_u8(load_u8(group + bits_at(span, 2 * j)), bit), vdupq_n_u8(16)));
      high = vorrq_u8(high, vandq_u8(vtstq_u8(load_u8(group + bits_at(span, 2 * j + 1)), bit), vdupq_n_u8(16)));
    }
    out[0] = vreinterpretq_s8_u8(low);
    out[1] = vreinterpretq_s8_u8(high);
  }
  // The vector of a step's fifth bits, and which of its bits is that of one of the step's vectors.
  static int64_t bits_at(int span, int step) { return kBits + (span / 2 * kSpanSteps + step) * 16; }
  static uint8_t fifth_bit(int pair, int span) { return static_cast<uint8_t>(128 >> (pair * 2 + span % 2)); }
  static int64_t fives_at(int span) { return kCodes + span * kFivesBytes; }
  // Where codes of input i of two spans are.
  static int64_t code_index(int n, int spans, int i) {
    Place at(n, i);
    return kNibbles + ((spans * kSpanSteps + at.step) * kPairs + at.pair) * 16 + at.byte;
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<Stored>(rows, out, kBytes, [out](const Stored& from, int n) {
      copy_two_bytes(out, n, from.d);
      copy_two_bytes(out + 16, n, from.dmin);
      uint8_t scale[8], minimum[8];
      layout::unpack_scales(from.scales, scale, minimum);
      for (int s = 0; s < 8; ++s) byte_at(out, scale_index(n, s)) = scale[s], minimum_at(out, n, s) = minimum[s];
      if constexpr (kFives) {
        for (int v = 0; v < kSuper; ++v) {
          int code = (from.codes[v / 64 * 32 + v % 32] >> (v / 32 % 2 * 4) & 15) | (from.high[v % 32] >> v / 32 & 1)
                                                                                       << 4;
          put_five_bits(out + fives_at(v / 32), n, v % 32, static_cast<uint8_t>(code));
        }
        return;
      }
      for (int i = 0; i < kSuper / 2; i += kRun) std::memcpy(out + code_index(n, i / 32, i % 32), from.codes + i, kRun);
      if constexpr (fifth) {
        for (int v = 0; v < kSuper; ++v) {
          Place at(n, v % 32);
          uint8_t bit = (from.high[v % 32] >> v / 32 & 1) != 0 ? fifth_bit(at.pair, v / 32) : 0;
          byte_at(out, bits_at(v / 32, at.step) + at.byte) |= bit;
        }
      }
    });
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<Stored>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    std::memcpy(to.dmin, group + 16 + 2 * n, 2);
    uint8_t scale[8], minimum[8];
    for (int s = 0; s < 8; ++s) scale[s] = byte_at(group, scale_index(n, s)), minimum[s] = minimum_at(group, n, s);
    layout::pack_scales(scale, minimum, to.scales);
    if constexpr (kFives) {
      for (int v = 0; v < kSuper; ++v) {
        uint8_t code = get_five_bits(group + fives_at(v / 32), n, v % 32);
        uint8_t& both = to.codes[v / 64 * 32 + v % 32];
        both = static_cast<uint8_t>(both | (code & 15) << (v / 32 % 2 * 4));
        to.high[v % 32] = static_cast<uint8_t>(to.high[v % 32] | code >> 4 << v / 32);
      }
      return;
    }
    for (int i = 0; i < kSuper / 2; i += kRun) std::memcpy(to.codes + i, group + code_index(n, i / 32, i % 32), kRun);
    if constexpr (fifth) {
      for (int v = 0; v < kSuper; ++v) {
        Place at(n, v % 32);
        bool set = (byte_at(group, bits_at(v / 32, at.step) + at.byte) & fifth_bit(at.pair, v / 32)) != 0;
        to.high[v % 32] = static_cast<uint8_t>(to.high[v % 32] | (set ? 1 : 0) << v / 32);
      }
    }
  }
};
using Q4K = Q45K<layout::Q4K, false>;
using Q5K = Q45K<layout::Q5K, true>;

// ---- Q6_K
// ---------------------------------------------------------------------------------------------------------------

// Of four subgroups, a chunk, the first three have a byte a code: the code less 32, six bits with its sign, at the top
// (four times the value), and below it two bits of the fourth's code, the uppermost with the first. Vectors [chunk]
// [third][step][pair of outputs]: what a row split in thirds wants. Without matrix products no row is split, the
// fourth's code is less 32 as well, and vectors lie [chunk][step][pair][third]: as they are read.
struct Q6K : SuperGroup<2, false, true> {
  static constexpr int64_t kBytes = kCodes + 4 * 3 * 2 * kPairs * 16, kFileBytes = sizeof(layout::Q6K);
  static constexpr float kAfter = 0.25f;
  static constexpr bool kSplits = true;
  static constexpr int64_t kDirectRows = 8;
  static constexpr int64_t kSplitRow = kSplitBytes, kSplitRowBytes = kThirdsBytes;
  static constexpr uint8_t kFourthSign = kMatrixProducts ? 0 : 32;

#ifdef __ARM_FEATURE_MATMUL_INT8
  static void multiply_row(const std::byte* row, const std::byte* group, float* totals, const std::byte* ahead) {
    static_assert(kScales == 16 && kCodes == 144);
    multiply_q6_k_row(row, group, totals, ahead);
  }
  template <int pairs>
  static void multiply_tile(const std::byte* tile, int64_t values, const std::byte* group, float* sums,
                            const std::byte* ahead) {
    multiply_q6_k_tile<pairs>(tile, values, group, sums, ahead);
  }
#endif
  // A vector of a third, and where input i of an output is in it.
  static constexpr int64_t vector_at(int chunk, int third, int step, int pair) {
    if constexpr (!kMatrixProducts) return kCodes + (((chunk * 2 + step) * kPairs + pair) * 3 + third) * 16;
    return kCodes + (((chunk * 3 + third) * 2 + step) * kPairs + pair) * 16;
  }
  static int64_t place(int chunk, int third, int n, int i) {
    Place at(n, i);
    return vector_at(chunk, third, at.step, at.pair) + at.byte;
  }
  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    int chunk = span / 2, subgroup = span % 2 * 2 + j;
    for (int step = 0; step < 2; ++step) {
      uint8x16_t bytes;
      if (subgroup < 3) {
        bytes = vandq_u8(load_u8(group + vector_at(chunk, subgroup, step, pair)), vdupq_n_u8(0xfc));
      } else {
        bytes = vshlq_n_u8(load_u8(group + vector_at(chunk, 2, step, pair)), 2);
        bytes = vsliq_n_u8(bytes, load_u8(group + vector_at(chunk, 1, step, pair)), 4);
        bytes = vsliq_n_u8(bytes, load_u8(group + vector_at(chunk, 0, step, pair)), 6);
        if constexpr (kMatrixProducts) bytes = veorq_u8(bytes, vdupq_n_u8(0x80));  // less 32
      }
      out[step] = vreinterpretq_s8_u8(bytes);
    }
  }
  // Codes of a subgroup of 16.
  static uint8x16_t codes(const layout::Q6K& from, int chunk, int subgroup) {
    uint8x16_t low = vld1q_u8(from.codes + chunk / 2 * 64 + subgroup * 16);
    uint8x16_t high = vld1q_u8(from.high + chunk / 2 * 32 + subgroup % 2 * 16);
    low = vshlq_u8(low, vdupq_n_s8(static_cast<int8_t>(chunk % 2 * -4)));
    high = vshlq_u8(high, vdupq_n_s8(static_cast<int8_t>(chunk % 2 * -4 + subgroup / 2 * -2)));
    return vandq_u8(vsliq_n_u8(low, high, 4), vdupq_n_u8(63));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<layout::Q6K>(rows, out, kBytes, [out](const layout::Q6K& from, int n) {
      copy_two_bytes(out, n, from.d);
      for (int s = 0; s < 16; ++s) scale_at(out, n, s) = static_cast<uint8_t>(from.scales[s]);
      for (int chunk = 0; chunk < 4; ++chunk) {
        uint8x16_t fourth = veorq_u8(codes(from, chunk, 3), vdupq_n_u8(kFourthSign));
        for (int third = 0; third < 3; ++third) {
          uint8x16_t two = vandq_u8(vshlq_u8(fourth, vdupq_n_s8(static_cast<int8_t>(2 * third - 4))), vdupq_n_u8(3));
          uint8x16_t both = vsliq_n_u8(two, veorq_u8(codes(from, chunk, third), vdupq_n_u8(32)), 2);
          uint8_t bytes[16];
          vst1q_u8(bytes, both);
          for (int i = 0; i < 16; i += kRun) std::memcpy(out + place(chunk, third, n, i), bytes + i, kRun);
        }
      }
    });
  }
  static void put_code(layout::Q6K& to, int v, int code) {
    int h = v / 128, r = v % 128;
    uint8_t &lows = to.codes[64 * h + r % 64], &highs = to.high[32 * h + r % 32];
    lows = static_cast<uint8_t>(lows | (code & 15) << (r / 64 * 4));
    highs = static_cast<uint8_t>(highs | code >> 4 << (r / 32 * 2));
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q6K>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    for (int s = 0; s < 16; ++s) to.scales[s] = static_cast<int8_t>(scale_at(group, n, s));
    for (int i = 0; i < 4 * 16; ++i) {
      int chunk = i / 16, within = i % 16, v = chunk * 64 + within, fourth = 0;
      for (int third = 0; third < 3; ++third) {
        uint8_t byte = byte_at(group, place(chunk, third, n, within));
        put_code(to, v + 16 * third, byte >> 2 ^ 32);
        fourth |= (byte & 3) << (4 - 2 * third);
      }
      put_code(to, v + 48, fourth ^ kFourthSign);
    }
  }
};

// ---- Q2_K, Q3_K, IQ4_XS and IQ2_XXS: packed a little wider than the file has them, as nibbles
// -------------------------------------

inline uint8_t two_bit_code(const uint8_t* codes, int v) {
  return codes[v / 128 * 32 + v % 32] >> (v % 128 / 32 * 2) & 3;
}
inline void put_two_bit_code(uint8_t* codes, int v, int code) {
  uint8_t& four = codes[v / 128 * 32 + v % 32];
  four = static_cast<uint8_t>(four | code << (v % 128 / 32 * 2));
}

struct Q2K : SuperGroup<2, true, false> {
  static constexpr int64_t kNibbles = kCodes, kBytes = kNibbles + kSpans * kNibbleBytes,
                           kFileBytes = sizeof(layout::Q2K);
  static constexpr float kAfter = 1;
  static constexpr int kExactSets = 1, kExactStart = 16 * 3 * 127;  // times 15, sixteen of them: 1,463,040

  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    uint8x16_t both = nibbles(group + kNibbles + span * kNibbleBytes, pair, j);
    out[0] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<layout::Q2K>(rows, out, kBytes, [out](const layout::Q2K& from, int n) {
      copy_two_bytes(out, n, from.d);
      copy_two_bytes(out + 16, n, from.dmin);
      for (int s = 0; s < 16; ++s)
        scale_at(out, n, s) = from.scales[s] & 15, minimum_at(out, n, s) = from.scales[s] >> 4;
      for (int v = 0; v < kSuper; ++v)
        put_nibble(out + kNibbles + v / 32 * kNibbleBytes, n, v % 32, two_bit_code(from.codes, v));
    });
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q2K>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    std::memcpy(to.dmin, group + 16 + 2 * n, 2);
    for (int s = 0; s < 16; ++s)
      to.scales[s] = static_cast<uint8_t>(scale_at(group, n, s) | minimum_at(group, n, s) << 4);
    for (int v = 0; v < kSuper; ++v)
      put_two_bit_code(to.codes, v, get_nibble(group + kNibbles + v / 32 * kNibbleBytes, n, v % 32));
  }
};

// The code less 4 as a signed nibble, as in Q4_0.
struct Q3K : SuperGroup<2, false, true> {
  static constexpr int64_t kNibbles = kCodes, kBytes = kNibbles + kSpans * kNibbleBytes,
                           kFileBytes = sizeof(layout::Q3K);
  static constexpr float kAfter = 1.0f / 16;
  // Everything is a multiple of 16; a sixteenth of it, times 32, sixteen of them: 4,161,536.
  static constexpr int kExactSets = 1, kExactStart = 16 * 64 * 127;

  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    uint8x16_t both = nibbles(group + kNibbles + span * kNibbleBytes, pair, j);
    out[0] = vreinterpretq_s8_u8(vshlq_n_u8(both, 4));
    out[1] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(0xf0)));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<layout::Q3K>(rows, out, kBytes, [out](const layout::Q3K& from, int n) {
      copy_two_bytes(out, n, from.d);
      for (int s = 0; s < 16; ++s) {
        int scale = (from.scales[s % 8] >> (s / 8 * 4) & 15) | (from.scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
        scale_at(out, n, s) = static_cast<uint8_t>(scale - 32);
      }
      for (int v = 0; v < kSuper; ++v) {
        int code = two_bit_code(from.codes, v) | (from.high[v % 32] >> v / 32 & 1) << 2;
        put_nibble(out + kNibbles + v / 32 * kNibbleBytes, n, v % 32, static_cast<uint8_t>(code - 4));
      }
    });
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q3K>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    for (int s = 0; s < 16; ++s) {
      int scale = static_cast<int8_t>(scale_at(group, n, s)) + 32;
      to.scales[s % 8] = static_cast<uint8_t>(to.scales[s % 8] | (scale & 15) << (s / 8 * 4));
      to.scales[8 + s % 4] = static_cast<uint8_t>(to.scales[8 + s % 4] | scale >> 4 << (s / 4 * 2));
    }
    for (int v = 0; v < kSuper; ++v) {
      int code = (get_nibble(group + kNibbles + v / 32 * kNibbleBytes, n, v % 32) + 4) & 7;
      put_two_bit_code(to.codes, v, code & 3);
      to.high[v % 32] = static_cast<uint8_t>(to.high[v % 32] | code >> 2 << v / 32);
    }
  }
};

struct IQ4XS : SuperGroup<1, false, true> {
  static constexpr int64_t kNibbles = kCodes, kBytes = kNibbles + kSpans * kNibbleBytes,
                           kFileBytes = sizeof(layout::IQ4XS);
  static constexpr float kAfter = 1;

  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    int8x16_t table = vld1q_s8(layout::kIQ4Values);
    uint8x16_t both = nibbles(group + kNibbles + span * kNibbleBytes, pair, j);
    out[0] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<layout::IQ4XS>(rows, out, kBytes, [out](const layout::IQ4XS& from, int n) {
      copy_two_bytes(out, n, from.d);
      for (int s = 0; s < 8; ++s) {
        int scale = (from.scales_low[s / 2] >> (s % 2 * 4) & 15) | (layout::load_u16(from.scales_high) >> (2 * s) & 3)
                                                                       << 4;
        scale_at(out, n, s) = static_cast<uint8_t>(scale - 32);
      }
      for (int v = 0; v < kSuper; ++v) {
        put_nibble(out + kNibbles + v / 32 * kNibbleBytes, n, v % 32, file_nibble(from.codes + v / 32 * 16, v % 32));
      }
    });
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::IQ4XS>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    int high = 0;
    for (int s = 0; s < 8; ++s) {
      int scale = static_cast<int8_t>(scale_at(group, n, s)) + 32;
      to.scales_low[s / 2] = static_cast<uint8_t>(to.scales_low[s / 2] | (scale & 15) << (s % 2 * 4));
      high |= scale >> 4 << (2 * s);
    }
    layout::store_u16(to.scales_high, static_cast<uint16_t>(high));
    for (int v = 0; v < kSuper; ++v) {
      put_file_nibble(to.codes + v / 32 * 16, v % 32, get_nibble(group + kNibbles + v / 32 * kNibbleBytes, n, v % 32));
    }
  }
};

// Grid rows written out: a nibble is the level (8, 25 or 43) and the sign. A step of the file is (scale + 1/2) / 4.
struct IQ2XXS : SuperGroup<1, false, false> {
  static constexpr int64_t kNibbles = kCodes, kBytes = kNibbles + kSpans * kNibbleBytes,
                           kFileBytes = sizeof(layout::IQ2XXS);
  static constexpr float kAfter = 1.0f / 8;
  alignas(16) static constexpr int8_t kValues[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0};

  static void values(const std::byte* group, int span, int pair, int j, int8x16_t (&out)[2]) {
    int8x16_t table = vld1q_s8(kValues);
    uint8x16_t both = nibbles(group + kNibbles + span * kNibbleBytes, pair, j);
    out[0] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    pack_rows<layout::IQ2XXS>(rows, out, kBytes, [out](const layout::IQ2XXS& from, int n) {
      copy_two_bytes(out, n, from.d);
      for (int s = 0; s < kSpans; ++s) {
        const uint8_t* numbers = from.codes + s * 8;
        uint32_t word = layout::load_u32(numbers + 4);
        scale_at(out, n, s) = static_cast<uint8_t>(2 * (word >> 28) + 1);
        for (int v = 0; v < 32; ++v) {
          uint32_t seven = word >> (v / 8 * 7) & 127u;
          uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
          uint64_t value = layout::kIQ2Grid[numbers[v / 8]] >> (v % 8 * 8) & 255u;
          int level = value == 8 ? 0 : value == 25 ? 1 : 2;
          int code = level | static_cast<int>(signs >> (v % 8) & 1u) << 3;
          put_nibble(out + kNibbles + s * kNibbleBytes, n, v, static_cast<uint8_t>(code));
        }
      }
    });
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::IQ2XXS>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    for (int s = 0; s < kSpans; ++s) {
      uint8_t* numbers = to.codes + s * 8;
      uint32_t word = static_cast<uint32_t>(scale_at(group, n, s) / 2) << 28;
      for (int k = 0; k < 4; ++k) {
        uint64_t row = 0;
        for (int i = 0; i < 8; ++i) {
          int code = get_nibble(group + kNibbles + s * kNibbleBytes, n, 8 * k + i);
          row |= static_cast<uint64_t>(kValues[code & 3]) << (8 * i);
          if (i < 7) word |= static_cast<uint32_t>(code >> 3) << (7 * k + i);
        }
        numbers[k] = static_cast<uint8_t>(std::find(layout::kIQ2Grid, layout::kIQ2Grid + 256, row) - layout::kIQ2Grid);
      }
      layout::store_u32(numbers + 4, word);
    }
  }
};

}  // namespace
}  // namespace millrace::cpu

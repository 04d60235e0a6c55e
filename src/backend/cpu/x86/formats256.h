// The formats of group256.h: how each packs a group of 256 inputs of one output, and how its codes are had back.
#pragma once

#include <bit>

#include "backend/cpu/x86/formats32.h"
#include "backend/cpu/x86/group256.h"

namespace millrace::cpu {
namespace {

// ---- Q4_K and Q5_K
// ------------------------------------------------------------------------------------------------------

inline uint8_t q4_k_code(const uint8_t* codes, int v) { return codes[v / 64 * 32 + v % 32] >> (v % 64 / 32 * 4) & 15; }
inline void put_q4_k_code(uint8_t* codes, int v, int code) {
  uint8_t& both = codes[v / 64 * 32 + v % 32];
  both = static_cast<uint8_t>(both | code << (v % 64 / 32 * 4));
}

template <class Stored, bool fifth>
struct Q45K : SuperGroup<1, true, false, 0> {  // codes per span: ([bits])[nibbles]
  static constexpr int64_t kNibbles = fifth ? kOneBitBytes : 0, kSpanBytes = kNibbles + kNibbleBytes;
  static constexpr int64_t kBytes = kCodes + kSpans * kSpanBytes, kFileBytes = sizeof(Stored);
  static constexpr bool kWide = false;

  static Bytes values(const std::byte* group, int span, int step) {
    const std::byte* codes = group + kCodes + span * kSpanBytes;
    Bytes low = nibbles(codes + kNibbles, step);
    if constexpr (fifth) return low | fifth_bits(codes, step);
    return low;
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<Stored>(in);
    copy_half(out, n, from.d);
    copy_half(out + 32, n, from.dmin);
    uint8_t scale[8], minimum[8];
    layout::unpack_scales(from.scales, scale, minimum);
    for (int s = 0; s < 8; ++s) scale_at(out, n, s) = scale[s], minimum_at(out, n, s) = minimum[s];
    for (int v = 0; v < kSuper; ++v) {
      std::byte* codes = out + kCodes + v / 32 * kSpanBytes;
      put_nibble(codes + kNibbles, n, v % 32, q4_k_code(from.codes, v));
      if constexpr (fifth) put_bit(codes, n, v % 32, (from.high[v % 32] >> v / 32 & 1) != 0);
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<Stored>(out);
    copy_half_back(group, n, to.d);
    copy_half_back(group + 32, n, to.dmin);
    uint8_t scale[8], minimum[8];
    for (int s = 0; s < 8; ++s) scale[s] = scale_at(group, n, s), minimum[s] = minimum_at(group, n, s);
    layout::pack_scales(scale, minimum, to.scales);
    for (int v = 0; v < kSuper; ++v) {
      const std::byte* codes = group + kCodes + v / 32 * kSpanBytes;
      put_q4_k_code(to.codes, v, get_nibble(codes + kNibbles, n, v % 32));
      if constexpr (fifth)
        to.high[v % 32] = static_cast<uint8_t>(to.high[v % 32] | (get_bit(codes, n, v % 32) ? 1 : 0) << v / 32);
    }
  }
};
using Q4K = Q45K<layout::Q4K, false>;
using Q5K = Q45K<layout::Q5K, true>;

// ---- Q6_K
// ---------------------------------------------------------------------------------------------------------------

struct Q6K : SuperGroup<2, false, true, 32> {  // codes per span: [two bits][nibbles]
  static constexpr int64_t kSpanBytes = kTwoBitBytes + kNibbleBytes;
  static constexpr int64_t kBytes = kCodes + kSpans * kSpanBytes, kFileBytes = sizeof(layout::Q6K);
  static constexpr bool kWide = false;

  static Bytes values(const std::byte* group, int span, int step) {
    const std::byte* codes = group + kCodes + span * kSpanBytes;
    return nibbles(codes + kTwoBitBytes, step) | top_two(codes, step);
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<layout::Q6K>(in);
    copy_half(out, n, from.d);
    for (int s = 0; s < 16; ++s) scale_at(out, n, s) = static_cast<uint8_t>(from.scales[s]);
    for (int v = 0; v < kSuper; ++v) {
      int h = v / 128, r = v % 128;
      std::byte* codes = out + kCodes + v / 32 * kSpanBytes;
      put_nibble(codes + kTwoBitBytes, n, v % 32, from.codes[64 * h + r % 64] >> (r / 64 * 4) & 15);
      put_two(codes, n, v % 32, from.high[32 * h + r % 32] >> (r / 32 * 2) & 3);
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q6K>(out);
    copy_half_back(group, n, to.d);
    for (int s = 0; s < 16; ++s) to.scales[s] = static_cast<int8_t>(scale_at(group, n, s));
    for (int v = 0; v < kSuper; ++v) {
      int h = v / 128, r = v % 128;
      const std::byte* codes = group + kCodes + v / 32 * kSpanBytes;
      uint8_t &lows = to.codes[64 * h + r % 64], &highs = to.high[32 * h + r % 32];
      lows = static_cast<uint8_t>(lows | get_nibble(codes + kTwoBitBytes, n, v % 32) << (r / 64 * 4));
      highs = static_cast<uint8_t>(highs | get_two(codes, n, v % 32) << (r / 32 * 2));
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

struct Q2K : SuperGroup<2, true, false, 0> {
  static constexpr int64_t kBytes = kCodes + kSpans * kNibbleBytes, kFileBytes = sizeof(layout::Q2K);
  static constexpr bool kWide = false;

  static Bytes values(const std::byte* group, int span, int step) {
    return nibbles(group + kCodes + span * kNibbleBytes, step);
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<layout::Q2K>(in);
    copy_half(out, n, from.d);
    copy_half(out + 32, n, from.dmin);
    for (int s = 0; s < 16; ++s) {
      scale_at(out, n, s) = from.scales[s] & 15;
      minimum_at(out, n, s) = from.scales[s] >> 4;
    }
    for (int v = 0; v < kSuper; ++v)
      put_nibble(out + kCodes + v / 32 * kNibbleBytes, n, v % 32, two_bit_code(from.codes, v));
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q2K>(out);
    copy_half_back(group, n, to.d);
    copy_half_back(group + 32, n, to.dmin);
    for (int s = 0; s < 16; ++s)
      to.scales[s] = static_cast<uint8_t>(scale_at(group, n, s) | minimum_at(group, n, s) << 4);
    for (int v = 0; v < kSuper; ++v)
      put_two_bit_code(to.codes, v, get_nibble(group + kCodes + v / 32 * kNibbleBytes, n, v % 32));
  }
};

struct Q3K : SuperGroup<2, false, true, 4> {
  static constexpr int64_t kBytes = kCodes + kSpans * kNibbleBytes, kFileBytes = sizeof(layout::Q3K);
  static constexpr bool kWide = false;

  static Bytes values(const std::byte* group, int span, int step) {
    return nibbles(group + kCodes + span * kNibbleBytes, step);
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<layout::Q3K>(in);
    copy_half(out, n, from.d);
    for (int s = 0; s < 16; ++s) {
      int scale = (from.scales[s % 8] >> (s / 8 * 4) & 15) | (from.scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4;
      scale_at(out, n, s) = static_cast<uint8_t>(scale - 32);
    }
    for (int v = 0; v < kSuper; ++v) {
      int code = two_bit_code(from.codes, v) | (from.high[v % 32] >> v / 32 & 1) << 2;
      put_nibble(out + kCodes + v / 32 * kNibbleBytes, n, v % 32, code);
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q3K>(out);
    copy_half_back(group, n, to.d);
    for (int s = 0; s < 16; ++s) {
      int scale = static_cast<int8_t>(scale_at(group, n, s)) + 32;
      to.scales[s % 8] = static_cast<uint8_t>(to.scales[s % 8] | (scale & 15) << (s / 8 * 4));
      to.scales[8 + s % 4] = static_cast<uint8_t>(to.scales[8 + s % 4] | scale >> 4 << (s / 4 * 2));
    }
    for (int v = 0; v < kSuper; ++v) {
      int code = get_nibble(group + kCodes + v / 32 * kNibbleBytes, n, v % 32);
      put_two_bit_code(to.codes, v, code & 3);
      to.high[v % 32] = static_cast<uint8_t>(to.high[v % 32] | code >> 2 << v / 32);
    }
  }
};

struct IQ4XS : SuperGroup<1, false, true, 128> {
  static constexpr int64_t kBytes = kCodes + kSpans * kNibbleBytes, kFileBytes = sizeof(layout::IQ4XS);
  static constexpr bool kWide = true;

  static Bytes values(const std::byte* group, int span, int step) {
    return look_up(shifted_table(layout::kIQ4Values, 128), nibbles(group + kCodes + span * kNibbleBytes, step));
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<layout::IQ4XS>(in);
    copy_half(out, n, from.d);
    for (int s = 0; s < 8; ++s) {
      int high = layout::load_u16(from.scales_high) >> (2 * s) & 3;
      int scale = (from.scales_low[s / 2] >> (s % 2 * 4) & 15) | high << 4;
      scale_at(out, n, s) = static_cast<uint8_t>(scale - 32);
    }
    for (int v = 0; v < kSuper; ++v)
      put_nibble(out + kCodes + v / 32 * kNibbleBytes, n, v % 32, file_nibble(from.codes + v / 32 * 16, v % 32));
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::IQ4XS>(out);
    copy_half_back(group, n, to.d);
    int high = 0;
    for (int s = 0; s < 8; ++s) {
      int scale = static_cast<int8_t>(scale_at(group, n, s)) + 32;
      to.scales_low[s / 2] = static_cast<uint8_t>(to.scales_low[s / 2] | (scale & 15) << (s % 2 * 4));
      high |= scale >> 4 << (2 * s);
    }
    layout::store_u16(to.scales_high, static_cast<uint16_t>(high));
    for (int v = 0; v < kSuper; ++v)
      put_file_nibble(to.codes + v / 32 * 16, v % 32, get_nibble(group + kCodes + v / 32 * kNibbleBytes, n, v % 32));
  }
};

// Grid rows written out: a nibble is the level (8, 25 or 43) and the sign. A step of the file is (scale + 1/2) / 4.
struct IQ2XXS : SuperGroup<1, false, false, 64> {
  static constexpr int64_t kBytes = kCodes + kSpans * kNibbleBytes, kFileBytes = sizeof(layout::IQ2XXS);
  static constexpr bool kWide = false;
  static constexpr float kUnit = 1.0f / 8;
  alignas(16) static constexpr int8_t kValues[16] = {8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43, 0, 0, 0, 0, 0};

  static Bytes values(const std::byte* group, int span, int step) {
    return look_up(shifted_table(kValues, kOffset), nibbles(group + kCodes + span * kNibbleBytes, step));
  }
  static void pack(const std::byte* in, int n, std::byte* out) {
    const auto& from = *as<layout::IQ2XXS>(in);
    copy_half(out, n, from.d);
    for (int s = 0; s < kSpans; ++s) {
      const uint8_t* numbers = from.codes + s * 8;
      uint32_t word = layout::load_u32(numbers + 4);
      scale_at(out, n, s) = static_cast<uint8_t>(2 * (word >> 28) + 1);
      for (int v = 0; v < 32; ++v) {
        uint32_t seven = word >> (v / 8 * 7) & 127u;
        uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
        uint64_t value = layout::kIQ2Grid[numbers[v / 8]] >> (v % 8 * 8) & 255u;
        int level = value == 8 ? 0 : value == 25 ? 1 : 2;
        put_nibble(out + kCodes + s * kNibbleBytes, n, v, level | static_cast<int>(signs >> (v % 8) & 1u) << 3);
      }
    }
  }
  static uint8_t number_of(uint64_t row) {
    for (int i = 0; i < 256; ++i) {
      if (layout::kIQ2Grid[i] == row) return static_cast<uint8_t>(i);
    }
    return 0;
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::IQ2XXS>(out);
    copy_half_back(group, n, to.d);
    for (int s = 0; s < kSpans; ++s) {
      uint8_t* numbers = to.codes + s * 8;
      uint32_t word = static_cast<uint32_t>(scale_at(group, n, s) / 2) << 28;
      for (int k = 0; k < 4; ++k) {
        uint64_t row = 0;
        for (int i = 0; i < 8; ++i) {
          int code = get_nibble(group + kCodes + s * kNibbleBytes, n, 8 * k + i);
          row |= static_cast<uint64_t>(kValues[code & 3]) << (8 * i);
          if (i < 7) word |= static_cast<uint32_t>(code >> 3) << (7 * k + i);
        }
        numbers[k] = number_of(row);
      }
      layout::store_u32(numbers + 4, word);
    }
  }
};

// ---- the entries every x86 row has for quantised weights, each compiled for its own instructions
// --------------------------------

inline void add_int8_entries(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  auto entry = [&](DType type) -> LinearKernel& { return fast[static_cast<size_t>(type)]; };
  entry(DType::q8_0) = Group32Linear<Q8_0>::kernel();
  entry(DType::q4_0) = Group32Linear<Q4_0>::kernel();
  entry(DType::q4_1) = Group32Linear<Q4_1>::kernel();
  entry(DType::q5_0) = Group32Linear<Q5_0>::kernel();
  entry(DType::q5_1) = Group32Linear<Q5_1>::kernel();
  entry(DType::iq4_nl) = Group32Linear<IQ4NL>::kernel();
  entry(DType::mxfp4) = Group32Linear<MXFP4>::kernel();
  entry(DType::q2_k) = Group256Linear<Q2K>::kernel();
  entry(DType::q3_k) = Group256Linear<Q3K>::kernel();
  entry(DType::q4_k) = Group256Linear<Q4K>::kernel();
  entry(DType::q5_k) = Group256Linear<Q5K>::kernel();
  entry(DType::q6_k) = Group256Linear<Q6K>::kernel();
  entry(DType::iq4_xs) = Group256Linear<IQ4XS>::kernel();
  entry(DType::iq2_xxs) = Group256Linear<IQ2XXS>::kernel();
}

}  // namespace
}  // namespace millrace::cpu

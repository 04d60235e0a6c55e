// The formats of group32.h: how each packs a group of 32 inputs for eight outputs, and how its integers are had back.
#pragma once

#include "backend/cpu/arm/packed32.h"
#include "backend/cpu/arm/planes.h"
#include "tensor/formats/layout.h"

namespace millrace::cpu {
namespace {

template <class Stored>
const Stored* as(const std::byte* bytes) {
  return reinterpret_cast<const Stored*>(bytes);
}
template <class Stored>
Stored* as(std::byte* bytes) {
  return reinterpret_cast<Stored*>(bytes);
}

constexpr int kRun = kMatrixProducts ? 8 : 4;  // inputs of an output that are neighbours in a vector

// Codes of four bits in the file: byte i holds value i low and value i + 16 high.
inline uint8_t file_nibble(const uint8_t* codes, int i) { return codes[i % 16] >> (i / 16 * 4) & 15; }
inline void put_file_nibble(uint8_t* codes, int i, uint8_t code) {
  uint8_t keep = i < 16 ? 0xf0 : 0x0f;
  codes[i % 16] = static_cast<uint8_t>((codes[i % 16] & keep) | code << (i / 16 * 4));
}

struct Q8_0 {  // [8 float16][4 steps][4 vectors as planes.h has them][16]
  static constexpr int64_t kBytes = 16 + 256, kFileBytes = sizeof(layout::Q8_0);
  static constexpr int64_t kWideValues = 16;
  static constexpr LoneRow kLoneRow = LoneRow::bytes;
  static constexpr bool kMins = false;
  static constexpr bool kShared = false;
  static constexpr bool kStarts = false;
  static constexpr float kAfter = 1;

  static void factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group, out); }
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    out[0] = load_s8(group + 16 + (2 * j * kPairs + pair) * 16);
    out[1] = load_s8(group + 16 + ((2 * j + 1) * kPairs + pair) * 16);
  }
  static int64_t place(int n, int i) {
    Place at(n, i);
    return 16 + (at.step * kPairs + at.pair) * 16 + at.byte;
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, kBytes);
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] == nullptr) continue;
      const auto& from = *as<layout::Q8_0>(rows[n]);
      copy_two_bytes(out, n, from.d);
      for (int i = 0; i < kGroup; i += kRun) std::memcpy(out + place(n, i), from.codes + i, kRun);
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q8_0>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    for (int i = 0; i < kGroup; i += kRun) std::memcpy(to.codes + i, group + place(n, i), kRun);
  }
};

// Formats of four bits: [8 float16][nibbles]. Stored is the file's group; Code turns its codes into ours and back.
template <class Stored>
struct Nibbles {
  static constexpr int64_t kBytes = 16 + kNibbleBytes, kFileBytes = sizeof(Stored);
  static constexpr int64_t kWideValues = -1;
  static constexpr LoneRow kLoneRow = LoneRow::plain;
  static constexpr bool kMins = false;
  static constexpr bool kShared = true;
  static constexpr bool kStarts = false;

  static void factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group, out); }
  static void pack_codes(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, kBytes);
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] == nullptr) continue;
      const auto& from = *as<Stored>(rows[n]);
      copy_two_bytes(out, n, from.d);
      for (int i = 0; i < kGroup; ++i) put_nibble(out + 16, n, i, file_nibble(from.codes, i));
    }
  }
  static void unpack_codes(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<Stored>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    for (int i = 0; i < kGroup; ++i) put_file_nibble(to.codes, i, get_nibble(group + 16, n, i));
  }
};

// A vector has some inputs of outputs 0 to 3 low and the same of outputs 4 to 7 high: a step of a pair of outputs and
// of the pair two after it, vectors [step][2 pairs], or four inputs of all, vectors [step][2]. High nibbles hold the
// code less 8 with its sign: at the top of a byte they are 16 times the value. Low ones hold the code itself: what is
// wanted where both are multiplied at once (group32_row.h, dot32_loop.h). With matrix products factors are in the order
// 0 4 1 5 2 6 3 7.
struct Q4_0 {
  static constexpr int64_t kBytes = 16 + kNibbleBytes, kFileBytes = sizeof(layout::Q4_0);
  static constexpr int64_t kWideValues = -1;
  static constexpr LoneRow kLoneRow = LoneRow::split;
  static constexpr bool kMins = false;
  static constexpr bool kShared = true;
  static constexpr bool kStarts = true;
  static constexpr float kAfter = 1.0f / 16;

  static void factors(const std::byte* group, float32x4_t (&out)[2]) {
    if constexpr (kMatrixProducts) {
      float32x4_t mixed[2];
      load_eight_f16(group, mixed);
      out[0] = vuzp1q_f32(mixed[0], mixed[1]);
      out[1] = vuzp2q_f32(mixed[0], mixed[1]);
    } else {
      load_eight_f16(group, out);
    }
  }
  static int8x16_t step(const std::byte* group, int pair, int k) {
    const bool low = kMatrixProducts ? pair < 2 : pair % 2 == 0;
    uint8x16_t both = load_u8(group + 16 + (2 * k + (kMatrixProducts ? pair % 2 : pair / 2)) * 16);
    return vreinterpretq_s8_u8(low ? veorq_u8(vshlq_n_u8(both, 4), vdupq_n_u8(0x80))
                                   : vandq_u8(both, vdupq_n_u8(0xf0)));
  }
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    out[0] = step(group, pair, 2 * j);
    out[1] = step(group, pair, 2 * j + 1);
  }

  static int factor_place(int n) { return kMatrixProducts ? n % 4 * 2 + n / 4 : n; }
  static int64_t byte_place(int n, int i) {
    return kMatrixProducts ? 16 + (i / 8 * 2 + n / 2 % 2) * 16 + n % 2 * 8 + i % 8
                           : 16 + i / 4 * 16 + n % 4 * 4 + i % 4;
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, 16);
    // Codes of inputs [0, 16) low and [16, 32) high, as in the file; rows that do not exist are of zeros.
    auto codes = [&](int n) {
      return rows[n] != nullptr ? vld1q_u8(as<layout::Q4_0>(rows[n])->codes) : vdupq_n_u8(0x88);
    };
    for (int n = 0; n < kPanel / 2; ++n) {
      uint8x16_t low = codes(n), high = veorq_u8(codes(n + 4), vdupq_n_u8(0x88));
      uint8_t both[kGroup];
      vst1q_u8(both, vsliq_n_u8(low, high, 4));
      vst1q_u8(both + 16, vsriq_n_u8(high, low, 4));
      for (int i = 0; i < kGroup; i += kRun) std::memcpy(out + byte_place(n, i), both + i, kRun);
    }
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] != nullptr) copy_two_bytes(out, factor_place(n), as<layout::Q4_0>(rows[n])->d);
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q4_0>(out);
    std::memcpy(to.d, group + 2 * factor_place(n), 2);
    for (int i = 0; i < kGroup; ++i) {
      uint8_t both = byte_at(group, byte_place(n, i));
      put_file_nibble(to.codes, i, static_cast<uint8_t>(n < 4 ? both & 15 : both >> 4 ^ 8));
    }
  }
};

struct IQ4NL : Nibbles<layout::IQ4NL> {
  static constexpr float kAfter = 1;
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    int8x16_t table = vld1q_s8(layout::kIQ4Values);
    uint8x16_t both = nibbles(group + 16, pair, j);
    out[0] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) { pack_codes(rows, out); }
  static void unpack(const std::byte* group, int n, std::byte* out) { unpack_codes(group, n, out); }
};

struct Q4_1 {  // [8 float16][8 float16 minimums][nibbles]
  static constexpr int64_t kBytes = 32 + kNibbleBytes, kFileBytes = sizeof(layout::Q4_1);
  static constexpr int64_t kWideValues = -1;
  static constexpr LoneRow kLoneRow = LoneRow::plain;
  static constexpr bool kMins = true;
  static constexpr bool kShared = false;
  static constexpr bool kStarts = false;
  static constexpr float kAfter = 1;

  static void factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group, out); }
  static void minimums(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group + 16, out); }
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    uint8x16_t both = nibbles(group + 32, pair, j);
    out[0] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, kBytes);
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] == nullptr) continue;
      const auto& from = *as<layout::Q4_1>(rows[n]);
      copy_two_bytes(out, n, from.d);
      copy_two_bytes(out + 16, n, from.m);
      for (int i = 0; i < kGroup; ++i) put_nibble(out + 32, n, i, file_nibble(from.codes, i));
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::Q4_1>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    std::memcpy(to.m, group + 16 + 2 * n, 2);
    for (int i = 0; i < kGroup; ++i) put_file_nibble(to.codes, i, get_nibble(group + 32, n, i));
  }
};

// Five bits. Q5_0's fifth bit is kept inverted: where it is set the value is negative and takes the sign's ones.
template <class Stored, bool signed_code>
struct FiveBits {  // [8 float16]([8 float16 minimums])[bits][nibbles]
  static constexpr bool kMins = !signed_code;
  static constexpr bool kShared = false;
  static constexpr bool kStarts = false;
  static constexpr int64_t kBits = kMins ? 32 : 16, kNibbles = kBits + kOneBitBytes;
  static constexpr int64_t kBytes = kNibbles + kNibbleBytes, kFileBytes = sizeof(Stored);
  static constexpr int64_t kWideValues = -1;
  static constexpr LoneRow kLoneRow = LoneRow::plain;
  static constexpr float kAfter = 1;

  static void factors(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group, out); }
  static void minimums(const std::byte* group, float32x4_t (&out)[2]) { load_eight_f16(group + 16, out); }
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    uint8x16_t both = nibbles(group + kNibbles, pair, j), upper = vdupq_n_u8(signed_code ? 0xf0 : 0x10);
    if constexpr (kMatrixProducts) {
      uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
      out[0] = vreinterpretq_s8_u8(vorrq_u8(low, vandq_u8(bit_mask(group + kBits, pair, 2 * j), upper)));
      out[1] = vreinterpretq_s8_u8(vorrq_u8(high, vandq_u8(bit_mask(group + kBits, pair, 2 * j + 1), upper)));
    } else {  // a shift that inserts takes the nibble out and puts the fifth bit, or the sign's ones, above it
      uint8x16_t first = bit_mask(group + kBits, pair, 2 * j), second = bit_mask(group + kBits, pair, 2 * j + 1);
      if constexpr (!signed_code) first = vandq_u8(first, vdupq_n_u8(1)), second = vandq_u8(second, upper);
      out[0] = vreinterpretq_s8_u8(vsliq_n_u8(both, first, 4));
      out[1] = vreinterpretq_s8_u8(vsriq_n_u8(second, both, 4));
    }
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, kBytes);
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] == nullptr) continue;
      const auto& from = *as<Stored>(rows[n]);
      copy_two_bytes(out, n, from.d);
      if constexpr (kMins) copy_two_bytes(out + 16, n, from.m);
      for (int i = 0; i < kGroup; ++i) {
        bool fifth = (from.high[i / 8] >> i % 8 & 1) != 0;
        put_bit(out + kBits, n, i, fifth != signed_code);
        put_nibble(out + kNibbles, n, i, file_nibble(from.codes, i));
      }
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    std::memset(out, 0, kFileBytes);
    auto& to = *as<Stored>(out);
    std::memcpy(to.d, group + 2 * n, 2);
    if constexpr (kMins) std::memcpy(to.m, group + 16 + 2 * n, 2);
    for (int i = 0; i < kGroup; ++i) {
      bool fifth = get_bit(group + kBits, n, i) != signed_code;
      to.high[i / 8] = static_cast<uint8_t>(to.high[i / 8] | (fifth ? 1 : 0) << i % 8);
      put_file_nibble(to.codes, i, get_nibble(group + kNibbles, n, i));
    }
  }
};
using Q5_0 = FiveBits<layout::Q5_0, true>;
using Q5_1 = FiveBits<layout::Q5_1, false>;

struct MXFP4 {  // [8 exponents][nibbles]
  static constexpr int64_t kBytes = 8 + kNibbleBytes, kFileBytes = sizeof(layout::MXFP4);
  static constexpr int64_t kWideValues = -1;
  static constexpr LoneRow kLoneRow = LoneRow::plain;
  static constexpr bool kMins = false;
  static constexpr bool kShared = true;
  static constexpr bool kStarts = false;
  static constexpr float kAfter = 1;

  // 2^(exponent - 128): the exponent field of a float32 less one. What is below the normal numbers counts as zero.
  static void factors(const std::byte* group, float32x4_t (&out)[2]) {
    uint8x8_t exponents = vqsub_u8(vld1_u8(as<uint8_t>(group)), vdup_n_u8(1));
    uint16x8_t wide = vmovl_u8(exponents);
    out[0] = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 23));
    out[1] = vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vget_high_u16(wide)), 23));
  }
  static void values(const std::byte* group, int pair, int j, int8x16_t (&out)[2]) {
    int8x16_t table = vld1q_s8(layout::kFP4Values);
    uint8x16_t both = nibbles(group + 8, pair, j);
    out[0] = vqtbl1q_s8(table, vandq_u8(both, vdupq_n_u8(15)));
    out[1] = vqtbl1q_s8(table, vshrq_n_u8(both, 4));
  }
  static void pack(const std::byte* const (&rows)[kPanel], std::byte* out) {
    std::memset(out, 0, kBytes);
    for (int n = 0; n < kPanel; ++n) {
      if (rows[n] == nullptr) continue;
      const auto& from = *as<layout::MXFP4>(rows[n]);
      byte_at(out, n) = from.exponent;
      for (int i = 0; i < kGroup; ++i) put_nibble(out + 8, n, i, file_nibble(from.codes, i));
    }
  }
  static void unpack(const std::byte* group, int n, std::byte* out) {
    auto& to = *as<layout::MXFP4>(out);
    to.exponent = byte_at(group, n);
    for (int i = 0; i < kGroup; ++i) put_file_nibble(to.codes, i, get_nibble(group + 8, n, i));
  }
};

}  // namespace
}  // namespace millrace::cpu

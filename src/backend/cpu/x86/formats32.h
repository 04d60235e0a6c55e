// The formats of group32.h: how each packs a group of 32 inputs of one output, and how its codes are had back.
#pragma once

#include "backend/cpu/x86/group32.h"
#include "tensor/formats/layout.h"

namespace millrace::cpu {
namespace {

inline void copy_half(std::byte* to, int n, const uint8_t* from) { std::memcpy(to + 2 * n, from, 2); }
inline void copy_half_back(const std::byte* from, int n, uint8_t* to) { std::memcpy(to, from + 2 * n, 2); }

struct Q8_0 {  // bytes with their sign's bit turned: the value plus 128
  static constexpr int64_t kFactorBytes = 32, kCodeBytes = kSpanCodes, kFileBytes = sizeof(layout::Q8_0);
  static constexpr bool kMins = false, kWide = true;
  static constexpr int kOffset = 128;

  static Floats factors(const std::byte* scales) { return load_f16(scales); }
  static Floats minimums(const std::byte*) { return splat(0); }
  static Bytes values(const std::byte* codes, int step) { return load_bytes(codes + step * kStepBytes); }
  static void pack(const std::byte* in, int n, std::byte* scales, std::byte* codes) {
    const auto& from = *as<layout::Q8_0>(in);
    copy_half(scales, n, from.d);
    for (int i = 0; i < kGroup; ++i)
      byte_at(codes, i / 4 * kStepBytes + place_in_step(n, i)) = static_cast<uint8_t>(from.codes[i] ^ 128);
  }
  static void unpack(const std::byte* scales, const std::byte* codes, int n, std::byte* out) {
    auto& to = *as<layout::Q8_0>(out);
    copy_half_back(scales, n, to.d);
    for (int i = 0; i < kGroup; ++i)
      to.codes[i] = static_cast<int8_t>(byte_at(codes, i / 4 * kStepBytes + place_in_step(n, i)) ^ 128);
  }
};

// Formats of four bits without minimum. Stored is the file's group.
template <class Stored>
struct Nibbles {
  static constexpr int64_t kFactorBytes = 32, kCodeBytes = kNibbleBytes, kFileBytes = sizeof(Stored);
  static constexpr bool kMins = false;

  static Floats factors(const std::byte* scales) { return load_f16(scales); }
  static Floats minimums(const std::byte*) { return splat(0); }
  static void pack(const std::byte* in, int n, std::byte* scales, std::byte* codes) {
    const auto& from = *as<Stored>(in);
    copy_half(scales, n, from.d);
    for (int i = 0; i < kGroup; ++i) put_nibble(codes, n, i, file_nibble(from.codes, i));
  }
  static void unpack(const std::byte* scales, const std::byte* codes, int n, std::byte* out) {
    auto& to = *as<Stored>(out);
    copy_half_back(scales, n, to.d);
    for (int i = 0; i < kGroup; ++i) put_file_nibble(to.codes, i, get_nibble(codes, n, i));
  }
};

struct Q4_0 : Nibbles<layout::Q4_0> {
  static constexpr bool kWide = false;
  static constexpr int kOffset = 8;
  static Bytes values(const std::byte* codes, int step) { return nibbles(codes, step); }
};

struct IQ4NL : Nibbles<layout::IQ4NL> {
  static constexpr bool kWide = true;
  static constexpr int kOffset = 128;
  static Bytes values(const std::byte* codes, int step) {
    return look_up(shifted_table(layout::kIQ4Values, kOffset), nibbles(codes, step));
  }
};

struct MXFP4 {
  static constexpr int64_t kFactorBytes = 16, kCodeBytes = kNibbleBytes, kFileBytes = sizeof(layout::MXFP4);
  static constexpr bool kMins = false, kWide = false;
  static constexpr int kOffset = 16;

  // 2^(exponent - 128): the exponent field of a float32 less one. What is below the normal numbers counts as zero.
  static Floats factors(const std::byte* scales) {
    __m128i exponents = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    alignas(16) std::byte less[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(less), _mm_subs_epu8(exponents, _mm_set1_epi8(1)));
    return as_floats(shift_left(load_u8(less), 23));
  }
  static Floats minimums(const std::byte*) { return splat(0); }
  static Bytes values(const std::byte* codes, int step) {
    return look_up(shifted_table(layout::kFP4Values, kOffset), nibbles(codes, step));
  }
  static void pack(const std::byte* in, int n, std::byte* scales, std::byte* codes) {
    const auto& from = *as<layout::MXFP4>(in);
    byte_at(scales, n) = from.exponent;
    for (int i = 0; i < kGroup; ++i) put_nibble(codes, n, i, file_nibble(from.codes, i));
  }
  static void unpack(const std::byte* scales, const std::byte* codes, int n, std::byte* out) {
    auto& to = *as<layout::MXFP4>(out);
    to.exponent = byte_at(scales, n);
    for (int i = 0; i < kGroup; ++i) put_file_nibble(to.codes, i, get_nibble(codes, n, i));
  }
};

// Four or five bits, with or without minimum: scales [16 float16]([16 float16 minimums]), codes ([bits])[nibbles].
template <class Stored, bool fifth, bool mins>
struct OldBits {
  static constexpr int64_t kFactorBytes = mins ? 64 : 32, kNibbles = fifth ? kOneBitBytes : 0;
  static constexpr int64_t kCodeBytes = kNibbles + kNibbleBytes, kFileBytes = sizeof(Stored);
  static constexpr bool kMins = mins, kWide = false;
  static constexpr int kOffset = mins ? 0 : 16;

  static Floats factors(const std::byte* scales) { return load_f16(scales); }
  static Floats minimums(const std::byte* scales) { return load_f16(scales + 32); }
  static Bytes values(const std::byte* codes, int step) {
    Bytes low = nibbles(codes + kNibbles, step);
    if constexpr (fifth) return low | fifth_bits(codes, step);
    return low;
  }
  static void pack(const std::byte* in, int n, std::byte* scales, std::byte* codes) {
    const auto& from = *as<Stored>(in);
    copy_half(scales, n, from.d);
    if constexpr (mins) copy_half(scales + 32, n, from.m);
    for (int i = 0; i < kGroup; ++i) {
      put_nibble(codes + kNibbles, n, i, file_nibble(from.codes, i));
      if constexpr (fifth) put_bit(codes, n, i, (from.high[i / 8] >> i % 8 & 1) != 0);
    }
  }
  static void unpack(const std::byte* scales, const std::byte* codes, int n, std::byte* out) {
    auto& to = *as<Stored>(out);
    copy_half_back(scales, n, to.d);
    if constexpr (mins) copy_half_back(scales + 32, n, to.m);
    for (int i = 0; i < kGroup; ++i) {
      put_file_nibble(to.codes, i, get_nibble(codes + kNibbles, n, i));
      if constexpr (fifth)
        to.high[i / 8] = static_cast<uint8_t>(to.high[i / 8] | (get_bit(codes, n, i) ? 1 : 0) << i % 8);
    }
  }
};
using Q4_1 = OldBits<layout::Q4_1, false, true>;
using Q5_0 = OldBits<layout::Q5_0, true, false>;
using Q5_1 = OldBits<layout::Q5_1, true, true>;

}  // namespace
}  // namespace millrace::cpu

// How codes of four and five bits lie in a packed panel: a plane of nibbles, and for wider codes a plane of one more
// bit. A panel's group of 32 inputs has four steps of eight inputs, four vectors of codes each; a byte of a vector is
// one code. Which codes a vector has is what the row's instructions want: a pair of outputs with eight inputs each
// (SMMLA), or four outputs with four inputs each (SDOT by element): first the step's four inputs 0 to 3, then 4 to 7,
// of outputs 0 to 3 and of 4 to 7. Nibbles: one vector holds step 2j low and step 2j+1 high, vectors in the order
// [j][4].
#pragma once

#include "backend/cpu/arm/int8_mma.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kNibbleBytes = 128;  // of a panel's group
constexpr int64_t kOneBitBytes = 32;

inline uint8_t& byte_at(std::byte* plane, int64_t index) { return reinterpret_cast<uint8_t*>(plane)[index]; }
inline uint8_t byte_at(const std::byte* plane, int64_t index) { return reinterpret_cast<const uint8_t*>(plane)[index]; }

// Where input i of output n is: its step, which of the step's vectors, and its byte there.
struct Place {
  Place(int n, int i)
      : step(i / 8),
        pair(kMatrixProducts ? n / 2 : i % 8 / 4 * 2 + n / 4),
        byte(kMatrixProducts ? n % 2 * 8 + i % 8 : n % 4 * 4 + i % 4) {}
  int step, pair, byte;
};

inline void put_nibble(std::byte* plane, int n, int i, uint8_t code) {
  Place at(n, i);
  uint8_t& both = byte_at(plane, (at.step / 2 * kPairs + at.pair) * 16 + at.byte);
  int shift = at.step % 2 * 4;
  both = static_cast<uint8_t>((both & ~(15 << shift)) | (code & 15) << shift);
}
inline uint8_t get_nibble(const std::byte* plane, int n, int i) {
  Place at(n, i);
  return byte_at(plane, (at.step / 2 * kPairs + at.pair) * 16 + at.byte) >> (at.step % 2 * 4) & 15;
}
inline uint8x16_t nibbles(const std::byte* plane, int pair, int j) { return load_u8(plane + (j * kPairs + pair) * 16); }

// One more bit: vectors [pair / 2], bit (pair % 2) * 4 + step.
inline void put_bit(std::byte* plane, int n, int i, bool set) {
  Place at(n, i);
  uint8_t& eight = byte_at(plane, at.pair / 2 * 16 + at.byte);
  int shift = at.pair % 2 * 4 + at.step;
  eight = static_cast<uint8_t>((eight & ~(1 << shift)) | (set ? 1 : 0) << shift);
}
inline bool get_bit(const std::byte* plane, int n, int i) {
  Place at(n, i);
  return (byte_at(plane, at.pair / 2 * 16 + at.byte) >> (at.pair % 2 * 4 + at.step) & 1) != 0;
}
// All ones where the bit is set.
inline uint8x16_t bit_mask(const std::byte* plane, int pair, int step) {
  return vtstq_u8(load_u8(plane + pair / 2 * 16), vdupq_n_u8(static_cast<uint8_t>(1 << (pair % 2 * 4 + step))));
}

// Codes of five bits where SDOT multiplies: eight vectors of two steps lie in five, vectors [two steps][5]. A byte has
// a code of vectors 0 to 4 low, and three bits of those of 5 to 7 above it: 1.75 instructions take a vector out, where
// a nibble and a bit of a plane take three.
constexpr int64_t kFivesBytes = 160;  // of a panel's group

// Vector v of two steps, `from` where their five begin.
[[gnu::always_inline]] inline uint8x16_t five_bits(const std::byte* from, int v) {
  const uint8x16_t code = vdupq_n_u8(31);
  if (v < 5) return vandq_u8(load_u8(from + v * 16), code);
  if (v < 7)
    return vandq_u8(vsriq_n_u8(vshrq_n_u8(load_u8(from + (v - 2) * 16), 2), load_u8(from + (v - 5) * 16), 5), code);
  return vsriq_n_u8(vsriq_n_u8(vshrq_n_u8(load_u8(from + 64), 3), load_u8(from + 48), 4), load_u8(from + 32), 5);
}
// The same of one code, on a cleared plane.
inline void put_five_bits(std::byte* plane, int n, int i, uint8_t code) {
  Place at(n, i);
  int v = at.step % 2 * 4 + at.pair;
  auto add = [&](int vector, int bits) {
    byte_at(plane, (at.step / 2 * 5 + vector) * 16 + at.byte) |= static_cast<uint8_t>(bits);
  };
  if (v < 5) return add(v, code);
  add(v - 5, (code & 7) << 5);
  if (v < 7) return add(v - 2, code >> 3 << 5);
  add(3, (code >> 3 & 1) << 7);
  add(4, code >> 4 << 7);
}
inline uint8_t get_five_bits(const std::byte* plane, int n, int i) {
  Place at(n, i);
  uint8_t codes[16];
  vst1q_u8(codes, five_bits(plane + at.step / 2 * 80, at.step % 2 * 4 + at.pair));
  return codes[at.byte];
}

inline void copy_two_bytes(std::byte* to, int n, const uint8_t* from) { std::memcpy(to + 2 * n, from, 2); }

}  // namespace
}  // namespace millrace::cpu

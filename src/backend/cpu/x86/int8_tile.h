// What the products of quantised weights share. Outputs are packed in panels of sixteen, a lane each; a step is four
// inputs, so a step of a panel is 64 bytes, [output][input]: what a dot product takes, and a row of a tile of AMX.
// Weights are unsigned codes: the value plus an offset of the format, which is taken off again by way of the sum of the
// row's integers. Integer sums are exact, so neither the instruction nor the order of steps can show; where sums turn
// into float32, each output has one accumulator that takes groups in ascending order.
//
// Rows are prepared in tiles of sixteen; the last tile has room for as many rows as it has, rounded up to 1, 2, 4, 8.
#pragma once

#include <bit>

#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int kPanel = kLanes;
constexpr int64_t kStepBytes = 64;
#ifdef __AVX512F__
constexpr int kMostRows = 8;  // at once
#else
constexpr int kMostRows = 4;
#endif

#ifdef __AMX_INT8__
constexpr int kPartRows = 256;  // tiles are quick enough that reading weights again would show
#else
constexpr int kPartRows = 64;
#endif
constexpr int64_t kManyPanels = 4;  // whose sums are under way together

inline int64_t tile_room(int64_t rows) {
  return rows >= kTileRows ? kTileRows : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
}

// Quantises `count` values (a multiple of 16) to int8 by their largest; returns the factor that undoes it.
inline float quantise(const float* in, int64_t count, int8_t* out) {
  Floats most = splat(0);
  for (int64_t i = 0; i < count; i += kLanes) most = larger(magnitude(load(in + i)), most);
  float largest = largest_lane(most);
  Floats inverse = splat(largest > 0 ? 127.0f / largest : 0.0f);
  for (int64_t i = 0; i < count; i += kLanes) store_int8(out + i, nearest(load(in + i) * inverse));
  return largest / 127.0f;
}

inline int32_t sum_of(const int8_t* values, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}

// Writes one row's sixteen sums of a panel to the outputs that exist.
inline void write_row(const LinearPart& part, int64_t row, int64_t output, Floats sums) {
  const float* bias = part.weight->bias;
  int64_t outputs = least(kPanel, part.end - output);
  if (bias != nullptr) sums = sums + load_some(bias + output, outputs);
  store_some(part.out.row(row) + output, sums, outputs);
}

// Writes sums [tiles][kManyPanels][16 rows][16], row by row.
inline void write_tiles(const LinearPart& part, int64_t output, int64_t panels, const float* sums) {
  for (int64_t r = 0; r < part.rows; ++r) {
    const float* from = sums + (r / kTileRows * kManyPanels * kTileRows + r % kTileRows) * kPanel;
    for (int64_t p = 0; p < panels; ++p)
      write_row(part, part.first_row + r, output + p * kPanel, load(from + p * kTileRows * kPanel));
  }
}

// ---- planes of codes: a panel's span of 32 inputs is eight steps
// -----------------------------------------------------------------

constexpr int kSteps = 8;
constexpr int64_t kSpanCodes = kSteps * kStepBytes;  // one byte a code
constexpr int64_t kNibbleBytes = 256, kOneBitBytes = 64, kTwoBitBytes = 128;

inline uint8_t& byte_at(std::byte* plane, int64_t index) { return reinterpret_cast<uint8_t*>(plane)[index]; }
inline uint8_t byte_at(const std::byte* plane, int64_t index) { return reinterpret_cast<const uint8_t*>(plane)[index]; }

// Nibbles: step s lies in vector s % 4, in the low halves if s < 4.
inline int64_t place_in_step(int n, int i) { return n * 4 + i % 4; }
inline void put_nibble(std::byte* plane, int n, int i, int code) {
  int step = i / 4;
  uint8_t& both = byte_at(plane, step % 4 * kStepBytes + place_in_step(n, i));
  both = static_cast<uint8_t>(both | (code & 15) << (step / 4 * 4));
}
inline uint8_t get_nibble(const std::byte* plane, int n, int i) {
  int step = i / 4;
  return byte_at(plane, step % 4 * kStepBytes + place_in_step(n, i)) >> (step / 4 * 4) & 15;
}
inline Bytes nibbles(const std::byte* plane, int step) {
  Bytes both = load_bytes(plane + step % 4 * kStepBytes);
  return (step < 4 ? both : down(both, 4)) & splat_byte(15);
}

// One more bit: bit s of a byte is step s. Given in place of bit 4.
inline void put_bit(std::byte* plane, int n, int i, bool set) {
  uint8_t& eight = byte_at(plane, place_in_step(n, i));
  eight = static_cast<uint8_t>(eight | (set ? 1 : 0) << i / 4);
}
inline bool get_bit(const std::byte* plane, int n, int i) {
  return (byte_at(plane, place_in_step(n, i)) >> i / 4 & 1) != 0;
}
inline Bytes fifth_bits(const std::byte* plane, int step) {
  Bytes eight = load_bytes(plane);
  return (step <= 4 ? up(eight, 4 - step) : down(eight, step - 4)) & splat_byte(16);
}

// Two more bits: step s lies in vector s / 4 at bit 2 (s % 4). Given in place of bits 4 and 5.
inline void put_two(std::byte* plane, int n, int i, int bits) {
  int step = i / 4;
  uint8_t& four = byte_at(plane, step / 4 * kStepBytes + place_in_step(n, i));
  four = static_cast<uint8_t>(four | (bits & 3) << (step % 4 * 2));
}
inline uint8_t get_two(const std::byte* plane, int n, int i) {
  int step = i / 4;
  return byte_at(plane, step / 4 * kStepBytes + place_in_step(n, i)) >> (step % 4 * 2) & 3;
}
inline Bytes top_two(const std::byte* plane, int step) {
  Bytes four = load_bytes(plane + step / 4 * kStepBytes);
  int shift = step % 4 * 2;
  return (shift <= 4 ? up(four, 4 - shift) : down(four, shift - 4)) & splat_byte(48);
}

// Codes of four bits in the file: byte i holds value i low and value i + 16 high.
inline uint8_t file_nibble(const uint8_t* codes, int i) { return codes[i % 16] >> (i / 16 * 4) & 15; }
inline void put_file_nibble(uint8_t* codes, int i, int code) {
  codes[i % 16] = static_cast<uint8_t>(codes[i % 16] | code << (i / 16 * 4));
}

template <class Stored>
const Stored* as(const std::byte* bytes) {
  return reinterpret_cast<const Stored*>(bytes);
}
template <class Stored>
Stored* as(std::byte* bytes) {
  return reinterpret_cast<Stored*>(bytes);
}

// Tables of sixteen signed values, as unsigned codes.
inline __m128i shifted_table(const int8_t* values, int offset) {
  __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  return _mm_add_epi8(table, _mm_set1_epi8(static_cast<char>(offset)));
}

}  // namespace
}  // namespace millrace::cpu

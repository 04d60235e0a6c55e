// The bytes of one group of each quantised format, exactly as they lie in a file. Every field is made of bytes, so a
// group can be read at any address; numbers of two and four bytes are little-endian. In the formulas d and dmin are
// float16 numbers, q an unsigned code as stored, x the value it stands for. Plain data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace millrace::layout {

// ---- groups of 32
// ------------------------------------------------------------------------------------------------------- Codes of four
// bits: byte i holds value i in its low half and value i + 16 in its high half.

struct Q4_0 {  // x = d * (q - 8)
  uint8_t d[2];
  uint8_t codes[16];
};

struct Q4_1 {  // x = d * q + m
  uint8_t d[2], m[2];
  uint8_t codes[16];
};

struct Q5_0 {  // x = d * (q - 16); bit i of `high` is bit 4 of value i
  uint8_t d[2];
  uint8_t high[4];
  uint8_t codes[16];
};

struct Q5_1 {  // x = d * q + m
  uint8_t d[2], m[2];
  uint8_t high[4];
  uint8_t codes[16];
};

struct Q8_0 {  // x = d * q, q signed
  uint8_t d[2];
  int8_t codes[32];
};

struct IQ4NL {  // x = d * kIQ4Values[q]
  uint8_t d[2];
  uint8_t codes[16];
};

struct MXFP4 {  // x = 2^(exponent - 128) * kFP4Values[q]
  uint8_t exponent;
  uint8_t codes[16];
};

struct NF4 {  // x = d * kNF4Values[q]; BNB_FP4 likewise with kBnbFP4Values
  uint8_t d[2];
  uint8_t codes[16];
};

struct Q8Zero {  // x = d * (q - zero), q and zero unsigned
  uint8_t d[2];
  uint8_t zero[2];
  uint8_t codes[32];
};

struct FP8Float {  // x = d * E4M3, and no minus zero
  uint8_t d[4];    // float32
  uint8_t codes[32];
};

struct FP8Wide {  // the same with one factor for 128
  uint8_t d[4];
  uint8_t codes[128];
};

struct Int8Wide {  // x = d * q, q signed
  uint8_t d[4];    // float32
  int8_t codes[128];
};

struct FP4Half {  // 2 subgroups of 16: x = d * kFP4Values[q]
  uint8_t d[2][2];
  uint8_t codes[16];
};

// ---- groups of 256
// ------------------------------------------------------------------------------------------------------

struct Q2K {  // 16 subgroups of 16: x = d * (scale & 15) * q - dmin * (scale >> 4)
  uint8_t scales[16];
  uint8_t codes[64];  // two bits: byte 32 h + i holds values 128 h + i + {0, 32, 64, 96}, lowest bits first
  uint8_t d[2], dmin[2];
};

struct Q3K {           // 16 subgroups of 16: x = d * (scale - 32) * (q - 4)
  uint8_t high[32];    // bit 2 of the codes: bit k of byte i belongs to value 32 k + i
  uint8_t codes[64];   // bits 0 and 1, placed as in Q2K
  uint8_t scales[12];  // six bits each: low four of scale i in half i / 8 of byte i % 8, upper two in bits 2 (i / 4) of
                       // byte 8 + i % 4
  uint8_t d[2];
};

struct Q4K {  // 8 subgroups of 32: x = d * scale * q - dmin * minimum
  uint8_t d[2], dmin[2];
  uint8_t scales[12];  // see unpack_scales
  uint8_t codes[128];  // byte 32 h + i holds value 64 h + i low and 64 h + 32 + i high
};

struct Q5K {  // as Q4K with a fifth bit: bit k of high[i] belongs to value 32 k + i
  uint8_t d[2], dmin[2];
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t codes[128];
};

struct Q6K {           // 16 subgroups of 16: x = d * scale * (q - 32)
  uint8_t codes[128];  // low four bits: byte 64 h + i holds value 128 h + i low and 128 h + 64 + i high, i < 64
  uint8_t high[64];    // upper two: byte 32 h + i holds values 128 h + i + {0, 32, 64, 96}, lowest bits first
  int8_t scales[16];
  uint8_t d[2];
};

struct IQ4XS {  // 8 subgroups of 32: x = d * (scale - 32) * kIQ4Values[q]
  uint8_t d[2];
  uint8_t scales_high[2];  // upper two bits of scale i at bit 2 i
  uint8_t scales_low[4];   // low four bits of scale i in half i % 2 of byte i / 2
  uint8_t codes[128];      // per subgroup as in IQ4NL
};

// 8 subgroups of 32. Each has four bytes, each the number of an eight-value row of kIQ2Grid, then a 32-bit word: four
// times seven sign bits (the eighth makes their number even), and on top a scale of four bits. x = d * (scale + 0.5) /
// 4 * +-row.
struct IQ2XXS {
  uint8_t d[2];
  uint8_t codes[64];
};

// Formats whose values are rows of a grid (formats/grids.h) with signs, in subgroups of 16 or 32 with a scale each.

struct IQ2XS {  // 16 subgroups of 16: x = d * (scale + 0.5) / 4 * +-row
  uint8_t d[2];
  uint8_t words[64];  // 32 of 16 bits: nine for a row of eight values, seven signs (the eighth makes their number even)
  uint8_t scales[8];  // four bits each, the first low
};

struct IQ2S {  // as IQ2XS with eight signs and rows of ten bits
  uint8_t d[2];
  uint8_t rows[32];  // low eight bits of the row's number
  uint8_t signs[32];
  uint8_t rows_high[8];  // upper two bits of row k at bit 2 (k % 4) of byte k / 4
  uint8_t scales[8];
};

struct IQ3XXS {  // 8 subgroups of 32: x = d * (scale + 0.5) / 2 * +-row
  uint8_t d[2];
  uint8_t rows[64];   // of four values each
  uint8_t words[32];  // per subgroup, as in IQ2XXS: four times seven signs, and a scale of four bits
};

struct IQ3S {  // 8 subgroups of 32: x = d * (2 scale + 1) * +-row
  uint8_t d[2];
  uint8_t rows[64];      // of four values each: low eight bits
  uint8_t rows_high[8];  // bit k % 8 of byte k / 8 is bit 8 of row k
  uint8_t signs[32];
  uint8_t scales[4];  // four bits each, the first low
};

struct IQ1S {  // 8 subgroups of 32: x = d * (2 scale + 1) * (row +- 1/8)
  uint8_t d[2];
  uint8_t rows[32];   // of eight values each: low eight bits
  uint8_t words[16];  // per subgroup: four times bits 8 to 10 of a row, a scale of three bits, and the sign of the 1/8
};

struct IQ1M {  // 16 subgroups of 16: x = d * (2 scale + 1) * (row +- 1/8)
  uint8_t rows[32];
  uint8_t rows_high[16];  // four bits a row: bits 8 to 10, and the sign of the 1/8
  uint8_t scales[8];      // four words of 16 bits: four scales of three bits, and on top a quarter of d
};

struct TQ1 {          // x = d * (digit - 1), digits of base three
  uint8_t fives[48];  // five digits a byte, the first highest, as fractions of 256: bytes 0-31 and 32-47 apart
  uint8_t fours[4];   // four digits a byte
  uint8_t d[2];
};

struct TQ2 {  // x = d * (q - 1), two bits placed as in Q2K
  uint8_t codes[64];
  uint8_t d[2];
};

// ---- others

struct Q1_0 {  // 128 values: x = +-d, bit i % 8 of byte i / 8
  uint8_t d[2];
  uint8_t bits[16];
};

struct Q2_0 {  // 64 values: x = d * (q - 1), four codes a byte, lowest bits first
  uint8_t d[2];
  uint8_t codes[16];
};

struct NVFP4 {        // 4 subgroups of 16: x = scale / 2 * kFP4Values[q]
  uint8_t scales[4];  // E4M3 without a sign; 127 counts as zero
  uint8_t codes[32];  // byte 8 s + i holds values 16 s + i low and 16 s + 8 + i high
};

static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22 && sizeof(Q5_1) == 24 &&
              sizeof(Q8_0) == 34);
static_assert(sizeof(Q2K) == 84 && sizeof(Q3K) == 110 && sizeof(Q4K) == 144 && sizeof(Q5K) == 176 &&
              sizeof(Q6K) == 210);
static_assert(sizeof(IQ4NL) == 18 && sizeof(IQ4XS) == 136 && sizeof(IQ2XXS) == 66 && sizeof(MXFP4) == 17);
static_assert(sizeof(IQ2XS) == 74 && sizeof(IQ2S) == 82 && sizeof(IQ3XXS) == 98 && sizeof(IQ3S) == 110 &&
              sizeof(IQ1S) == 50 && sizeof(IQ1M) == 56 && sizeof(TQ1) == 54 && sizeof(TQ2) == 66);
static_assert(sizeof(NF4) == 18 && sizeof(FP4Half) == 20 && sizeof(FP8Float) == 36 && sizeof(FP8Wide) == 132);
static_assert(sizeof(Q1_0) == 18 && sizeof(Q2_0) == 18 && sizeof(NVFP4) == 36);

// ---- what the codes of the table formats stand for
// ----------------------------------------------------------------------

inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kFP4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // twice E2M1
extern const float kNF4Values[16], kBnbFP4Values[16];  // as bitsandbytes has them; fp4.cpp
extern const uint64_t kIQ2Grid[256];                   // eight bytes each, the first value lowest; iq2_xxs.cpp

// ---- reading and writing pieces
// -----------------------------------------------------------------------------------------

inline uint16_t load_u16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }
inline uint32_t load_u32(const uint8_t* bytes) { return load_u16(bytes) | uint32_t{load_u16(bytes + 2)} << 16; }
inline float load_f16(const uint8_t* bytes) { return f16_to_f32(load_u16(bytes)); }

inline void store_u16(uint8_t* bytes, uint16_t value) {
  bytes[0] = static_cast<uint8_t>(value);
  bytes[1] = static_cast<uint8_t>(value >> 8);
}
inline void store_u32(uint8_t* bytes, uint32_t value) {
  store_u16(bytes, static_cast<uint16_t>(value));
  store_u16(bytes + 2, static_cast<uint16_t>(value >> 16));
}

// Q4K and Q5K: eight scales and eight minima of six bits in twelve bytes. The first four of each lie in the low bits of
// bytes 0-3 and 4-7; of the last four, the low halves share bytes 8-11 and the upper two bits sit on top of bytes 0-7.
inline void unpack_scales(const uint8_t (&packed)[12], uint8_t (&scales)[8], uint8_t (&minima)[8]) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minima[i] = packed[i + 4] & 63;
    scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 15) | (packed[i] >> 6 << 4));
    minima[i + 4] = static_cast<uint8_t>((packed[i + 8] >> 4) | (packed[i + 4] >> 6 << 4));
  }
}
inline void pack_scales(const uint8_t (&scales)[8], const uint8_t (&minima)[8], uint8_t (&packed)[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
    packed[i + 4] = static_cast<uint8_t>(minima[i] | minima[i + 4] >> 4 << 6);
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
  }
}

}  // namespace millrace::layout

// Products of rows with weights of 16 or 32 bits in float32 arithmetic (f32_tile.h). Weights lie in blocks of sixteen
// outputs, [inputs][16]. Rows are prepared in tiles of eight, [inputs][8]; a last tile of fewer lies as
// [inputs / 4][rows][4], up to four rows and then the rest (is_split).
//
// With float16 weights rows are rounded to float16 after a power of two has brought their largest value near the top of
// its range: products are exact, and the bits are those of the widening product (i8mm). A block of float16 weights all
// of which are bfloat16 numbers too, as they are in files made of models trained in bfloat16, is kept as such, which
// takes half as much to widen; products and their order, and so the bits, stay the same.
#pragma once

#include <algorithm>
#include <bit>

#include "backend/cpu/arm/neon/f16_pack.h"
#include "backend/cpu/arm/neon/f32_tile.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

// float16 weights: a half of each eight outputs comes as it is, the other times 2^-112 (their exponents are put where
// float32 has its own). Rows times 2^56 keep both sums in range, and then sums need 2^-56 and 2^56.
constexpr float kF16RowUnit = 0x1p56f;
constexpr float kF16Units[8] = {0x1p56f, 0x1p56f, 0x1p56f, 0x1p56f, 0x1p-56f, 0x1p-56f, 0x1p-56f, 0x1p-56f};

// The power of two that brings a row's largest value to [2^14, 2^15), and the one that undoes it.
inline float f16_row_factor(const float* row, int64_t cols, float* undo) {
  float32x4_t most[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
  int64_t k = 0;
  for (; k + 16 <= cols; k += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = vmaxq_f32(most[i], vabsq_f32(vld1q_f32(row + k + 4 * i)));
  }
  for (; k < cols; k += 4) most[0] = vmaxq_f32(most[0], vabsq_f32(load_some(row + k, cols - k)));
  float largest = vmaxvq_f32(vmaxq_f32(vmaxq_f32(most[0], most[1]), vmaxq_f32(most[2], most[3])));
  uint32_t exponent = std::bit_cast<uint32_t>(largest) >> 23;
  if (exponent < 16 || exponent >= 255) return *undo = 1, 1.0f;  // all zero or tiny, or not finite: as they are
  *undo = std::bit_cast<float>((exponent + 127 - 141) << 23);
  return std::bit_cast<float>((127 + 141 - exponent) << 23);
}

template <Stored stored>
struct WideLinear {
  static constexpr int64_t kBytes = stored_bytes(stored);
  static constexpr int64_t kWideInputs = 256;   // widened at a time: they and a tile's stay in the first cache
  static constexpr int64_t kAheadBytes = 1024;  // how far ahead of one to four rows memory is asked for
  static constexpr int64_t kHead = 16;          // floats before a tile: what undoes its rows' factors
  // Whether weights are widened by plain registers while vectors multiply.
  static constexpr bool kBeside = stored == Stored::f16 || stored == Stored::bf16;

  static int64_t padded(int64_t inputs) { return (inputs + kStep - 1) / kStep * kStep; }
  // A block of float16 begins with a line that says how its weights are kept.
  static constexpr int64_t kForm = stored == Stored::f16 ? 64 : 0;
  static int64_t block_bytes(int64_t cols) { return kForm + padded(cols) * kBlock * kBytes; }
  static int64_t packed_bytes(int64_t rows, int64_t cols) { return (rows + kBlock - 1) / kBlock * block_bytes(cols); }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    const int64_t inputs = padded(cols);
    for (int64_t block = begin; block < end; block += kBlock) {
      std::byte* to = out + block / kBlock * block_bytes(cols);
      bool narrow = false;
      if constexpr (kForm > 0) {
        narrow = all_bf16(in + block * cols * kBytes, std::min(kBlock, rows - block) * cols);
        std::memset(to, narrow ? 1 : 0, kForm);
        to += kForm;
      }
      for (int64_t k = 0; k < inputs;) {
        if constexpr (kBytes == 2) {
          if (block + kBlock <= rows && k + 8 <= cols) {
            pack_eight(in + (block * cols + k) * kBytes, cols, narrow, to);
            k += 8, to += 8 * kBlock * kBytes;
            continue;
          }
        }
        for (int64_t n = 0; n < kBlock; ++n, to += kBytes) {
          uint32_t value = 0;
          if (block + n < rows && k < cols) std::memcpy(&value, in + ((block + n) * cols + k) * kBytes, kBytes);
          if constexpr (kForm > 0) value = kept(vdupq_n_u16(static_cast<uint16_t>(value)), narrow)[0];
          std::memcpy(to, &value, kBytes);
        }
        ++k;
      }
    }
  }
  // float16 numbers as a block keeps them.
  static uint16x8_t kept(uint16x8_t x, bool narrow) {
    uint16x8_t lost;
    return narrow ? f16_to_bf16(x, &lost) : finite_f16(x);
  }
  // Eight inputs of a whole block of 16-bit weights.
  static void pack_eight(const std::byte* in, int64_t cols, bool narrow, std::byte* to) {
    for (int64_t half = 0; half < kBlock; half += 8) {
      uint16x8_t x[8];
      for (int64_t n = 0; n < 8; ++n) {
        x[n] = vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(in) + (half + n) * cols * 2));
        if constexpr (kForm > 0) x[n] = kept(x[n], narrow);
      }
      turn_eight(x);
      for (int64_t k = 0; k < 8; ++k) vst1q_u16(reinterpret_cast<uint16_t*>(to) + k * kBlock + half, x[k]);
    }
  }

  static bool is_narrow(const std::byte* block) { return kForm > 0 && *block != std::byte{0}; }
  // Calls f with how the weights of a block are kept, and where they begin.
  template <class F>
  static void with_weights(const std::byte* block, F f) {
    if (is_narrow(block)) return f(std::integral_constant<Stored, Stored::bf16>(), block + kForm);
    f(std::integral_constant<Stored, stored>(), block + kForm);
  }

  static void unpack_row(const Weight& weight, int64_t row, float* out) {
    const std::byte* block = weight.data + row / kBlock * block_bytes(weight.cols);
    const Format& f = format(is_narrow(block) ? DType::bf16 : weight.type);
    const std::byte* from = block + kForm + row % kBlock * kBytes;
    for (int64_t k = 0; k < weight.cols; ++k) f.to_float(from + k * kBlock * kBytes, out + k, 1);
  }

  // ---- rows

  static int64_t tile_floats(int64_t cols) { return kHead + padded(cols) * kTileRows; }
  static int64_t prepared_bytes(int64_t rows, int64_t cols) {
    return (rows + kTileRows - 1) / kTileRows * tile_floats(cols) * 4;
  }
  // A tile with fewer rows lies as up to four of them and the rest. Six alone are quicker as eight, the last one three
  // times, where weights would be widened for four and for two.
  static constexpr int64_t kWholeAlone = kBeside ? 6 : stored == Stored::f32 ? kTileRows : kTileRows - 1;
  static bool is_split(int64_t rows, int64_t begin) { return rows - begin < (begin == 0 ? kWholeAlone : kTileRows); }

  static float32x4_t prepared(const float* row, int64_t k, int64_t cols, float factor) {
    float32x4_t x = load_some(row + k, cols - k);
    if constexpr (stored == Stored::f16)
      x = vmulq_n_f32(vcvt_f32_f16(vcvt_f16_f32(vmulq_n_f32(x, factor))), kF16RowUnit);
    return x;
  }

  static void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
    const int64_t rows = end - begin, inputs = padded(in.cols);
    const int64_t first = std::min<int64_t>(4, rows), rest = rows - first;
    const bool split = is_split(in.rows, begin);
    float* undo = reinterpret_cast<float*>(out) + begin / kTileRows * tile_floats(in.cols);
    float* values = undo + kHead;
    float factor[kTileRows] = {};
    const float* row[kTileRows];
    for (int64_t r = 0; r < rows; ++r) {
      row[r] = in.row(begin + r);
      if constexpr (stored == Stored::f16) factor[r] = f16_row_factor(row[r], in.cols, undo + r);
    }
    for (int64_t r = rows; r < kTileRows; ++r) row[r] = row[rows - 1], factor[r] = factor[rows - 1];
    for (int64_t k = 0; k < inputs; k += kStep) {
      if (split) {
        for (int64_t r = 0; r < rows; ++r) {
          float* to = r < 4 ? values + k * first + r * kStep : values + inputs * 4 + k * rest + (r - 4) * kStep;
          vst1q_f32(to, prepared(row[r], k, in.cols, factor[r]));
        }
        continue;
      }
#pragma GCC unroll 2
      for (int64_t r = 0; r < kTileRows; r += 4) {
        float32x4x4_t x;
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) x.val[i] = prepared(row[r + i], k, in.cols, factor[r + i]);
        float32x4_t a = vzip1q_f32(x.val[0], x.val[2]), b = vzip2q_f32(x.val[0], x.val[2]);
        float32x4_t c = vzip1q_f32(x.val[1], x.val[3]), d = vzip2q_f32(x.val[1], x.val[3]);
        float* to = values + k * kTileRows + r;
        vst1q_f32(to, vzip1q_f32(a, c));
        vst1q_f32(to + kTileRows, vzip2q_f32(a, c));
        vst1q_f32(to + 2 * kTileRows, vzip1q_f32(b, d));
        vst1q_f32(to + 3 * kTileRows, vzip2q_f32(b, d));
      }
    }
  }

  // ---- products

  // Writes sums [rows][16] of a block to where outputs exist; `beside`: of weights that were widened beside products.
  template <bool beside>
  static void write(const LinearPart& part, int64_t row, int64_t rows, int64_t output, const std::byte* block,
                    const float* undo, float* sums) {
    const int64_t outputs = std::min<int64_t>(kBlock, part.end - output);
    const float* bias = part.weight->bias;
    for (int64_t r = 0; r < rows; ++r, sums += kBlock) {
      if constexpr (stored == Stored::f16) {
        const int64_t as_is = is_narrow(block) ? 4 : 0, part_as_is = beside ? 0 : 7;
        for (int64_t n = 0; n < kBlock; ++n) sums[n] = sums[n] * kF16Units[(n & part_as_is) | as_is] * undo[r];
      }
      for (int64_t n = 1; beside && n < kBlock; n += 4) std::swap(sums[n], sums[n + 1]);
      float* out = part.out.row(row + r) + output;
      if (bias == nullptr) {
        std::copy_n(sums, outputs, out);
      } else {
        for (int64_t n = 0; n < outputs; ++n) out[n] = sums[n] + bias[output + n];
      }
    }
  }

  // Rows of a split tile by a piece of a block.
  template <Stored as>
  static void multiply_split(const float* x, int64_t inputs, int64_t rows, int64_t k, const std::byte* piece,
                             int64_t count, float* sums) {
    const std::byte* pieces[] = {piece, piece + kAheadBytes};
    for (; rows > 0; x += inputs * 4, rows -= 4, sums += 4 * kBlock) {
      switch (rows) {
        case 1:
          return multiply_few<as, 1>(x + k, pieces, 0, 1, count, sums);
        case 2:
          return multiply_few<as, 2>(x + k * 2, pieces, 0, 1, count, sums);
        case 3:
          return multiply_few<as, 3>(x + k * 3, pieces, 0, 1, count, sums);
        default:
          multiply_few<as, 4>(x + k * 4, pieces, 0, 1, count, sums);
      }
    }
  }

  static const std::byte* block_at(const LinearPart& part, int64_t output) {
    return part.weight->data + output / kBlock * block_bytes(part.weight->cols);
  }

  // Tiles straight from packed weights. Eight rows meet a block once for each half of its outputs.
  static void direct(const LinearPart& part, const float* tiles) {
    const int64_t inputs = padded(part.weight->cols), end = part.first_row + part.rows;
    const std::byte* block = block_at(part, part.begin);
    for (int64_t output = part.begin; output < part.end; output += kBlock, block += block_bytes(inputs)) {
      const float* tile = tiles;
      for (int64_t row = part.first_row; row < end; row += kTileRows, tile += tile_floats(inputs)) {
        const int64_t rows = std::min(kTileRows, end - row);
        float sums[kTileRows * kBlock] = {};
        if (kBeside || is_split(part.prepared_rows, row)) {
          with_weights(block, [&](auto form, const std::byte* w) {
            multiply_split<form()>(tile + kHead, inputs, rows, 0, w, inputs, sums);
          });
        } else if constexpr (!kBeside) {
          for (int64_t n = 0; n < kBlock; n += kBlock / 2)
            multiply_eight<stored>(tile + kHead, block + n * kBytes, kBlock * kBytes, inputs, sums + n, kBlock);
        }
        write<false>(part, row, rows, output, block, tile, sums);
      }
    }
  }

  // `count` weights as float32; where they are widened beside products, in the order of multiply_eight_beside().
  template <Stored as>
  static void widen(const std::byte* from, int64_t count, float* wide) {
    for (int64_t i = 0; i < count; i += 8) {
      uint16x8_t x = vld1q_u16(reinterpret_cast<const uint16_t*>(from) + i);
      float32x4_t low = vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(x)));
      float32x4_t high = vcvt_high_f32_f16(vreinterpretq_f16_u16(x));
      if constexpr (kBeside) {
        uint32x4_t words = vreinterpretq_u32_u16(x);
        uint32x4_t even = vshlq_n_u32(words, 16), odd = vandq_u32(words, vdupq_n_u32(0xffff0000u));
        if constexpr (as == Stored::f16) {
          const uint32x4_t sign = vdupq_n_u32(0x80000000u);
          even = vbslq_u32(sign, even, vshrq_n_u32(vshlq_n_u32(even, 1), 4));
          odd = vbslq_u32(sign, odd, vshrq_n_u32(vshlq_n_u32(odd, 1), 4));
        }
        uint64x2_t evens = vreinterpretq_u64_u32(even), odds = vreinterpretq_u64_u32(odd);
        low = vreinterpretq_f32_u64(vtrn1q_u64(evens, odds)), high = vreinterpretq_f32_u64(vtrn2q_u64(evens, odds));
      }
      vst1q_f32(wide + i, low);
      vst1q_f32(wide + i + 4, high);
    }
  }

  // The piece of weights that is multiplied next, widened while another is multiplied.
  struct Next {
    Beside at = {};
    int64_t units = 0;  // that are left to widen
    bool narrow = false;

    // Eight rows by a half of a widened piece; `each` units for every four inputs, if so many are left.
    template <int each>
    void multiply(const float* x, const std::byte* half, int64_t inputs, float* sums) {
      const int64_t here = inputs / kStep * each;
      if (units < here) return multiply_eight<Stored::f32>(x, half, kBlock * 4, inputs, sums, kBlock);
      units -= here;
      narrow ? multiply_eight_beside<Stored::bf16, each>(x, half, kBlock * 4, inputs, sums, kBlock, at)
             : multiply_eight_beside<stored, each>(x, half, kBlock * 4, inputs, sums, kBlock, at);
    }
    void finish() {
      narrow ? widen<Stored::bf16>(at.from, units * 8, at.to) : widen<stored>(at.from, units * 8, at.to);
      units = 0;
    }
  };

  // Eight rows by a widened piece. Of `tiles` such: they have room for all units, the first of them for more than a
  // share.
  static void multiply_tile(Next& next, int64_t tiles, const float* x, const float* w, int64_t inputs, float* sums) {
    for (int64_t n = 0; n < kBlock; n += kBlock / 2) {
      const std::byte* half = reinterpret_cast<const std::byte*>(w + n);
      if constexpr (!kBeside) {
        multiply_eight<Stored::f32>(x, half, kBlock * 4, inputs, sums + n, kBlock);
      } else if (tiles == 1) {
        next.template multiply<4>(x, half, inputs, sums + n);
      } else if (tiles < 4) {
        next.template multiply<2>(x, half, inputs, sums + n);
      } else {
        next.template multiply<1>(x, half, inputs, sums + n);
      }
    }
  }

  static void many(const LinearPart& part, const float* tiles) {
    const int64_t inputs = padded(part.weight->cols), floats = tile_floats(inputs);
    const int64_t count = (part.rows + kTileRows - 1) / kTileRows;
    const int64_t whole = is_split(part.prepared_rows, part.first_row + (count - 1) * kTileRows) ? count - 1 : count;
    const int64_t pieces = (inputs + kWideInputs - 1) / kWideInputs, most = padded((inputs + pieces - 1) / pieces);
    float* wide = reinterpret_cast<float*>(part.scratch);  // [2][kWideInputs][16], in turn
    float* other = wide + kWideInputs * kBlock;
    float* sums = other + kWideInputs * kBlock;  // [tiles][8][16]
    const std::byte* const end = block_at(part, part.end + kBlock - 1);
    const std::byte* block = block_at(part, part.begin);
    Next next;
    auto take = [&](const std::byte* from, int64_t k) {
      next = {{from + kForm + k * kBlock * kBytes, other}, std::min(most, inputs - k) * kBlock / 8, is_narrow(from)};
    };
    if constexpr (kBeside) take(block, 0);
    for (int64_t output = part.begin; output < part.end; output += kBlock, block += block_bytes(inputs)) {
      std::fill_n(sums, count * kTileRows * kBlock, 0.0f);
      for (int64_t k = 0; k < inputs; k += most) {
        const int64_t piece = std::min(most, inputs - k), bytes = piece * kBlock * kBytes;
        if constexpr (stored == Stored::f16_as_is) take(block, k);
        if constexpr (stored != Stored::f32) next.finish(), std::swap(wide, other);
        const float* w = stored == Stored::f32 ? reinterpret_cast<const float*>(block + k * kBlock * kBytes) : wide;
        if constexpr (kBeside) {
          if (k + piece < inputs) {
            take(block, k + piece);
          } else if (output + kBlock < part.end) {
            take(block + block_bytes(inputs), 0);
          }
        }
        const std::byte* after = block + kForm + (k + piece) * kBlock * kBytes;
        for (int64_t t = 0; t < count; ++t) {
          // What comes next is asked for, a share with every tile.
          const std::byte* until = std::min(end, after + bytes * (t + 1) / count);
          for (const std::byte* at = after + bytes * t / count / 64 * 64; !kBeside && at < until; at += 64)
            __builtin_prefetch(at, 0, 2);
          const float* x = tiles + t * floats + kHead;
          float* sum = sums + t * kTileRows * kBlock;
          if (t < whole) {
            multiply_tile(next, whole, x + k * kTileRows, w, piece, sum);
          } else {
            multiply_split<Stored::f32>(x, inputs, part.rows - t * kTileRows, k, reinterpret_cast<const std::byte*>(w),
                                        piece, sum);
          }
        }
      }
      for (int64_t t = 0; t < count; ++t) {
        const int64_t row = part.first_row + t * kTileRows;
        write<kBeside>(part, row, std::min(kTileRows, part.first_row + part.rows - row), output, block,
                       tiles + t * floats, sums + t * kTileRows * kBlock);
      }
    }
  }
  static_assert((2 * kWideInputs * kBlock + (LinearKernel::kMostPartRows + kTileRows) * kBlock) * 4 <= kWorkerBytes);

  static void product(const LinearPart& part) {
    const float* tiles =
        reinterpret_cast<const float*>(part.prepared) + part.first_row / kTileRows * tile_floats(part.weight->cols);
    // Up to so many rows taking weights apart again costs no more than writing them down. Beside products that costs
    // next to nothing.
    const int64_t few = kBeside ? kWholeAlone - 1 : stored == Stored::f32 ? 16 : 12;
    part.rows <= few ? direct(part, tiles) : many(part, tiles);
  }

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kBlock;
    kernel.rows_tile = kTileRows;
    kernel.part_values = 128 << 10;
    kernel.packed_bytes = packed_bytes;
    kernel.pack = pack;
    kernel.unpack_row = unpack_row;
    kernel.prepared_bytes = prepared_bytes;
    kernel.prepare = prepare;
    kernel.product = product;
    return kernel;
  }
};

}  // namespace
}  // namespace millrace::cpu

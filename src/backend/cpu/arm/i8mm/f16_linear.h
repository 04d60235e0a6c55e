// Products with float16 weights by the widening product (i8mm); neon/f32_linear.h gives the same bits without it. Rows
// are rounded to float16 after a power of two has brought their largest value near the top of its range, so nothing
// overflows and what is lost is below 2^-11 of each value; products are exact and sums float32.
#pragma once

#include <bit>

#include "backend/cpu/arm/float_tile.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kF16Rows = 8;  // of a tile of prepared rows

// Rows of the tile as they are interleaved: 1, 2, 4 or 8.
inline int64_t interleaved(int64_t rows) { return std::bit_ceil(static_cast<uint64_t>(std::min(rows, kF16Rows))); }

inline int64_t f16_prepared_bytes(int64_t rows, int64_t cols) {
  return (up_to(rows, kF16Rows) / kF16Rows) * (64 + up_to(cols, 8) * kF16Rows * 2);
}

inline std::byte* f16_tile(std::byte* prepared, int64_t first_row, int64_t cols) {
  return prepared + first_row / kF16Rows * (64 + up_to(cols, 8) * kF16Rows * 2);
}

// The power of two that brings a row's largest value to [2^14, 2^15), and the one that undoes it.
inline float f16_row_factor(const float* row, int64_t cols, float* undo) {
  float32x4_t most = vdupq_n_f32(0);
  for (int64_t k = 0; k < cols; k += 4) most = vmaxq_f32(most, vabsq_f32(load_some(row + k, cols - k)));
  uint32_t exponent = std::bit_cast<uint32_t>(vmaxvq_f32(most)) >> 23;
  if (exponent < 16 || exponent >= 255) return *undo = 1, 1.0f;  // all zero or tiny, or not finite: as they are
  *undo = std::bit_cast<float>((exponent + 127 - 141) << 23);
  return std::bit_cast<float>((127 + 141 - exponent) << 23);
}

inline void f16_prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  int64_t rows = interleaved(in.rows - begin), cols = up_to(in.cols, 8);
  float* undo = reinterpret_cast<float*>(f16_tile(out, begin, in.cols));
  uint16_t* values = reinterpret_cast<uint16_t*>(undo + 16);
  for (int64_t r = 0; r < rows; ++r) {
    if (begin + r >= end) {
      for (int64_t k = 0; k < cols; ++k) values[k * rows + r] = 0;
      continue;
    }
    const float* row = in.row(begin + r);
    float factor = f16_row_factor(row, in.cols, undo + r);
    for (int64_t k = 0; k < cols; k += 4) {
      uint16_t narrow[4];
      vst1_u16(narrow, vreinterpret_u16_f16(vcvt_f16_f32(vmulq_n_f32(load_some(row + k, in.cols - k), factor))));
      for (int64_t j = 0; j < 4; ++j) values[(k + j) * rows + r] = narrow[j];
    }
  }
}

inline int64_t f16_packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) * up_to(cols, 8) * 2; }

inline void f16_pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
  const uint16_t* from = reinterpret_cast<const uint16_t*>(in);
  int64_t inputs = up_to(cols, 8);
  for (int64_t panel = begin; panel < end; panel += kPanel) {
    uint16_t* to = reinterpret_cast<uint16_t*>(out) + panel * inputs;
    for (int64_t n = 0; n < kPanel; ++n) {
      for (int64_t k = 0; k < inputs; ++k)
        to[k * kPanel + n] = panel + n < rows && k < cols ? from[(panel + n) * cols + k] : uint16_t{0};
    }
  }
}

inline void f16_unpack_row(const Weight& weight, int64_t row, float* out) {
  const uint16_t* from =
      reinterpret_cast<const uint16_t*>(weight.data) + row / kPanel * kPanel * up_to(weight.cols, 8) + row % kPanel;
  for (int64_t k = 0; k < weight.cols; ++k) {
    uint16_t half = from[k * kPanel];
    format(DType::f16).to_float(reinterpret_cast<const std::byte*>(&half), out + k, 1);
  }
}

// One vector of inputs: 8 / Rows inputs of Rows rows, interleaved [input][row].
template <int Rows, int Panels, int lane = 0>
inline void multiply_lanes(float16x8_t a, const float16_t* const* w, int64_t k, float32x4_t (&sum)[Rows][Panels * 2]) {
  if constexpr (lane < 8) {
#pragma GCC unroll 8
    for (int n = 0; n < Panels; ++n) {
      float16x8_t weights = vld1q_f16(w[n] + (k + lane / Rows) * kPanel);
      sum[lane % Rows][n * 2] = widening_low<lane>(sum[lane % Rows][n * 2], weights, a);
      sum[lane % Rows][n * 2 + 1] = widening_high<lane>(sum[lane % Rows][n * 2 + 1], weights, a);
    }
    multiply_lanes<Rows, Panels, lane + 1>(a, w, k, sum);
  }
}

// out [Rows, Panels * 8] = a x w, both float16. `count` is a multiple of 8.
template <int Rows, int Panels>
inline void multiply_f16(const float16_t* a, const float16_t* const* w, int64_t count, float* out) {
  float32x4_t sum[Rows][Panels * 2];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < Panels * 2; ++n) sum[r][n] = vdupq_n_f32(0);
  }
  for (int64_t k = 0; k < count; k += 8 / Rows, a += 8) multiply_lanes<Rows, Panels>(vld1q_f16(a), w, k, sum);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < Panels * 2; ++n) vst1q_f32(out + (r * Panels * 2 + n) * 4, sum[r][n]);
  }
}

// Panels [first, first + Panels) of one tile of rows.
template <int Rows, int Panels>
inline void f16_panels(const LinearPart& part, const std::byte* tile, int64_t row, int64_t rows, int64_t output) {
  int64_t inputs = up_to(part.weight->cols, 8);
  const float16_t* w[Panels];
  for (int n = 0; n < Panels; ++n)
    w[n] = reinterpret_cast<const float16_t*>(part.weight->data) + (output + n * kPanel) * inputs;
  float sums[Rows * Panels * kPanel];
  const float* undo = reinterpret_cast<const float*>(tile);
  multiply_f16<Rows, Panels>(reinterpret_cast<const float16_t*>(undo + 16), w, inputs, sums);
  write_outputs(part, row, rows, output, std::min<int64_t>(Panels * kPanel, part.end - output), sums, Panels * kPanel,
                undo);
}

// Several panels at a time: more streams of weights, more sums in flight.
template <int Rows>
inline void f16_rows(const LinearPart& part, const std::byte* tile, int64_t row, int64_t rows) {
  constexpr int kPanels = Rows == 8 ? 1 : Rows == 4 ? 2 : 4;
  int64_t output = part.begin;
  for (; output + (kPanels - 1) * kPanel < part.end; output += kPanels * kPanel) {
    f16_panels<Rows, kPanels>(part, tile, row, rows, output);
  }
  for (; output < part.end; output += kPanel) f16_panels<Rows, 1>(part, tile, row, rows, output);
}

inline void f16_product(const LinearPart& part) {
  for (int64_t row = part.first_row; row < part.first_row + part.rows; row += kF16Rows) {
    int64_t rows = std::min(kF16Rows, part.first_row + part.rows - row);
    const std::byte* tile = f16_tile(const_cast<std::byte*>(part.prepared), row, part.weight->cols);
    switch (interleaved(part.prepared_rows - row)) {
      case 1:
        f16_rows<1>(part, tile, row, rows);
        break;
      case 2:
        f16_rows<2>(part, tile, row, rows);
        break;
      case 4:
        f16_rows<4>(part, tile, row, rows);
        break;
      default:
        f16_rows<8>(part, tile, row, rows);
        break;
    }
  }
}

inline LinearKernel f16_kernel() {
  LinearKernel kernel;
  kernel.outputs_tile = kPanel;
  kernel.rows_tile = kF16Rows;
  kernel.packed_bytes = f16_packed_bytes;
  kernel.pack = f16_pack;
  kernel.unpack_row = f16_unpack_row;
  kernel.prepared_bytes = f16_prepared_bytes;
  kernel.prepare = f16_prepare;
  kernel.product = f16_product;
  return kernel;
}

}  // namespace
}  // namespace millrace::cpu

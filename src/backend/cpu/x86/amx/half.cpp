// Products with bfloat16 and float16 weights by tiles. A float16 weight is the exact sum of two bfloat16 numbers, which
// are multiplied one after the other.
//
// Packed: per panel of sixteen outputs [steps of 32 inputs][16 pairs of inputs], each [16 outputs][2] of bfloat16 or
// [2][16 outputs] of float16.
#include "backend/cpu/x86/amx/bf16_tiles.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

// ---- how a format's tiles come about
// -----------------------------------------------------------------------------------------

struct TwoBytes {
  using Rows = PlainOrder;
  static int64_t panel_bytes(int64_t steps) { return steps * kTileBytes; }
  static ByteRange lines_of(const std::byte* panel, int64_t, int64_t step, int64_t count) {
    return {panel + step * kTileBytes, count * kTileBytes / 64};
  }
};

struct Bf16 : TwoBytes {
  static constexpr int kParts = 1;
  static void ask(const std::byte* panel, int64_t, int64_t step) {  // of weights read once, early enough
    for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(panel + step * kTileBytes + 4096 + line, 0, 2);
  }
  static int64_t place_of(int64_t output, int64_t input) {
    return (input / 2 * kPanel + output % kPanel) * 4 + input % 2 * 2;
  }
  static const std::byte* tile(const std::byte* panel, int64_t, int64_t step, std::byte*) {
    return panel + step * kTileBytes;
  }
};

struct F16 : TwoBytes {
  static constexpr int kParts = 2;
  static void ask(const std::byte* panel, int64_t, int64_t step) {
    for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(panel + step * kTileBytes + 2048 + line, 0, 3);
  }
  static int64_t place_of(int64_t output, int64_t input) { return (input * kPanel + output % kPanel) * 2; }
  // The upper halves of two vectors, side by side in each lane.
  static __m512i upper_halves(Floats a, Floats b) {
    const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(a.v), 16);
    return _mm512_ternarylogic_epi32(low, _mm512_castps_si512(b.v), top, 0xf8);  // a | (b & c)
  }
  static Floats without_top(Floats x) {
    const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return x - Floats{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x.v), top))};
  }
  // Upper parts, then lower, of a tile. Neither has more than the eight bits of a bfloat16.
  static const std::byte* tile(const std::byte* panel, int64_t, int64_t step, std::byte* room) {
    const std::byte* packed = panel + step * kTileBytes;
#pragma GCC unroll 4
    for (int i = 0; i < 16; ++i) {
      Floats a = load_f16(packed + i * 64), b = load_f16(packed + i * 64 + 32);
      _mm512_store_si512(room + i * 64, upper_halves(a, b));
      _mm512_store_si512(room + kTileBytes + i * 64, upper_halves(without_top(a), without_top(b)));
    }
    return room;
  }
};

// ---- packing
// ------------------------------------------------------------------------------------------------------------

int64_t packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) / kPanel * steps_of(cols) * kTileBytes; }

template <class F>
void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
  int64_t panel_bytes = steps_of(cols) * kTileBytes;
  for (int64_t panel = begin; panel < end; panel += kPanel) {
    std::byte* to = out + panel / kPanel * panel_bytes;
    std::memset(to, 0, static_cast<size_t>(panel_bytes));
    for (int64_t n = panel; n < least(panel + kPanel, rows); ++n) {
      for (int64_t k = 0; k < cols; ++k) std::memcpy(to + F::place_of(n, k), in + (n * cols + k) * 2, 2);
    }
  }
}

template <class F>
void unpack_row(const Weight& weight, int64_t row, float* out) {
  const std::byte* panel = weight.data + row / kPanel * steps_of(weight.cols) * kTileBytes;
  for (int64_t k = 0; k < weight.cols; ++k) format(weight.type).to_float(panel + F::place_of(row, k), out + k, 1);
}

template <class F>
LinearKernel kernel_of() {
  LinearKernel kernel = tiles_kernel<F>();
  kernel.packed_bytes = packed_bytes;
  kernel.pack = pack<F>;
  kernel.unpack_row = unpack_row<F>;
  return kernel;
}

}  // namespace

void add_amx_half(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  fast[static_cast<size_t>(DType::bf16)] = kernel_of<Bf16>();
  fast[static_cast<size_t>(DType::f16)] = kernel_of<F16>();
}

}  // namespace millrace::cpu

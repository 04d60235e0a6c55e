// How quantised weights become tiles of bfloat16. A factor after every 32 inputs would have each tile of integer
// sums stored and scaled, which takes five times as long as its product; so weights are multiplied by their factors
// first, rounded to bfloat16 and kept in the first cache while rows pass by. That is dearer than integers for one row,
// but cheaper than the memory the weights come from.
//
// Packed as the other x86 rows pack them (formats32.h, formats256.h): a vector of codes is [16 outputs][4 inputs]. Two
// such vectors become four rows of a tile, [16 outputs][2], one input of the first and one of the second vector each
// (PairedOrder). A code becomes a float32 by putting it into the mantissa of a power of two, which one multiplication
// and addition takes off again together with the offset and the minimum.
#pragma once

#include "backend/cpu/x86/amx/bf16_tiles.h"
#include "backend/cpu/x86/formats256.h"

namespace millrace::cpu {
namespace {

// Value = (power + code) * factor + rest, for lanes [8 outputs][2].
struct Scaling {
  __m512 factor[2], rest[2];  // outputs 0 to 7 and 8 to 15, each twice

  Scaling(Floats factors, Floats rests) {
    const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    factor[0] = _mm512_permutexvar_ps(low, factors.v), factor[1] = _mm512_permutexvar_ps(high, factors.v);
    rest[0] = _mm512_permutexvar_ps(low, rests.v), rest[1] = _mm512_permutexvar_ps(high, rests.v);
  }
};

// Codes of seven bits go where a mantissa's bit 16 is, below a power of 2^7; those of eight where bit 8 is, below 2^15.
template <bool wide>
constexpr float kPower = wide ? 32768.0f : 128.0f;

// Byte `index` of every lane, plus the power.
template <bool wide, int index>
__m512 with_power(__m512i codes) {
  constexpr int kLeft = (wide ? 8 : 16) - 8 * index;
  if constexpr (kLeft > 0) codes = _mm512_slli_epi32(codes, kLeft);
  if constexpr (kLeft < 0) codes = _mm512_srli_epi32(codes, -kLeft);
  const __m512i mask = _mm512_set1_epi32(wide ? 0xff00 : 0x7f0000);
  const __m512i power = _mm512_castps_si512(_mm512_set1_ps(kPower<wide>));
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(codes, mask, power, 0xea));  // (a & b) | c
}

template <bool wide, int index>
[[gnu::always_inline]] inline void put_row(__m512i low, __m512i high, const Scaling& by, std::byte* tile) {
  const __m512 a = _mm512_fmadd_ps(with_power<wide, index>(low), by.factor[0], by.rest[0]);
  const __m512 b = _mm512_fmadd_ps(with_power<wide, index>(high), by.factor[1], by.rest[1]);
  _mm512_store_si512(tile + index * 64, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

// Four rows of a tile from two vectors of codes.
template <bool wide>
[[gnu::always_inline]] inline void put_rows(Bytes first, Bytes second, const Scaling& by, std::byte* tile) {
  const __m512i from_low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i from_high = _mm512_add_epi32(from_low, _mm512_set1_epi32(8));
  const __m512i low = _mm512_permutex2var_epi32(first.v, from_low, second.v);
  const __m512i high = _mm512_permutex2var_epi32(first.v, from_high, second.v);
  put_row<wide, 0>(low, high, by, tile), put_row<wide, 1>(low, high, by, tile);
  put_row<wide, 2>(low, high, by, tile), put_row<wide, 3>(low, high, by, tile);
}

constexpr int64_t kAskBytes = 3072;  // how early few rows ask for weights

inline void ask_lines(const std::byte* at, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

// ---- a factor per 32 weights
// ---------------------------------------------------------------------------------------------

template <class F>
struct Tiles32 {
  using Rows = PairedOrder;
  static constexpr int kParts = 1;

  static const std::byte* codes_of(const std::byte* panel, int64_t steps, int64_t step) {
    return panel + up_to(steps * F::kFactorBytes, 64) + step * F::kCodeBytes;
  }
  static int64_t panel_bytes(int64_t steps) { return PackedPanel<F>::bytes(steps); }
  static ByteRange lines_of(const std::byte* panel, int64_t steps, int64_t step, int64_t count) {
    return {codes_of(panel, steps, step), count * F::kCodeBytes / 64};
  }
  static void ask(const std::byte* panel, int64_t steps, int64_t step) {
    ask_lines(codes_of(panel, steps, step) + kAskBytes, F::kCodeBytes);
    if (step % 2 == 0) ask_lines(panel + step * F::kFactorBytes + 512, 2 * F::kFactorBytes);
  }
  [[gnu::always_inline]] static const std::byte* tile(const std::byte* panel, int64_t steps, int64_t step,
                                                      std::byte* room) {
    const std::byte *scales = panel + step * F::kFactorBytes, *codes = codes_of(panel, steps, step);
    const Floats factors = F::factors(scales);
    Floats rests = factors * splat(-(kPower<F::kWide> + static_cast<float>(F::kOffset)));
    if constexpr (F::kMins) rests = rests + F::minimums(scales);
    const Scaling by(factors, rests);
#pragma GCC unroll 4
    for (int s = 0; s < kSteps; s += 2)
      put_rows<F::kWide>(F::values(codes, s), F::values(codes, s + 1), by, room + s * 128);
    return room;
  }
};

// ---- a factor per 256 weights, and small scales within
// -------------------------------------------------------------------

template <class F>
struct Tiles256 {
  using Rows = PairedOrder;
  static constexpr int kParts = 1;
  static constexpr int64_t kEach = (F::kBytes / kSpans + 63) / 64 * 64;  // bytes to ask for a step, in whole lines

  static int64_t panel_bytes(int64_t steps) { return steps / kSpans * F::kBytes; }
  static ByteRange lines_of(const std::byte* panel, int64_t, int64_t step, int64_t count) {
    return {panel + step / kSpans * F::kBytes, (count + kSpans - 1) / kSpans * F::kBytes / 64};
  }
  static void ask(const std::byte* panel, int64_t, int64_t step) {
    ask_lines(panel + step / kSpans * F::kBytes + step % kSpans * kEach + kAskBytes, kEach);
  }
  static Floats minimums(const std::byte* group, int subgroup) {
    const Ints both = load_u16(group + F::kMinimums + subgroup / 2 * 32);
    return to_floats(subgroup % 2 == 0 ? low_byte(both) : shift_right(both, 8));
  }
  static Scaling scaling(const PackedSuper<F>& panel, int subgroup) {
    const Floats factors = panel.factors() * panel.scales(subgroup);
    Floats rests = factors * splat(-(kPower<F::kWide> + static_cast<float>(F::kOffset)));
    if constexpr (F::kMins) rests = fnma(panel.taken_factors(), minimums(panel.at, subgroup), rests);
    return Scaling(factors, rests);
  }
  [[gnu::always_inline]] static const std::byte* tile(const std::byte* packed, int64_t, int64_t step, std::byte* room) {
    const int span = static_cast<int>(step % kSpans);
    const PackedSuper<F> panel(packed + step / kSpans * F::kBytes);
    constexpr int kSubSteps = kSteps / F::kHalves;
#pragma GCC unroll 2
    for (int half = 0; half < F::kHalves; ++half) {
      const Scaling by = scaling(panel, F::kHalves * span + half);
#pragma GCC unroll 4
      for (int s = half * kSubSteps; s < (half + 1) * kSubSteps; s += 2)
        put_rows<F::kWide>(panel.values(span, s), panel.values(span, s + 1), by, room + s * 128);
    }
    return room;
  }
};

}  // namespace
}  // namespace millrace::cpu

// Taking a tile of float16 apart into two of bfloat16, for the lab programs that measure it.
#pragma once

#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

// float16 as two bfloat16 numbers, by the compiler's conversions or by shifts. Mode 0: as the product had it.
template <int mode>
void split_f16(const std::byte* from, std::byte* to) {
  const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
#pragma GCC unroll 4
  for (int i = 0; i < 16; ++i) {
    Floats a = load_f16(from + i * 64), b = load_f16(from + i * 64 + 32);
    Floats a_top{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a.v), top))};
    Floats b_top{_mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(b.v), top))};
    if constexpr (mode == 0) {
      _mm512_store_si512(to + i * 64, (__m512i)_mm512_cvtne2ps_pbh(b_top.v, a_top.v));
      _mm512_store_si512(to + kTileBytes + i * 64, (__m512i)_mm512_cvtne2ps_pbh((b - b_top).v, (a - a_top).v));
    } else {  // a: inputs 2 k of sixteen outputs, b: inputs 2 k + 1
      auto pair = [&](Floats x, Floats y) {
        return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(x.v), 16), _mm512_castps_si512(y.v), top,
                                         0xF8);
      };
      _mm512_store_si512(to + i * 64, pair(a, b));
      _mm512_store_si512(to + kTileBytes + i * 64, pair(a - a_top, b - b_top));
    }
  }
}

}  // namespace
}  // namespace millrace::cpu

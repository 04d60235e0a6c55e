// What a cache of few bits needs of sixteen lanes beside simd.h: numbers of eight bits widened, and int16 made.
#pragma once

#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

#ifdef __AVX512F__
inline Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
// Sixteen int16, from what is within their range.
inline void store_int16(int16_t* out, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtsepi32_epi16(x.v));
}
inline Floats widen_halves(__m256i halves) { return {_mm512_cvtph_ps(halves)}; }
#else
inline Ints operator&(Ints x, Ints y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline void store_int16(int16_t* out, Ints x) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), words);
}
inline Floats widen_halves(__m256i halves) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
#endif

// E4M3 as float16: sign and exponent's end move, so numbers are 256 times smaller. There are no infinities.
inline Floats load_e4m3(const std::byte* in) {
  __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  return widen_halves(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBFFF))));
}

}  // namespace
}  // namespace millrace::cpu

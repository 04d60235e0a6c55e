// Sixteen lanes for the x86 rows: one 512-bit register, or two of 256 bits. Everything is in an unnamed namespace: each
// folder compiles its own copy with its own flags, so that code for a newer machine can never stand in for code for an
// older one.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::cpu {
namespace {

constexpr int kLanes = 16;

inline int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#ifdef __AVX512F__
struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Bytes {  // 64 of them: four for each lane
  __m512i v;
};

inline Floats splat(float x) { return {_mm512_set1_ps(x)}; }
inline Ints splat_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Bytes splat_byte(int x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
inline Floats load(const float* in) { return {_mm512_loadu_ps(in)}; }
inline void store(float* out, Floats x) { _mm512_storeu_ps(out, x.v); }
inline Bytes load_bytes(const std::byte* in) { return {_mm512_loadu_si512(in)}; }
inline void store_bytes(std::byte* out, Bytes x) { _mm512_storeu_si512(out, x.v); }
inline __mmask16 first_lanes(int64_t count) {
  return count >= kLanes ? __mmask16{0xffff} : static_cast<__mmask16>((1u << count) - 1);
}
// Sixteen floats of which only `count` exist; the others are zero.
inline Floats load_some(const float* in, int64_t count) { return {_mm512_maskz_loadu_ps(first_lanes(count), in)}; }
inline void store_some(float* out, Floats x, int64_t count) { _mm512_mask_storeu_ps(out, first_lanes(count), x.v); }

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline Floats fnma(Floats a, Floats b, Floats c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
// The second where either is not a number.
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Floats smaller(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Floats magnitude(Floats a) { return {_mm512_abs_ps(a.v)}; }
// a where x < limit, else b.
inline Floats where_less(Floats x, Floats limit, Floats a, Floats b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ), b.v, a.v)};
}
inline Floats with_sign(Floats size, Floats sign) {
  return {_mm512_or_ps(size.v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
}
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Ints nearest(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }
inline Floats rounded(Floats a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints shift_left(Ints a, int count) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(count))}; }
inline Ints shift_right(Ints a, int count) { return {_mm512_srai_epi32(a.v, static_cast<unsigned>(count))}; }
inline Ints bits_of(Floats a) { return {_mm512_castps_si512(a.v)}; }
inline Floats as_floats(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
inline Bytes operator&(Bytes a, Bytes b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Bytes operator|(Bytes a, Bytes b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Bytes operator^(Bytes a, Bytes b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Bytes operator-(Bytes a, Bytes b) { return {_mm512_sub_epi8(a.v, b.v)}; }
inline Bytes up(Bytes a, int count) { return {_mm512_slli_epi32(a.v, static_cast<unsigned>(count))}; }
inline Bytes down(Bytes a, int count) { return {_mm512_srli_epi32(a.v, static_cast<unsigned>(count))}; }
inline Bytes look_up(__m128i table, Bytes codes) {
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes.v)};
}
inline Floats load_f16(const std::byte* in) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)))};
}
inline Floats load_bf16(const std::byte* in) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void store_f16(std::byte* out, Floats x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Ints load_u16(const std::byte* in) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)))};
}
inline Ints load_s16(const std::byte* in) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)))};
}
inline Ints load_u8(const std::byte* in) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)))};
}
inline Ints low_byte(Ints a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(255))}; }
// Sixteen int8, from what is within their range.
inline void store_int8(int8_t* out, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(x.v));
}
// Two lanes' worth of bytes as int16 pairs, [lane][2].
inline Ints pairs_of_bytes(const std::byte* in, bool is_signed) {
  __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  return {is_signed ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes)};
}

// Lanes summed by halving.
inline float sum_lanes(Floats x) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float largest_lane(Floats x) { return _mm512_reduce_max_ps(x.v); }

// Each lane: sum + four codes (unsigned) times four numbers of the row (signed). `wide`: codes of more than seven bits.
template <bool wide>
inline Ints dot(Ints sum, Bytes codes, const int8_t* four) {
  int32_t x;
  std::memcpy(&x, four, 4);
  return {_mm512_dpbusd_epi32(sum.v, codes.v, _mm512_set1_epi32(x))};
}
// Each lane: sum + a pair of int16 times a pair of the row's.
inline Ints dot_pairs(Ints sum, Ints pairs, const int16_t* two) {
  int32_t x;
  std::memcpy(&x, two, 4);
  return {_mm512_dpwssd_epi32(sum.v, pairs.v, _mm512_set1_epi32(x))};
}
constexpr bool kSignedDots = false;  // dots of wide codes take off their offset of 128 themselves

#else
struct Floats {
  __m256 a, b;
};
struct Ints {
  __m256i a, b;
};
struct Bytes {  // 64 of them: four for each lane
  __m256i a, b;
};

inline const __m256i* as_m256i(const void* in) { return static_cast<const __m256i*>(in); }
inline Floats splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Ints splat_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Bytes splat_byte(int x) {
  return {_mm256_set1_epi8(static_cast<char>(x)), _mm256_set1_epi8(static_cast<char>(x))};
}
inline Floats load(const float* in) { return {_mm256_loadu_ps(in), _mm256_loadu_ps(in + 8)}; }
inline void store(float* out, Floats x) { _mm256_storeu_ps(out, x.a), _mm256_storeu_ps(out + 8, x.b); }
inline Bytes load_bytes(const std::byte* in) {
  return {_mm256_loadu_si256(as_m256i(in)), _mm256_loadu_si256(as_m256i(in + 32))};
}
inline void store_bytes(std::byte* out, Bytes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), x.b);
}
// Sixteen floats of which only `count` exist; the others are zero.
inline Floats load_some(const float* in, int64_t count) {
  if (count >= kLanes) return load(in);
  float some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = in[i];
  return load(some);
}
inline void store_some(float* out, Floats x, int64_t count) {
  if (count >= kLanes) return store(out, x);
  float some[kLanes];
  store(some, x);
  for (int64_t i = 0; i < count; ++i) out[i] = some[i];
}

inline Floats operator+(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats operator-(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Floats operator*(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats operator/(Floats x, Floats y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Floats fma(Floats x, Floats y, Floats z) {  // x * y + z
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Floats fnma(Floats x, Floats y, Floats z) {  // z - x * y
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
// The second where either is not a number.
inline Floats larger(Floats x, Floats y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Floats smaller(Floats x, Floats y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline Floats magnitude(Floats x) {
  __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
// y where x < limit, else z.
inline Floats where_less(Floats x, Floats limit, Floats y, Floats z) {
  return {_mm256_blendv_ps(z.a, y.a, _mm256_cmp_ps(x.a, limit.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(z.b, y.b, _mm256_cmp_ps(x.b, limit.b, _CMP_LT_OQ))};
}
inline Floats with_sign(Floats size, Floats sign) {
  __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(size.a, _mm256_and_ps(sign.a, bit)), _mm256_or_ps(size.b, _mm256_and_ps(sign.b, bit))};
}
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline Ints nearest(Floats x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline Floats rounded(Floats x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Ints operator+(Ints x, Ints y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline Ints shift_left(Ints x, int count) { return {_mm256_slli_epi32(x.a, count), _mm256_slli_epi32(x.b, count)}; }
inline Ints shift_right(Ints x, int count) { return {_mm256_srai_epi32(x.a, count), _mm256_srai_epi32(x.b, count)}; }
inline Ints bits_of(Floats x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline Floats as_floats(Ints x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline Bytes operator&(Bytes x, Bytes y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline Bytes operator|(Bytes x, Bytes y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline Bytes operator^(Bytes x, Bytes y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline Bytes operator-(Bytes x, Bytes y) { return {_mm256_sub_epi8(x.a, y.a), _mm256_sub_epi8(x.b, y.b)}; }
inline Bytes up(Bytes x, int count) { return {_mm256_slli_epi32(x.a, count), _mm256_slli_epi32(x.b, count)}; }
inline Bytes down(Bytes x, int count) { return {_mm256_srli_epi32(x.a, count), _mm256_srli_epi32(x.b, count)}; }
inline Bytes look_up(__m128i table, Bytes codes) {
  __m256i both = _mm256_broadcastsi128_si256(table);
  return {_mm256_shuffle_epi8(both, codes.a), _mm256_shuffle_epi8(both, codes.b)};
}
inline __m128i eight_halves(const std::byte* in) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in)); }
inline Floats load_f16(const std::byte* in) {
  return {_mm256_cvtph_ps(eight_halves(in)), _mm256_cvtph_ps(eight_halves(in + 16))};
}
inline Floats load_bf16(const std::byte* in) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight_halves(in)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight_halves(in + 16)), 16))};
}
inline void store_f16(std::byte* out, Floats x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline Ints load_u16(const std::byte* in) {
  return {_mm256_cvtepu16_epi32(eight_halves(in)), _mm256_cvtepu16_epi32(eight_halves(in + 16))};
}
inline Ints load_s16(const std::byte* in) {
  return {_mm256_cvtepi16_epi32(eight_halves(in)), _mm256_cvtepi16_epi32(eight_halves(in + 16))};
}
inline Ints load_u8(const std::byte* in) {
  __m128i bytes = eight_halves(in);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline Ints low_byte(Ints x) {
  __m256i mask = _mm256_set1_epi32(255);
  return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
// Sixteen int8, from what is within their range.
inline void store_int8(int8_t* out, Ints x) {
  __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
}
// Two lanes' worth of bytes as int16 pairs, [lane][2].
inline Ints pairs_of_bytes(const std::byte* in, bool is_signed) {
  __m128i low = eight_halves(in), high = eight_halves(in + 16);
  if (is_signed) return {_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(high)};
  return {_mm256_cvtepu8_epi16(low), _mm256_cvtepu8_epi16(high)};
}

// Lanes summed by halving.
inline float sum_lanes(Floats x) {
  __m256 half = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
inline float largest_lane(Floats x) {
  __m256 half = _mm256_max_ps(x.a, x.b);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// Sums of four products by way of 16 bits: codes up to 7 bits cannot overflow them. Wider ones, which stand for the
// value plus 128, are taken apart into size and sign.
inline __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}
template <bool wide>
inline Ints dot(Ints sum, Bytes codes, const int8_t* four) {
  int32_t bits;
  std::memcpy(&bits, four, 4);
  __m256i x = _mm256_set1_epi32(bits);
  if constexpr (wide) {
    Bytes value = codes ^ splat_byte(128);
    return {dot_half(sum.a, _mm256_abs_epi8(value.a), _mm256_sign_epi8(x, value.a)),
            dot_half(sum.b, _mm256_abs_epi8(value.b), _mm256_sign_epi8(x, value.b))};
  }
  return {dot_half(sum.a, codes.a, x), dot_half(sum.b, codes.b, x)};
}
// Each lane: sum + a pair of int16 times a pair of the row's.
inline Ints dot_pairs(Ints sum, Ints pairs, const int16_t* two) {
  int32_t bits;
  std::memcpy(&bits, two, 4);
  __m256i x = _mm256_set1_epi32(bits);
  return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(pairs.a, x)),
          _mm256_add_epi32(sum.b, _mm256_madd_epi16(pairs.b, x))};
}
constexpr bool kSignedDots = true;  // dots of wide codes take off their offset of 128 themselves
#endif

// Value i of `count` goes through function(vector, i, how many exist). Each value's result depends on itself only, so
// where a tail begins cannot show.
template <class F>
inline void map_floats(int64_t count, const float* in, float* out, F function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, function(load(in + i), i, kLanes));
  if (i < count) store_some(out + i, function(load_some(in + i, count - i), i, count - i), count - i);
}

// e^x to about one unit in the last place; 0 below -87.3, e^88.7 from there on; NaN stays NaN.
inline Floats exp_f32(Floats x) {
  Floats low = splat(-87.3f), start = x;
  x = smaller(splat(88.7f), larger(low, x));
  Floats n = rounded(x * splat(1.44269504f));
  Floats r = fnma(n, splat(1.42860677e-6f), fnma(n, splat(0.693145752f), x));
  // Minimax of (e^r - 1 - r) / r^2 on [-ln2/2, ln2/2].
  Floats p = splat(1.37805939e-3f);
  p = fma(p, r, splat(8.37312452e-3f));
  p = fma(p, r, splat(4.16695364e-2f));
  p = fma(p, r, splat(1.66664720e-1f));
  p = fma(p, r, splat(4.99999851e-1f));
  Floats e = fma(p, r * r, r) + splat(1.0f);
  Ints bits = bits_of(e) + shift_left(nearest(n), 23);
  return where_less(start, low, splat(0), as_floats(bits));
}

inline float exp_f32(float x) {
  float out[kLanes];
  store(out, exp_f32(splat(x)));
  return out[0];
}

// Near zero, where 1 - 2 / (e^2x + 1) would cancel, x and an odd polynomial (Cephes).
inline Floats tanh_f32(Floats x) {
  Floats one = splat(1.0f), far = one - splat(2.0f) / (exp_f32(x + x) + one), square = x * x;
  Floats p = splat(-5.70498872745e-3f);
  p = fma(p, square, splat(2.06390887954e-2f));
  p = fma(p, square, splat(-5.37397155531e-2f));
  p = fma(p, square, splat(1.33314422036e-1f));
  p = fma(p, square, splat(-3.33332819422e-1f));
  return where_less(magnitude(x), splat(0.625f), fma(p * square, x, x), far);
}

// Abramowitz and Stegun 7.1.26: within 1.5e-7.
inline Floats erf_f32(Floats x) {
  Floats one = splat(1.0f), t = one / fma(magnitude(x), splat(0.3275911f), one);
  Floats p = splat(1.061405429f);
  p = fma(p, t, splat(-1.453152027f));
  p = fma(p, t, splat(1.421413741f));
  p = fma(p, t, splat(-0.284496736f));
  p = fma(p, t, splat(0.254829592f));
  return with_sign(one - p * t * exp_f32(splat(0) - x * x), x);
}

}  // namespace
}  // namespace millrace::cpu

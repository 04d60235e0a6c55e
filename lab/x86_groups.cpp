// In which order should tiles be loaded, multiplied, stored and their sums scaled where weights have a factor per 32 or
// 256 inputs? Build on a machine with AMX:
//   g++ -std=c++20 -O3 -Isrc -march=sapphirerapids -pthread lab/x86_groups.cpp -o groups && ./groups
#include "x86_parts.h"

namespace millrace::cpu {
namespace {

// Groups of 32: rows are int8 numbers times a power of two, as bfloat16 [tiles][groups][1 KB]; weights are numbers of
// four bits or int8, made bfloat16 a segment at a time; sums of a group come out exact and are scaled once.
constexpr int64_t kGroups = kInputs / 32;
alignas(64) uint16_t nibble_table[32];

struct Nibbles {
  static constexpr int64_t kBytes = 32 + 256;
  static void widen(const std::byte* from, std::byte* tile, float* factors) {
    store(factors, load_f16(from));
    const __m512i table = _mm512_load_si512(nibble_table);
    for (int v = 0; v < 4; ++v) {
      __m512i x = _mm512_loadu_si512(from + 32 + 64 * v);
      _mm512_store_si512(tile + 256 * v, _mm512_permutexvar_epi16(x, table));
      _mm512_store_si512(tile + 256 * v + 64, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 4), table));
      _mm512_store_si512(tile + 256 * v + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 8), table));
      _mm512_store_si512(tile + 256 * v + 192, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 12), table));
    }
  }
};
struct Int8 {
  static constexpr int64_t kBytes = 32 + 512;
  static __m512i from_words(__m512i words) {
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(words)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1)));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }
  static void widen(const std::byte* from, std::byte* tile, float* factors) {
    store(factors, load_f16(from));
    for (int v = 0; v < 8; ++v) {
      __m512i x = _mm512_loadu_si512(from + 32 + 64 * v);
      std::byte* to = tile + 256 * (v % 4) + 64 * (v / 4);
      _mm512_store_si512(to, from_words(_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8)));
      _mm512_store_si512(to + 128, from_words(_mm512_srai_epi16(x, 8)));
    }
  }
};
// The same by arithmetic on pairs of 16 bits: 128 + seven bits is 0x4300 with those bits, less 128 or 256 in float32.
struct Int8ByShift {
  static constexpr int64_t kBytes = 32 + 512;
  static void widen(const std::byte* from, std::byte* tile, float* factors) {
    store(factors, load_f16(from));
    const __m512i bias = _mm512_set1_epi32(0x4B400000 + 128 * 0), mask = _mm512_set1_epi32(255);
    const __m512 less = _mm512_set1_ps(12582912.0f + 128.0f);
    const __m512i top = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (int v = 0; v < 8; ++v) {  // bytes are the value plus 128
      __m512i x = _mm512_loadu_si512(from + 32 + 64 * v);
      auto lane = [&](int shift) {
        __m512i bits = _mm512_ternarylogic_epi32(_mm512_srli_epi32(x, static_cast<unsigned>(shift)), mask, bias, 0xEA);
        return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(bits), less));
      };
      __m512i a = lane(0), b = lane(8), c = lane(16), d = lane(24);
      std::byte* to = tile + 256 * (v % 4) + 64 * (v / 4);
      _mm512_store_si512(to, _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), c, top, 0xF8));
      _mm512_store_si512(to + 128, _mm512_ternarylogic_epi32(_mm512_srli_epi32(b, 16), d, top, 0xF8));
    }
  }
};

void scaled_dots(const std::byte* a, const std::byte* b, int64_t b_next, std::byte* out) {
  tile_load<4>(a, 64), tile_load<6>(b, 64);
  tile_zero<0>(), tile_dot_bf16<0, 4, 6>();
  tile_load<7>(b + b_next, 64);
  tile_zero<1>(), tile_dot_bf16<1, 4, 7>();
  tile_load<5>(a + kGroups * kTile, 64);
  tile_zero<2>(), tile_dot_bf16<2, 5, 6>();
  tile_zero<3>(), tile_dot_bf16<3, 5, 7>();
  tile_store<0>(out, 64), tile_store<1>(out + kTile, 64), tile_store<2>(out + 2 * kTile, 64);
  tile_store<3>(out + 3 * kTile, 64);
}

// sums [16][16] of one tile += those of `groups` tiles in the ring, each times its factors.
template <int groups>
void scale_tile(const std::byte* ring, const float* factors, float* sums) {
  Floats total[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) total[r] = load(sums + 16 * r);
#pragma GCC unroll 4
  for (int g = 0; g < groups; ++g) {
    Floats factor = load(factors + 16 * g);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
      total[r] = fma(load(reinterpret_cast<const float*>(ring + g * 4 * kTile + r * 64)), factor, total[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) store(sums + 16 * r, total[r]);
}

// Two tiles of rows by two panels, sums of G groups scaled while the next G are multiplied. Mode 0: all; 1: without
// scaling; 2: without widening (after the first).
template <class F, int G, int panels, int mode = 0, int64_t kSegment = 16>
void scaled_part(Room& room, int64_t round) {
  TileShapes shapes;
  shape_all(shapes);
  Tiles tiles(shapes);
  constexpr int64_t kWidePanel = kSegment * (kTile + 64);
  const std::byte* weights = room.weights + round % 8 * (kOutputs / 16 * kGroups * F::kBytes);
  for (int64_t output = 0; output < kOutputs / 16; output += panels) {
    std::memset(room.sums, 0, static_cast<size_t>(kRows * panels * 16 * 4));
    for (int64_t first = 0; first < kGroups; first += kSegment) {
      for (int64_t p = 0; p < panels && (mode != 2 || (output == 0 && first == 0)); ++p) {
        std::byte* wide = room.wide + p * kWidePanel;
        for (int64_t g = 0; g < kSegment; ++g)
          F::widen(weights + ((output + p) * kGroups + first + g) * F::kBytes, wide + g * kTile,
                   reinterpret_cast<float*>(wide + kSegment * kTile) + 16 * g);
      }
      const float *old_first = nullptr, *old_second = nullptr;
      float* old_sums = nullptr;
      int turn = 0;
      auto scale = [&](int q, const std::byte* ring) {
        scale_tile<G>(ring + q * kTile, q % 2 == 0 ? old_first : old_second,
                      old_sums + q % 2 * 256 + q / 2 * (panels * 256));
      };
      for (int64_t p = 0; p < panels; p += 2) {
        const std::byte* wide = room.wide + p * kWidePanel;
        for (int64_t t = 0; t < kRows / 16; t += 2) {
          const std::byte* rows = room.rows + (t * kGroups + first) * kTile;
          for (int64_t g = 0; g < kSegment; g += G, turn ^= 1) {
            std::byte *now = room.ring + turn * (G * 4 * kTile), *before = room.ring + (turn ^ 1) * (G * 4 * kTile);
#pragma GCC unroll 4
            for (int i = 0; i < G; ++i) {
              scaled_dots(rows + (g + i) * kTile, wide + (g + i) * kTile, kWidePanel, now + i * 4 * kTile);
              if (old_sums == nullptr || mode == 1) continue;
#pragma GCC unroll 4
              for (int q = i * (4 / G); q < (i + 1) * (4 / G); ++q) scale(q, before);
            }
            old_first = reinterpret_cast<const float*>(wide + kSegment * kTile) + 16 * g;
            old_second = old_first + kWidePanel / 4;
            old_sums = room.sums + t * (panels * 256) + p * 256;
          }
        }
      }
      for (int q = 0; q < 4 && mode != 1; ++q) scale(q, room.ring + (turn ^ 1) * (G * 4 * kTile));
    }
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t p = 0; p < panels; ++p)
        store(room.out + r * kOutputs + (output + p) * 16,
              load(room.sums + r / 16 * (panels * 256) + p * 256 + r % 16 * 16));
  }
}

// One tile of rows by one panel at a time, totals in registers, stored `behind` products later.
template <class F, int behind>
void scaled_one(Room& room, int64_t round) {
  constexpr int64_t kSegment = 16;
  TileShapes shapes;
  shape_all(shapes);
  Tiles tiles(shapes);
  constexpr int64_t kWidePanel = kSegment * (kTile + 64);
  constexpr int panels = 4;
  const std::byte* weights = room.weights + round % 8 * (kOutputs / 16 * kGroups * F::kBytes);
  for (int64_t output = 0; output < kOutputs / 16; output += panels) {
    std::memset(room.sums, 0, static_cast<size_t>(kRows * panels * 16 * 4));
    for (int64_t first = 0; first < kGroups; first += kSegment) {
      for (int64_t p = 0; p < panels; ++p) {
        std::byte* wide = room.wide + p * kWidePanel;
        for (int64_t g = 0; g < kSegment; ++g)
          F::widen(weights + ((output + p) * kGroups + first + g) * F::kBytes, wide + g * kTile,
                   reinterpret_cast<float*>(wide + kSegment * kTile) + 16 * g);
      }
      for (int64_t t = 0; t < kRows / 16; ++t) {
        const std::byte* rows = room.rows + (t * kGroups + first) * kTile;
        for (int64_t p = 0; p < panels; ++p) {
          const std::byte* wide = room.wide + p * kWidePanel;
          const float* factors = reinterpret_cast<const float*>(wide + kSegment * kTile);
          float* sums = room.sums + (t * panels + p) * 256;
          Floats total[16];
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r) total[r] = load(sums + 16 * r);
          auto dot = [&]<int i>(int64_t g) {
            tile_load<4 + i % 2 * 2>(rows + g * kTile, 64), tile_load<5 + i % 2 * 2>(wide + g * kTile, 64);
            tile_zero<i>(), tile_dot_bf16<i, 4 + i % 2 * 2, 5 + i % 2 * 2>();
          };
          auto keep = [&]<int i>(int64_t g) { tile_store<i>(room.ring + g % 8 * kTile, 64); };
          auto scale = [&](int64_t g) {
            Floats factor = load(factors + 16 * g);
#pragma GCC unroll 16
            for (int r = 0; r < 16; ++r)
              total[r] =
                  fma(load(reinterpret_cast<const float*>(room.ring + g % 8 * kTile + r * 64)), factor, total[r]);
          };
          auto step = [&]<int i>(int64_t g) {
            if (g < kSegment) dot.template operator()<i>(g);
            int64_t kept = g - 2;
            if (kept >= 0 && kept < kSegment) keep.template operator()<(i + 2) % 4>(kept);
            if (g - 2 - behind >= 0 && g - 2 - behind < kSegment) scale(g - 2 - behind);
          };
          for (int64_t g = 0; g < kSegment + 2 + behind; g += 4) {
            step.template operator()<0>(g), step.template operator()<1>(g + 1), step.template operator()<2>(g + 2);
            step.template operator()<3>(g + 3);
          }
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r) store(sums + 16 * r, total[r]);
        }
      }
    }
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t p = 0; p < panels; ++p)
        store(room.out + r * kOutputs + (output + p) * 16,
              load(room.sums + r / 16 * (panels * 256) + p * 256 + r % 16 * 16));
  }
}

// As the product had it: int8, a factor on both sides, each tile stored right after its product.
void before_part(Room& room, int64_t round) {
  TileShapes shapes;
  for (int t : {0, 1, 2, 3}) shapes.set(t, 16, 64);
  for (int t : {4, 6}) shapes.set(t, 16, 32);
  for (int t : {5, 7}) shapes.set(t, 8, 64);
  Tiles tiles(shapes);
  constexpr int64_t kRowsGroup = 16 * 40, kWideGroup = 640, panels = 4, kSegment = 16;
  const std::byte* weights = room.weights + round % 8 * (kOutputs / 16 * kGroups * Nibbles::kBytes);
  auto one = [&]<int c, int a, int b>(const std::byte* rows, const std::byte* wide, std::byte* out) {
    tile_load<a>(rows, 32), tile_load<b>(wide + 128, 64), tile_zero<c>(), tile_dot_signed<c, a, b>();
    tile_store<c>(out, 64);
  };
  auto four = [&](const std::byte* rows, const std::byte* wide, std::byte* out) {
    one.operator()<0, 4, 5>(rows, wide, out);
    one.operator()<1, 6, 7>(rows + kRowsGroup, wide + kWideGroup, out + kTile);
    one.operator()<2, 4, 5>(rows + 2 * kRowsGroup, wide + 2 * kWideGroup, out + 2 * kTile);
    one.operator()<3, 6, 7>(rows + 3 * kRowsGroup, wide + 3 * kWideGroup, out + 3 * kTile);
  };
  for (int64_t output = 0; output < kOutputs / 16; output += panels) {
    std::memset(room.sums, 0, static_cast<size_t>(kRows * panels * 16 * 4));
    for (int64_t first = 0; first < kGroups; first += kSegment) {
      for (int64_t p = 0; p < panels; ++p) {
        for (int64_t g = 0; g < kSegment; ++g) {
          const std::byte* from = weights + ((output + p) * kGroups + first + g) * Nibbles::kBytes;
          std::byte* to = room.wide + (p * kSegment + g) * kWideGroup;
          store(reinterpret_cast<float*>(to), load_f16(from));
          for (int v = 0; v < 4; ++v) {
            Bytes x = load_bytes(from + 32 + 64 * v);
            store_bytes(to + 128 + 64 * v, (x & splat_byte(15)) - splat_byte(8));
            store_bytes(to + 384 + 64 * v, (down(x, 4) & splat_byte(15)) - splat_byte(8));
          }
        }
      }
      for (int64_t t = 0; t < kRows / 16; ++t) {
        for (int64_t p = 0; p < panels; ++p) {
          const std::byte *rows = room.rows + (t * kGroups + first) * kRowsGroup,
                          *wide = room.wide + p * kSegment * kWideGroup;
          float* sums = room.sums + (t * panels + p) * 256;
          Floats total[16];
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r) total[r] = load(sums + 16 * r);
          four(rows, wide, room.ring);
          for (int64_t g = 0; g < kSegment; g += 4) {
            if (g + 4 < kSegment)
              four(rows + (g + 4) * kRowsGroup, wide + (g + 4) * kWideGroup, room.ring + (g / 4 + 1) % 2 * 4 * kTile);
            for (int64_t i = 0; i < 4; ++i) {
              Floats factor = load(reinterpret_cast<const float*>(wide + (g + i) * kWideGroup));
              const float* of_rows = reinterpret_cast<const float*>(rows + (g + i) * kRowsGroup + 512);
#pragma GCC unroll 16
              for (int r = 0; r < 16; ++r) {
                Ints whole{_mm512_load_si512(room.ring + (g / 4 % 2 * 4 + i) * kTile + r * 64)};
                total[r] = fma(to_floats(whole), factor * splat(of_rows[r]), total[r]);
              }
            }
          }
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r) store(sums + 16 * r, total[r]);
        }
      }
    }
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t p = 0; p < panels; ++p)
        store(room.out + r * kOutputs + (output + p) * 16, load(room.sums + r / 16 * 1024 + p * 256 + r % 16 * 16));
  }
}

// Groups of 256 with scales of six bits (Q4_K): a scale is 8 a + b, codes times a and codes times b are bytes, and
// their sums over 256 inputs stay in two tiles. Rows per group: int8 [4][16 rows][64], factors [16], sums [16][8].
constexpr int64_t kSuperRows = 4 * kTile + 64 + 256, kSupers = kInputs / 256;
constexpr int64_t kSuperWeights = 64 + 128 + 128 + 2048, kSuperWide = 8 * kTile + 128 + 256;

void widen_super(const std::byte* from, std::byte* to) {
  float* factors = reinterpret_cast<float*>(to + 8 * kTile);
  store(factors, load_f16(from)), store(factors + 16, load_f16(from + 32));
  for (int pair = 0; pair < 4; ++pair)
    _mm512_store_si512(to + 8 * kTile + 128 + 64 * pair, pairs_of_bytes(from + 192 + 32 * pair, false).v);
  const __m512i low = _mm512_set1_epi8(15), seven = _mm512_set1_epi32(7);
  for (int span = 0; span < 8; ++span) {
    __m512i both =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 64 + span / 2 * 32)));
    __m512i scale = span % 2 == 0 ? _mm512_and_si512(both, _mm512_set1_epi32(63)) : _mm512_srli_epi32(both, 8);
    __m512i a = _mm512_and_si512(_mm512_srli_epi32(scale, 3), seven), b = _mm512_and_si512(scale, seven);
    a = _mm512_or_si512(a, _mm512_slli_epi32(a, 16)), b = _mm512_or_si512(b, _mm512_slli_epi32(b, 16));
    std::byte* tile = to + span / 2 * 2 * kTile + span % 2 * 512;
    for (int v = 0; v < 4; ++v) {
      __m512i x = _mm512_loadu_si512(from + 320 + span * 256 + 64 * v);
      __m512i first = _mm512_and_si512(x, low), second = _mm512_and_si512(_mm512_srli_epi32(x, 4), low);
      _mm512_store_si512(tile + 64 * v, _mm512_mullo_epi16(first, a));
      _mm512_store_si512(tile + 256 + 64 * v, _mm512_mullo_epi16(second, a));
      _mm512_store_si512(tile + kTile + 64 * v, _mm512_mullo_epi16(first, b));
      _mm512_store_si512(tile + kTile + 256 + 64 * v, _mm512_mullo_epi16(second, b));
    }
  }
}

void finish_super(const std::byte* ring, const std::byte* rows, const std::byte* wide, float* sums, int begin) {
  const float* factors = reinterpret_cast<const float*>(wide + 8 * kTile);
  const float* of_rows = reinterpret_cast<const float*>(rows + 4 * kTile);
  const int16_t* of_sums = reinterpret_cast<const int16_t*>(rows + 4 * kTile + 64);
  Floats factor = load(factors), least_factor = load(factors + 16);
  Ints taken[4];
#pragma GCC unroll 4
  for (int pair = 0; pair < 4; ++pair) taken[pair] = {_mm512_load_si512(wide + 8 * kTile + 128 + 64 * pair)};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    int r = begin + i;
    Ints high{_mm512_load_si512(ring + r * 64)}, low{_mm512_load_si512(ring + kTile + r * 64)};
    Floats of_row = splat(of_rows[r]), total = load(sums + 16 * r);
    total = fma(to_floats(shift_left(high, 3) + low), factor * of_row, total);
    Ints off = splat_int(0);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) off = dot_pairs(off, taken[pair], of_sums + r * 8 + 2 * pair);
    store(sums + 16 * r, fnma(to_floats(off), least_factor * of_row, total));
  }
}

template <int panels, int mode = 0>
void super_part(Room& room, int64_t round) {
  TileShapes shapes;
  shape_all(shapes);
  Tiles tiles(shapes);
  const std::byte* weights = room.weights + round % 8 * (kOutputs / 16 * kSupers * kSuperWeights);
  for (int64_t output = 0; output < kOutputs / 16; output += panels) {
    std::memset(room.sums, 0, static_cast<size_t>(kRows * panels * 16 * 4));
    for (int64_t group = 0; group < kSupers; ++group) {
      for (int64_t p = 0; p < panels && (mode != 2 || (output == 0 && group == 0)); ++p)
        widen_super(weights + ((output + p) * kSupers + group) * kSuperWeights, room.wide + p * kSuperWide);
      const std::byte *old_rows = nullptr, *old_wide = nullptr;
      float* old_sums = nullptr;
      int turn = 0;
      auto finish = [&](int i, const std::byte* ring) {
        finish_super(ring + i / 2 * 2 * kTile, old_rows + i / 2 * kSupers * kSuperRows, old_wide,
                     old_sums + i / 2 * panels * 256, i % 2 * 8);
      };
      for (int64_t p = 0; p < panels; ++p) {
        const std::byte* wide = room.wide + p * kSuperWide;
        for (int64_t t = 0; t < kRows / 16; t += 2, turn ^= 1) {
          const std::byte* rows = room.rows + (t * kSupers + group) * kSuperRows;
          std::byte *out = room.ring + turn * 4 * kTile, *before = room.ring + (turn ^ 1) * 4 * kTile;
          tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            tile_load<4>(rows + i * kTile, 64), tile_load<6>(wide + 2 * i * kTile, 64);
            tile_dot_codes<0, 4, 6>();
            tile_load<5>(rows + kSupers * kSuperRows + i * kTile, 64);
            tile_dot_codes<2, 5, 6>();
            tile_load<7>(wide + (2 * i + 1) * kTile, 64);
            tile_dot_codes<1, 4, 7>();
            tile_dot_codes<3, 5, 7>();
            if (old_rows != nullptr && mode != 1) finish(i, before);
          }
          tile_store<0>(out, 64), tile_store<1>(out + kTile, 64), tile_store<2>(out + 2 * kTile, 64);
          tile_store<3>(out + 3 * kTile, 64);
          old_rows = rows, old_wide = wide, old_sums = room.sums + t * panels * 256 + p * 256;
        }
      }
      for (int i = 0; i < 4 && mode != 1; ++i) finish(i, room.ring + (turn ^ 1) * 4 * kTile);
    }
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t p = 0; p < panels; ++p)
        store(room.out + r * kOutputs + (output + p) * 16,
              load(room.sums + r / 16 * (panels * 256) + p * 256 + r % 16 * 16));
  }
}

}  // namespace
}  // namespace millrace::cpu

using namespace millrace::cpu;

int main() {
  if (!lab::allow_tiles()) return std::puts("no AMX here"), 1;
  for (int i = 0; i < 32; ++i) {
    float value = static_cast<float>(i % 16 - 8);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    nibble_table[i] = static_cast<uint16_t>(bits >> 16);
  }
  std::vector<Room> rooms = make_rooms();
  find_cycle();
  part("g32 as is (Q4_0)", before_part, rooms);
  part("g32 bf16 1x1, 1 behind", scaled_one<Nibbles, 1>, rooms);
  part("g32 bf16 1x1, 2 behind", scaled_one<Nibbles, 2>, rooms);
  part("g32 bf16 2x2 G4", scaled_part<Nibbles, 4, 4>, rooms);
  part("g32 bf16 2x2 G2", scaled_part<Nibbles, 2, 4>, rooms);
  part("g32 bf16 2x2 G4, 2 panels", scaled_part<Nibbles, 4, 2>, rooms);
  part("g32 bf16 2x2 G4 segment 8", scaled_part<Nibbles, 4, 4, 0, 8>, rooms);
  part("g32 bf16 2x2 G2 segment 8", scaled_part<Nibbles, 2, 4, 0, 8>, rooms);
  part("g32 bf16 2x2 G1 segment 8", scaled_part<Nibbles, 1, 4, 0, 8>, rooms);
  part("g32 bf16 2x2 G4 no scaling", scaled_part<Nibbles, 4, 4, 1>, rooms);
  part("g32 bf16 2x2 G2 s8 no scaling", scaled_part<Nibbles, 2, 4, 1, 8>, rooms);
  part("g32 bf16 2x2 G1 s8 no scaling", scaled_part<Nibbles, 1, 4, 1, 8>, rooms);
  part("g32 bf16 2x2 G1 s8, 2 panels", scaled_part<Nibbles, 1, 2, 0, 8>, rooms);
  part("g32 bf16 2x2 G4 no widening", scaled_part<Nibbles, 4, 4, 2>, rooms);
  part("g32 bf16 2x2 G4 Q8_0", scaled_part<Int8, 4, 4>, rooms);
  part("g32 bf16 2x2 G4 Q8_0 shifts", scaled_part<Int8ByShift, 4, 4>, rooms);
  part("g256 two tiles, 4 panels", super_part<4>, rooms);
  part("g256 two tiles, 2 panels", super_part<2>, rooms);
  part("g256 without finishing", super_part<4, 1>, rooms);
  part("g256 without widening", super_part<4, 2>, rooms);
}

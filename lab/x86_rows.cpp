// One row times weights that come from memory: how many streams, how early should lines be asked for, and how much
// arithmetic is there room for? GB/s of weights on 1, 8 and 16 threads. Build on a machine with AMX:
//   g++ -std=c++20 -O3 -Isrc -march=sapphirerapids -pthread lab/x86_rows.cpp -o rows && ./rows
// With an argument it measures only what begins with it.
#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/simd.h"
#include "x86_lab.h"
#include "x86_split.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kInputs = 2048, kGroups = kInputs / 32, kTile = kTileBytes;
constexpr int64_t total_bytes = int64_t{768} << 20;
const char* wanted = "";
std::byte* weights;
alignas(64) int8_t row[2 * kInputs + 4096];
alignas(64) float factors[kGroups];
alignas(64) int32_t starts[kGroups];
alignas(64) std::byte row16[4 * kInputs];
alignas(64) float results[64][64];

enum Hint { kNone, kFirst, kSecond };  // which cache a line is asked into
template <Hint hint>
inline void ask(const std::byte* at) {
  if constexpr (hint == kFirst) __builtin_prefetch(at, 0, 3);
  if constexpr (hint == kSecond) __builtin_prefetch(at, 0, 2);
}

// Reading and nothing else.
template <int streams, Hint hint, int ahead>
void read_only(const std::byte* from, int64_t bytes, int thread) {
  int64_t each = bytes / streams / 4096 * 4096;
  __m512i sum[streams] = {};
  for (int64_t at = 0; at < each; at += 256) {
#pragma GCC unroll 8
    for (int s = 0; s < streams; ++s) {
#pragma GCC unroll 4
      for (int i = 0; i < 256; i += 64) {
        ask<hint>(from + s * each + at + i + ahead);
        sum[s] = _mm512_xor_si512(sum[s], _mm512_loadu_si512(from + s * each + at + i));
      }
    }
  }
  for (int s = 1; s < streams; ++s) sum[0] = _mm512_xor_si512(sum[0], sum[s]);
  _mm512_storeu_si512(results[thread], sum[0]);
}

// Groups of 32, panels of sixteen outputs: factors of all groups, then codes. `parts` of the row's integers: one int8,
// or two that make nine bits.
template <bool nibbles, int panels, int parts, Hint hint, int ahead>
void group32(const std::byte* from, int64_t bytes, int thread) {
  constexpr int64_t kCodes = nibbles ? 256 : 512, kPanel = kGroups * (32 + kCodes);
  for (int64_t at = 0; at + panels * kPanel <= bytes; at += panels * kPanel) {
    Floats total[panels];
    for (int p = 0; p < panels; ++p) total[p] = splat(0);
    for (int64_t g = 0; g < kGroups; ++g) {
      const int8_t *high = row + g * 64, *low = high + 32;
#pragma GCC unroll 4
      for (int p = 0; p < panels; ++p) {
        const std::byte* scales = from + at + p * kPanel + g * 32;
        const std::byte* codes = from + at + p * kPanel + kGroups * 32 + g * kCodes;
        Ints sum = splat_int(starts[g]), first = splat_int(0);
        for (int64_t i = 0; i < kCodes; i += 64) ask<hint>(codes + i + ahead);
        if (g % 2 == 0) ask<hint>(scales + ahead / 16);
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          Bytes w;
          if constexpr (nibbles) {
            Bytes both = load_bytes(codes + s % 4 * 64);
            w = (s < 4 ? both : down(both, 4)) & splat_byte(15);
          } else {
            w = load_bytes(codes + s * 64);
          }
          if constexpr (parts == 2) first = dot<true>(first, w, high + 4 * s);
          sum = dot<true>(sum, w, low + 4 * s);
        }
        if constexpr (parts == 2) sum = (first + first) + sum;
        total[p] = fma(to_floats(sum) * splat(factors[g]), load_f16(scales), total[p]);
      }
    }
    for (int p = 0; p < panels; ++p) store(results[thread] + 16 * p, total[p]);
  }
}

// Sixteen bits by tiles of one row, four panels. Mode 0: bfloat16; 1: float16 by conversions; 2: float16 by shifts.
template <int mode, Hint hint, int ahead>
void sixteen(const std::byte* from, int64_t bytes, int thread) {
  constexpr int64_t kSteps = kInputs / 32, kPanel = kSteps * kTile;
  TileShapes shapes;
  for (int t : {0, 1, 2, 3, 4}) shapes.set(t, 1, 64);
  for (int t : {5, 6, 7}) shapes.set(t, 16, 64);
  Tiles tiles(shapes);
  alignas(64) std::byte room[8 * kTile];
  for (int64_t at = 0; at + 4 * kPanel <= bytes; at += 4 * kPanel) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    for (int64_t s = 0; s < kSteps; ++s) {
      tile_load<4>(row16 + s * 64, 64);
      auto panel = [&]<int p>() {
        const std::byte* tile = from + at + p * kPanel + s * kTile;
        for (int i = 0; i < 1024; i += 64) ask<hint>(tile + i + ahead);
        if constexpr (mode == 0) {
          tile_load<5 + p % 3>(tile, 64);
          tile_dot_bf16<p, 4, 5 + p % 3>();
        } else {
          split_f16<mode - 1>(tile, room + 2 * p * kTile);
          tile_load<5 + p % 3>(room + 2 * p * kTile, 64);
          tile_dot_bf16<p, 4, 5 + p % 3>();
          tile_load<5 + p % 3>(room + 2 * p * kTile + kTile, 64);
          tile_dot_bf16<p, 4, 5 + p % 3>();
        }
      };
      panel.template operator()<0>(), panel.template operator()<1>(), panel.template operator()<2>(),
          panel.template operator()<3>();
    }
    tile_store<0>(results[thread], 64), tile_store<1>(results[thread] + 16, 64);
    tile_store<2>(results[thread] + 32, 64), tile_store<3>(results[thread] + 48, 64);
  }
}

// Sixteen rows, a panel at a time, groups of 32. Mode 0: int8 weights made bfloat16 on the way; 1: the same of four
// bits; 2: int8 weights as they lie, two parts of nine bits by two products, a factor of the row; 3: the same, one
// part.
__m512i from_words(__m512i words) {
  __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(words)));
  __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1)));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

template <int mode, Hint hint, int ahead>
void sixteen_rows(const std::byte* from, int64_t bytes, int thread) {
  constexpr bool kWidens = mode < 2;
  constexpr int64_t kCodes = mode == 1 ? 256 : 512, kPanel = kGroups * (32 + kCodes);
  static std::byte* const rows = lab::memory(kGroups * (2 * kTile + 64));
  TileShapes shapes;
  for (int t : {0, 1, 2, 3}) shapes.set(t, 16, 64);
  for (int t : {4, 6}) shapes.set(t, 16, kWidens ? 64 : 32);
  for (int t : {5, 7}) shapes.set(t, kWidens ? 16 : 8, 64);
  Tiles tiles(shapes);
  alignas(64) std::byte ring[8 * kTile], wide[4 * kTile];
  for (int64_t at = 0; at + kPanel <= bytes; at += kPanel) {
    const std::byte *scales = from + at, *codes = from + at + kGroups * 32;
    Floats total[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) total[r] = splat(0);
    auto step = [&]<int i>(int64_t g) {
      constexpr int a = 4 + i % 2 * 2, b = a + 1;
      if (g < kGroups) {
        const std::byte* code = codes + g * kCodes;
        for (int64_t line = 0; line < kCodes; line += 64) ask<hint>(code + line + ahead);
        if constexpr (mode == 0) {
#pragma GCC unroll 8
          for (int v = 0; v < 8; ++v) {
            __m512i x = _mm512_loadu_si512(code + 64 * v);
            std::byte* to = wide + i * kTile + 256 * (v % 4) + 64 * (v / 4);
            _mm512_store_si512(to, from_words(_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8)));
            _mm512_store_si512(to + 128, from_words(_mm512_srai_epi16(x, 8)));
          }
        } else if constexpr (mode == 1) {
          const __m512i table = _mm512_load_si512(row16);
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) {
            __m512i x = _mm512_loadu_si512(code + 64 * v);
            std::byte* to = wide + i * kTile + 256 * v;
            _mm512_store_si512(to, _mm512_permutexvar_epi16(x, table));
            _mm512_store_si512(to + 64, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 4), table));
            _mm512_store_si512(to + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 8), table));
            _mm512_store_si512(to + 192, _mm512_permutexvar_epi16(_mm512_srli_epi16(x, 12), table));
          }
        } else {
          tile_load<a>(rows + g * kTile, 64), tile_load<b>(code, 64), tile_zero<i>(), tile_dot_signed<i, a, b>();
          if constexpr (mode == 2) tile_load<a>(rows + g * kTile + 32, 64), tile_dot_signed<i, a, b>();
        }
      }
      if constexpr (kWidens) {
        if (g - 1 >= 0 && g - 1 < kGroups) {
          constexpr int j = (i + 3) % 4, c = 4 + j % 2 * 2, d = c + 1;
          tile_load<c>(rows + (g - 1) * kTile, 64), tile_load<d>(wide + j * kTile, 64);
          tile_zero<j>(), tile_dot_bf16<j, c, d>();
        }
      }
      constexpr int kKept = kWidens ? 2 : 1, kScaled = kKept + 2;
      if (g - kKept >= 0 && g - kKept < kGroups) tile_store<(i + 4 - kKept) % 4>(ring + (g - kKept) % 8 * kTile, 64);
      int64_t old = g - kScaled;
      if (old < 0 || old >= kGroups) return;
      Floats factor = load_f16(scales + 32 * old);
      const float* of_rows = reinterpret_cast<const float*>(rows + kGroups * 2 * kTile + old % 16 * 64);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        const std::byte* sum = ring + old % 8 * kTile + r * 64;
        if constexpr (kWidens) {
          total[r] = fma(load(reinterpret_cast<const float*>(sum)), factor, total[r]);
        } else {
          total[r] = fma(to_floats({_mm512_load_si512(sum)}) * splat(of_rows[r]), factor, total[r]);
        }
      }
    };
    for (int64_t g = 0; g < kGroups + 4; g += 4) {
      step.template operator()<0>(g), step.template operator()<1>(g + 1), step.template operator()<2>(g + 2);
      step.template operator()<3>(g + 3);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) store(results[thread] + r % 4 * 16, total[r]);
  }
}

void measure(const char* what, void (*body)(const std::byte*, int64_t, int)) {
  if (std::strncmp(what, wanted, std::strlen(wanted)) != 0) return;
  std::printf("%-26s", what);
  int most = static_cast<int>(std::thread::hardware_concurrency());
  for (int threads : {1, 8, 16}) {
    if (threads > most) continue;
    int64_t bytes = (threads == 1 ? total_bytes / 2 : total_bytes) / threads / 4096 * 4096;
    double took = lab::seconds(threads, 3, [&](int t) { body(weights + t * bytes, bytes, t); });
    std::printf(" %6.1f", static_cast<double>(bytes * threads) / took * 1e-9);
  }
  std::printf("\n");
}

}  // namespace
}  // namespace millrace::cpu

using namespace millrace::cpu;

int main(int argc, char** argv) {
  if (!lab::allow_tiles()) return std::puts("no AMX here"), 1;
  if (argc > 1) wanted = argv[1];
  weights = lab::memory(total_bytes + (1 << 20));
  for (int64_t i = 0; i < kGroups; ++i) factors[i] = 0.01f, starts[i] = static_cast<int32_t>(i);
  for (int64_t i = 0; i < static_cast<int64_t>(sizeof row); ++i) row[i] = static_cast<int8_t>(i * 37 % 127);
  std::memcpy(row16, weights, sizeof row16);
  std::printf("GB/s on                         1      8     16 threads\n");
  measure("read 1 stream", read_only<1, kNone, 0>);
  measure("read 4 streams", read_only<4, kNone, 0>);
  measure("read 1, first 1K", read_only<1, kFirst, 1024>);
  measure("read 1, first 4K", read_only<1, kFirst, 4096>);
  measure("read 1, second 4K", read_only<1, kSecond, 4096>);
  measure("read 1, second 8K", read_only<1, kSecond, 8192>);
  measure("read 1, second 16K", read_only<1, kSecond, 16384>);
  measure("read 4, first 2K", read_only<4, kFirst, 2048>);
  measure("read 4, second 4K", read_only<4, kSecond, 4096>);
  measure("Q8_0 8 bits 2 panels", group32<false, 2, 1, kNone, 0>);
  measure("Q8_0 9 bits 2 panels", group32<false, 2, 2, kNone, 0>);
  measure("Q8_0 9 bits 1 panel", group32<false, 1, 2, kNone, 0>);
  measure("Q8_0 9 bits 4 panels", group32<false, 4, 2, kNone, 0>);
  measure("Q8_0 9b 1, first 2K", group32<false, 1, 2, kFirst, 2048>);
  measure("Q8_0 9b 2, first 1K", group32<false, 2, 2, kFirst, 1024>);
  measure("Q8_0 9b 2, first 4K", group32<false, 2, 2, kFirst, 4096>);
  measure("Q8_0 9b 1, second 4K", group32<false, 1, 2, kSecond, 4096>);
  measure("Q8_0 9b 1, second 8K", group32<false, 1, 2, kSecond, 8192>);
  measure("Q8_0 9b 2, second 4K", group32<false, 2, 2, kSecond, 4096>);
  measure("Q8_0 9b 4, second 4K", group32<false, 4, 2, kSecond, 4096>);
  measure("Q4_0 8 bits 2 panels", group32<true, 2, 1, kNone, 0>);
  measure("Q4_0 9 bits 2 panels", group32<true, 2, 2, kNone, 0>);
  measure("Q4_0 9 bits 4 panels", group32<true, 4, 2, kNone, 0>);
  measure("Q4_0 9b 1, first 2K", group32<true, 1, 2, kFirst, 2048>);
  measure("Q4_0 9b 2, first 1K", group32<true, 2, 2, kFirst, 1024>);
  measure("Q4_0 9b 1, second 4K", group32<true, 1, 2, kSecond, 4096>);
  measure("Q4_0 9b 2, second 4K", group32<true, 2, 2, kSecond, 4096>);
  measure("16 rows Q8_0 bf16", sixteen_rows<0, kNone, 0>);
  measure("16 rows Q8_0 bf16, second", sixteen_rows<0, kSecond, 4096>);
  measure("16 rows Q4_0 bf16", sixteen_rows<1, kNone, 0>);
  measure("16 rows Q4_0 bf16, second", sixteen_rows<1, kSecond, 4096>);
  measure("16 rows Q8_0 int8 9 bits", sixteen_rows<2, kNone, 0>);
  measure("16 rows Q8_0 int8 8 bits", sixteen_rows<3, kNone, 0>);
  measure("16 rows Q8_0 int8 9b, sec", sixteen_rows<2, kSecond, 4096>);
  measure("BF16", sixteen<0, kNone, 0>);
  measure("BF16 second 4K", sixteen<0, kSecond, 4096>);
  measure("F16 conversions", sixteen<1, kNone, 0>);
  measure("F16 shifts", sixteen<2, kNone, 0>);
  measure("F16 shifts, second 4K", sixteen<2, kSecond, 4096>);
  measure("F16 shifts, first 2K", sixteen<2, kFirst, 2048>);
}

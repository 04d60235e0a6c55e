// Compiled for AVX-512 (tests/backend/CMakeLists.txt), so nothing of the standard library that is shared with others.
#include "backend/emulated/tiles.h"

#if defined(__AVX512F__)
#include "backend/cpu/x86/amx/attend_tiles.h"

namespace millrace::testing {
namespace {

using cpu::Floats;

// A sum of products as TDPBF16PS makes it: even and odd inputs apart, then both together, then onto what was there;
// every number too small to be normal is zero.
float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? 0.0f * x : x; }

float widened(uint16_t bits) { return flushed(__builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16)); }

uint16_t rounded_bits(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, flushed(x));
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 64);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct Tile {
  std::byte at[16][64];
};
thread_local Tile tiles[8];
thread_local cpu::TileShapes shapes;

struct PlainTiles {
  struct Configured {
    explicit Configured(const cpu::TileShapes& wanted) { shapes = wanted; }
    ~Configured() { shapes = {}; }
    Configured(const Configured&) = delete;
    Configured& operator=(const Configured&) = delete;
  };
  template <int tile>
  static void zero() {
    __builtin_memset(&tiles[tile], 0, sizeof(Tile));
  }
  template <int tile>
  static void load(const void* from, int64_t stride) {
    zero<tile>();
    for (int r = 0; r < shapes.rows[tile]; ++r)
      __builtin_memcpy(tiles[tile].at[r], static_cast<const std::byte*>(from) + r * stride, shapes.row_bytes[tile]);
  }
  template <int tile>
  static void store(void* to, int64_t stride) {
    for (int r = 0; r < shapes.rows[tile]; ++r)
      __builtin_memcpy(static_cast<std::byte*>(to) + r * stride, tiles[tile].at[r], shapes.row_bytes[tile]);
  }
  template <int sum, int a, int b>
  static void dot() {
    static_assert(sum != a && sum != b && a != b);
    for (int m = 0; m < shapes.rows[sum]; ++m) {
      uint16_t left[32], right[32];
      __builtin_memcpy(left, tiles[a].at[m], 64);
      float even[16] = {}, odd[16] = {}, out[16];
      for (int k = 0; k < shapes.row_bytes[a] / 4; ++k) {
        __builtin_memcpy(right, tiles[b].at[k], 64);
        for (int n = 0; n < 16; ++n) {
          even[n] = flushed(__builtin_fmaf(widened(left[2 * k]), widened(right[2 * n]), even[n]));
          odd[n] = flushed(__builtin_fmaf(widened(left[2 * k + 1]), widened(right[2 * n + 1]), odd[n]));
        }
      }
      __builtin_memcpy(out, tiles[sum].at[m], 64);
      for (int n = 0; n < 16; ++n) out[n] = flushed(flushed(out[n]) + flushed(even[n] + odd[n]));
      __builtin_memcpy(tiles[sum].at[m], out, 64);
    }
  }
  static __m512i round(Floats low, Floats high) {
    alignas(64) float in[32];
    alignas(64) uint16_t out[32];
    cpu::store(in, low), cpu::store(in + 16, high);
    for (int i = 0; i < 32; ++i) out[i] = rounded_bits(in[i]);
    return _mm512_load_si512(out);
  }
};

}  // namespace

bool add_emulated_tiles(cpu::Kernels& kernels) {
  cpu::add_tiles_attend<PlainTiles>(kernels);
  return true;
}

}  // namespace millrace::testing
#else
namespace millrace::testing {
bool add_emulated_tiles(cpu::Kernels&) { return false; }
}  // namespace millrace::testing
#endif

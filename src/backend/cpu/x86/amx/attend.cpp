// Attention by the machine's own tiles.
#include "backend/cpu/x86/amx/attend_tiles.h"
#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

struct MachineTiles {
  using Configured = Tiles;
  template <int tile>
  static void zero() {
    tile_zero<tile>();
  }
  template <int tile>
  static void load(const void* at, int64_t stride) {
    tile_load<tile>(at, stride);
  }
  template <int tile>
  static void store(void* at, int64_t stride) {
    tile_store<tile>(at, stride);
  }
  template <int sum, int a, int b>
  static void dot() {
    tile_dot_bf16<sum, a, b>();
  }
  // Sixteen and sixteen more, as bfloat16.
  static __m512i round(Floats low, Floats high) { return (__m512i)_mm512_cvtne2ps_pbh(high.v, low.v); }
};

}  // namespace

void add_amx_attend(Kernels& kernels) { add_tiles_attend<MachineTiles>(kernels); }

}  // namespace millrace::cpu

// Four sums under way, enough to hide a tile product's latency of 52 cycles.
#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

template <class F>
void run_tiles(int64_t rounds, F four) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
  Tiles tiles(shapes);
  for (int64_t i = 0; i < rounds; ++i) four();
}

void dot_int8(int64_t rounds) {
  run_tiles(rounds, [] {
    tile_dot_signed<0, 4, 6>();
    tile_dot_signed<1, 4, 7>();
    tile_dot_signed<2, 5, 6>();
    tile_dot_signed<3, 5, 7>();
  });
}
void dot_bf16(int64_t rounds) {
  run_tiles(rounds, [] {
    tile_dot_bf16<0, 4, 6>();
    tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<2, 5, 6>();
    tile_dot_bf16<3, 5, 7>();
  });
}

}  // namespace

void add_amx_peak(Kernels& kernels) {
  kernels.peaks[kPeakInt8] = {4 * 2.0 * 16 * 16 * 64, dot_int8};
  kernels.peaks[kPeakBf16] = {4 * 2.0 * 16 * 16 * 32, dot_bf16};
}

}  // namespace millrace::cpu

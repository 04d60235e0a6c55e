// Tiles of AMX. In assembly, because the compilers' own functions do not say that they read and write memory. A tile
// has sixteen rows of 64 bytes, or as many as configure() said; it is a thread's own, so every product configures and
// releases.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/x86/amx/shapes.h"

namespace millrace::cpu {
namespace {

class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory"); }
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int tile>
inline void tile_load(const void* at, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(tile) : "memory");
}
// The same of what is not read again soon: it does not push out what the first cache holds.
template <int tile>
inline void tile_load_far(const void* at, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void tile_store(void* at, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(tile));
}
// sum += a x b: a [rows][inputs], b [inputs / 4][outputs][4].
template <int sum, int a, int b>
inline void tile_dot_signed() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}
template <int sum, int a, int b>
inline void tile_dot_codes() {  // b unsigned
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}
// b [inputs / 2][outputs][2].
template <int sum, int a, int b>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(a), "i"(b));
}

}  // namespace
}  // namespace millrace::cpu

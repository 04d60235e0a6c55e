// What the lab programs for tiles share: a part of a product, 256 rows by 256 outputs of 2048 inputs, measured on one
// thread and on sixteen, in cycles: a cycle is a sixteenth of what a full tile product of int8 takes.
#pragma once

#include "backend/cpu/x86/amx/tile.h"
#include "backend/cpu/x86/simd.h"
#include "x86_lab.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kTile = kTileBytes, kRows = 256, kOutputs = 256, kInputs = 2048;
double cycle = 1e-9 / 3;

void shape_all(TileShapes& shapes, int rows = 16, int inputs_bytes = 64) {
  for (int t : {0, 1, 2, 3}) shapes.set(t, rows, 64);
  for (int t : {4, 5}) shapes.set(t, rows, inputs_bytes);
  for (int t : {6, 7}) shapes.set(t, inputs_bytes / 4, 64);
}

template <class F>
double rate(const TileShapes& shapes, int64_t each, F body) {
  constexpr int64_t kRounds = 200000;
  double best = lab::seconds(1, 3, [&](int) {
    Tiles tiles(shapes);
    for (int64_t i = 0; i < kRounds; ++i) body(i);
  });
  return best / static_cast<double>(kRounds * each);
}
template <class F>
void say(const char* what, const TileShapes& shapes, int64_t each, F body) {
  std::printf("%s %.1f; ", what, rate(shapes, each, body) / cycle);
}

struct Room {
  std::byte *rows, *weights, *wide, *ring;
  float *sums, *out;
};
constexpr int64_t kWeightBytes = int64_t{16} << 20;

template <class F>
void part(const char* what, F body, std::vector<Room>& rooms) {
  std::printf("%-30s", what);
  for (int threads : {1, 16}) {
    if (threads > static_cast<int>(rooms.size())) continue;
    int64_t rounds = threads == 1 ? 24 : 12;
    double took = lab::seconds(threads, 2, [&](int t) {
      for (int64_t i = 0; i < rounds; ++i) body(rooms[static_cast<size_t>(t)], i);
    });
    double operations = 2.0 * kRows * kOutputs * kInputs * static_cast<double>(rounds) * threads;
    std::printf("  %2d: %6.2f TOP/s, %5.1f cycles a tile", threads, operations / took * 1e-12,
                took / cycle / static_cast<double>(rounds) / (kRows * kOutputs * kInputs / 8192));
  }
  std::printf("\n");
}

// Sets the cycle by full tile products of int8.
inline void find_cycle() {
  TileShapes full;
  shape_all(full);
  cycle = rate(full, 4,
               [](int64_t) {
                 tile_dot_signed<0, 4, 6>(), tile_dot_signed<1, 4, 7>(), tile_dot_signed<2, 5, 6>(),
                     tile_dot_signed<3, 5, 7>();
               }) /
          16;
  std::printf("cycle %.4f ns\n", cycle * 1e9);
}

inline std::vector<Room> make_rooms() {
  std::vector<Room> rooms;
  for (int t = 0; t < (std::thread::hardware_concurrency() >= 16 ? 16 : 1); ++t) {
    std::byte* at = lab::memory(kWeightBytes + (int64_t{6} << 20));
    std::byte* end = at + kWeightBytes;
    rooms.push_back({end, at, end + (2 << 20), end + (3 << 20), reinterpret_cast<float*>(end + (4 << 20)),
                     reinterpret_cast<float*>(end + (5 << 20))});
  }
  return rooms;
}

}  // namespace
}  // namespace millrace::cpu

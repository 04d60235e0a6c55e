// What a set of tiles looks like to the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;

// Which shape each of the eight tiles has.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int64_t tile_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

}  // namespace
}  // namespace millrace::cpu

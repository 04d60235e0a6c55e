// How fast are the instructions for tiles, and how should products with weights of 16 bits be laid out for them?
// Build on a machine with AMX:
//   g++ -std=c++20 -O3 -Isrc -march=sapphirerapids -pthread lab/x86_tiles.cpp -o tiles && ./tiles
#include "x86_parts.h"
#include "x86_split.h"

namespace millrace::cpu {
namespace {

void instructions(std::byte* a, std::byte* b, std::byte* out) {
  TileShapes full, half, eight, one;
  shape_all(full), shape_all(half, 16, 32), shape_all(eight, 8, 64), shape_all(one, 1, 64);
  auto four = [](int64_t) {
    tile_dot_signed<0, 4, 6>(), tile_dot_signed<1, 4, 7>(), tile_dot_signed<2, 5, 6>(), tile_dot_signed<3, 5, 7>();
  };
  auto four_bf16 = [](int64_t) {
    tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 4, 7>(), tile_dot_bf16<2, 5, 6>(), tile_dot_bf16<3, 5, 7>();
  };
  say("int8", full, 4, four), say("int8 k32", half, 4, four), say("int8 8 rows", eight, 4, four);
  say("int8 1 row", one, 4, four), say("bf16", full, 4, four_bf16), say("bf16 1 row", one, 4, four_bf16);
  say("int8 one sum", full, 1, [](int64_t) { tile_dot_signed<0, 4, 6>(); });
  say("zero+dot, one register", full, 1, [](int64_t) { tile_zero<0>(), tile_dot_bf16<0, 4, 6>(); });
  say("load", full, 4, [&](int64_t) {
    tile_load<4>(a, 64), tile_load<5>(a + kTile, 64), tile_load<6>(b, 64), tile_load<7>(b + kTile, 64);
  });
  say("load k32", half, 4, [&](int64_t) {
    tile_load<4>(a, 32), tile_load<5>(a + kTile, 32), tile_load<6>(b, 64), tile_load<7>(b + kTile, 64);
  });
  say("store", full, 4, [&](int64_t) {
    tile_store<0>(out, 64), tile_store<1>(out + kTile, 64), tile_store<2>(out + 2 * kTile, 64);
    tile_store<3>(out + 3 * kTile, 64);
  });
  say("store 1 row", one, 4, [&](int64_t) {
    tile_store<0>(out, 64), tile_store<1>(out + kTile, 64), tile_store<2>(out + 2 * kTile, 64);
    tile_store<3>(out + 3 * kTile, 64);
  });
  auto zero_dot_store = [&](int64_t) {
    tile_zero<0>(), tile_dot_bf16<0, 4, 6>(), tile_zero<1>(), tile_dot_bf16<1, 4, 7>();
    tile_zero<2>(), tile_dot_bf16<2, 5, 6>(), tile_zero<3>(), tile_dot_bf16<3, 5, 7>();
    tile_store<0>(out, 64), tile_store<1>(out + kTile, 64), tile_store<2>(out + 2 * kTile, 64);
    tile_store<3>(out + 3 * kTile, 64);
  };
  say("4 dots, 4 stores", full, 4, zero_dot_store);
  say("dot, store", full, 4, [&](int64_t) {
    tile_zero<0>(), tile_dot_bf16<0, 4, 6>(), tile_store<0>(out, 64);
    tile_zero<1>(), tile_dot_bf16<1, 4, 7>(), tile_store<1>(out + kTile, 64);
    tile_zero<2>(), tile_dot_bf16<2, 5, 6>(), tile_store<2>(out + 2 * kTile, 64);
    tile_zero<3>(), tile_dot_bf16<3, 5, 7>(), tile_store<3>(out + 3 * kTile, 64);
  });
  say("4 loads, 4 dots, 4 stores", full, 4, [&](int64_t i) {
    int64_t at = i % 4 * 2 * kTile;
    tile_load<4>(a + at, 64), tile_load<5>(a + at + kTile, 64), tile_load<6>(b + at, 64),
        tile_load<7>(b + at + kTile, 64);
    zero_dot_store(i);
  });
  std::printf("\n");
}

// bfloat16. rows [tiles][steps][1 KB], weights [panels][steps][1 KB].
constexpr int64_t kSteps32 = kInputs / 32, kPanelBytes = kSteps32 * kTile;

template <int ahead>
void bf16_2x2(const std::byte* a, const std::byte* b, int64_t steps, bool fresh, float* sums, int64_t down) {
  if (fresh) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(sums, 64), tile_load<1>(sums + 256, 64), tile_load<2>(sums + down, 64);
    tile_load<3>(sums + down + 256, 64);
  }
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (ahead > 0) {
      for (int i = 0; i < 16; ++i) {
        __builtin_prefetch(a + (s + ahead) * kTile + 64 * i, 0, 3);
        __builtin_prefetch(a + kPanelBytes + (s + ahead) * kTile + 64 * i, 0, 3);
      }
    }
    tile_load<4>(a + s * kTile, 64), tile_load<6>(b + s * kTile, 64);
    tile_dot_bf16<0, 4, 6>();
    tile_load<5>(a + kPanelBytes + s * kTile, 64);
    tile_dot_bf16<2, 5, 6>();
    tile_load<7>(b + kPanelBytes + s * kTile, 64);
    tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<3, 5, 7>();
  }
  tile_store<0>(sums, 64), tile_store<1>(sums + 256, 64), tile_store<2>(sums + down, 64);
  tile_store<3>(sums + down + 256, 64);
}

// Panels pass by a segment of rows (rows_first), or rows by a segment of panels.
template <int segment, int rows, bool rows_first, int ahead>
void bf16_part(Room& room, int64_t round) {
  TileShapes shapes;
  shape_all(shapes);
  Tiles tiles(shapes);
  const std::byte* weights = room.weights + round % 16 * (kOutputs / 16 * kPanelBytes);
  for (int64_t first = 0; first < kRows / 16; first += rows / 16) {
    for (int64_t output = 0; output < kOutputs / 16; output += 4) {
      for (int64_t s = 0; s < kSteps32; s += segment) {
        auto one = [&](int64_t t, int64_t p) {
          bf16_2x2<ahead>(room.rows + (first + t) * kPanelBytes + s * kTile,
                          weights + (output + p) * kPanelBytes + s * kTile, segment, s == 0,
                          room.sums + t * 1024 + p * 256, 1024);
        };
        if constexpr (rows_first) {
          for (int64_t t = 0; t < rows / 16; t += 2) one(t, 0), one(t, 2);
        } else {
          for (int64_t p = 0; p < 4; p += 2)
            for (int64_t t = 0; t < rows / 16; t += 2) one(t, p);
        }
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t p = 0; p < 4; ++p)
          store(room.out + (first * 16 + r) * kOutputs + (output + p) * 16,
                load(room.sums + r / 16 * 1024 + p * 256 + r % 16 * 16));
    }
  }
}

template <int mode, int segment>
void f16_part(Room& room, int64_t round) {
  TileShapes shapes;
  shape_all(shapes);
  Tiles tiles(shapes);
  const std::byte* weights = room.weights + round % 16 * (kOutputs / 16 * kPanelBytes);
  for (int64_t output = 0; output < kOutputs / 16; output += 4) {
    for (int64_t s = 0; s < kSteps32; s += segment) {
      for (int64_t p = 0; p < 4; p += 2) {
        for (int64_t i = 0; i < 2 * segment; ++i)
          split_f16<mode>(weights + (output + p + i / segment) * kPanelBytes + (s + i % segment) * kTile,
                          room.wide + i * 2 * kTile);
        for (int64_t t = 0; t < kRows / 16; t += 2) {
          const std::byte* a = room.rows + t * kPanelBytes + s * kTile;
          float* sums = room.sums + t * 1024 + p * 256;
          if (s == 0) {
            tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
          } else {
            tile_load<0>(sums, 64), tile_load<1>(sums + 256, 64), tile_load<2>(sums + 1024, 64),
                tile_load<3>(sums + 1280, 64);
          }
          for (int64_t i = 0; i < segment; ++i) {
            const std::byte *b = room.wide + i * 2 * kTile, *c = b + segment * 2 * kTile;
            tile_load<4>(a + i * kTile, 64), tile_load<6>(b, 64);
            tile_dot_bf16<0, 4, 6>();
            tile_load<5>(a + kPanelBytes + i * kTile, 64);
            tile_dot_bf16<2, 5, 6>();
            tile_load<7>(c, 64);
            tile_dot_bf16<1, 4, 7>(), tile_dot_bf16<3, 5, 7>();
            tile_load<6>(b + kTile, 64);
            tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<2, 5, 6>();
            tile_load<7>(c + kTile, 64);
            tile_dot_bf16<1, 4, 7>(), tile_dot_bf16<3, 5, 7>();
          }
          tile_store<0>(sums, 64), tile_store<1>(sums + 256, 64), tile_store<2>(sums + 1024, 64),
              tile_store<3>(sums + 1280, 64);
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::cpu

using namespace millrace::cpu;

int main() {
  if (!lab::allow_tiles()) return std::puts("no AMX here"), 1;
  std::vector<Room> rooms = make_rooms();
  find_cycle();
  instructions(rooms[0].rows, rooms[0].weights, rooms[0].ring);
  part("bf16 seg 8, 256 rows (as is)", bf16_part<8, 256, false, 0>, rooms);
  part("bf16 seg 16, 256 rows", bf16_part<16, 256, false, 0>, rooms);
  part("bf16 seg 32, 256 rows", bf16_part<32, 256, false, 0>, rooms);
  part("bf16 seg 64, 256 rows", bf16_part<64, 256, false, 0>, rooms);
  part("bf16 seg 64, 64 rows", bf16_part<64, 64, false, 0>, rooms);
  part("bf16 seg 16, 128 rows", bf16_part<16, 128, false, 0>, rooms);
  part("bf16 seg 16, 256 rows, ask 2", bf16_part<16, 256, false, 2>, rooms);
  part("bf16 seg 16, 256, rows first", bf16_part<16, 256, true, 0>, rooms);
  part("bf16 seg 64, 256, rows first", bf16_part<64, 256, true, 0>, rooms);
  part("f16 seg 8 as is", f16_part<0, 8>, rooms);
  part("f16 seg 8 shifts", f16_part<1, 8>, rooms);
  part("f16 seg 16 shifts", f16_part<1, 16>, rooms);
}

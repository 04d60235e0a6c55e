// How should tiles of bfloat16 be blocked for the caches, and what does it cost to make them of quantised weights? One
// thread, pinned; the least of many short passes, since the machine is shared. Build on a machine with AMX:
//   g++ -std=c++20 -O3 -Isrc -march=sapphirerapids -pthread lab/x86_wide.cpp -o wide && ./wide
#include <sched.h>

#include <functional>

#include "backend/cpu/x86/amx/widen.h"
#include "x86_lab.h"

namespace millrace::cpu {
namespace {

double cycle = 1e-9 / 3;

template <class F>
double least_seconds(int passes, F body) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    double begin = lab::now();
    body();
    best = std::min(best, lab::now() - begin);
  }
  return best;
}

void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void peak(int64_t rounds) {
  TileShapes shapes;
  for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
  Tiles tiles(shapes);
  for (int64_t i = 0; i < rounds; ++i)
    tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 4, 7>(), tile_dot_bf16<2, 5, 6>(), tile_dot_bf16<3, 5, 7>();
}

// Which virtual processors share a core: two that do take twice as long together.
void siblings() {
  for (int other : {1, 2, 3, 4, 8, 15}) {
    double took = lab::seconds(2, 8, [&](int t) {
      pin(t == 0 ? 0 : other);
      peak(20000);
    });
    std::printf("processors 0 and %d: %.1f cycles a product each\n", other, took / cycle / 80000);
  }
}

enum Kind { kPlain, kT1 };
template <int tile, Kind kind>
void take(const void* at) {
  const int64_t stride = 64;
  if constexpr (kind == kPlain) {
    tile_load<tile>(at, 64);
  } else {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(tile) : "memory");
  }
}

constexpr int64_t kRows = 256, kInputs = 2048, kSteps32 = kInputs / 32, kRowTiles = kRows / 16, kPanels = 4;
struct Room {
  std::byte *rows, *weights;
  float* sums;
};

// Two tiles of rows by two panels. ahead: steps that rows are asked for early.
template <Kind rows_kind, int ahead, Kind weights_kind = kPlain>
void two_by_two(const std::byte* a, int64_t a_next, const std::byte* b, int64_t b_next, int64_t steps, bool fresh,
                float* sums, const std::byte* want = nullptr) {
  if (fresh) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
  } else {
    tile_load<0>(sums, 64), tile_load<1>(sums + 256, 64), tile_load<2>(sums + 1024, 64), tile_load<3>(sums + 1280, 64);
  }
  for (int64_t s = 0; s < steps; ++s) {
    if constexpr (ahead > 0) {
      for (int i = 0; i < 16; ++i) {
        __builtin_prefetch(a + (s + ahead) * 1024 + 64 * i, 0, 3);
        __builtin_prefetch(a + a_next + (s + ahead) * 1024 + 64 * i, 0, 3);
      }
    }
    if (want != nullptr) {
      for (int i = 0; i < 4; ++i) __builtin_prefetch(want + (s * 4 + i) * 64, 0, 2);
    }
    take<4, rows_kind>(a + s * 1024);
    take<6, weights_kind>(b + s * 1024);
    tile_dot_bf16<0, 4, 6>();
    take<5, rows_kind>(a + a_next + s * 1024);
    tile_dot_bf16<2, 5, 6>();
    take<7, weights_kind>(b + b_next + s * 1024);
    tile_dot_bf16<1, 4, 7>();
    tile_dot_bf16<3, 5, 7>();
  }
  tile_store<0>(sums, 64), tile_store<1>(sums + 256, 64), tile_store<2>(sums + 1024, 64),
      tile_store<3>(sums + 1280, 64);
}

// Order 0: a pair of panels meets all rows, then the next pair. 1: a pair of row tiles meets all panels, then the next.
template <int64_t segment, Kind rows_kind, int ahead, int order, int64_t row_tiles, Kind weights_kind>
void product(const Room& room, const std::byte* weights) {
  TileShapes shapes;
  for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
  Tiles tiles(shapes);
  constexpr int64_t kLong = kSteps32 * 1024;
  for (int64_t first = 0; first < kRowTiles; first += row_tiles) {
    for (int64_t s = 0; s < kSteps32; s += segment) {
      const int64_t steps = least(segment, kSteps32 - s);
      auto one = [&](int64_t t, int64_t p) {
        two_by_two<rows_kind, ahead, weights_kind>(room.rows + t * kLong + s * 1024, kLong,
                                                   weights + p * kLong + s * 1024, kLong, steps, s == 0,
                                                   room.sums + t * 1024 + p * 256);
      };
      if constexpr (order == 0) {
        for (int64_t p = 0; p < kPanels; p += 2)
          for (int64_t t = first; t < first + row_tiles; t += 2) one(t, p);
      } else {
        for (int64_t t = first; t < first + row_tiles; t += 2)
          for (int64_t p = 0; p < kPanels; p += 2) one(t, p);
      }
    }
  }
}

// Segments of 16, and each pass over a pair of row tiles asks for 4 KB of the 32 that the next two panels have.
template <Kind rows_kind, int ahead>
void asking(const Room& room, const std::byte* weights) {
  TileShapes shapes;
  for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
  Tiles tiles(shapes);
  constexpr int64_t kLong = kSteps32 * 1024;
  for (int64_t s = 0; s < kSteps32; s += 16) {
    for (int64_t p = 0; p < kPanels; p += 2) {
      const std::byte* next = p == 0 ? weights + 2 * kLong + s * 1024 : weights + (s + 16) * 1024;
      for (int64_t t = 0; t < kRowTiles; t += 2)
        two_by_two<rows_kind, ahead>(room.rows + t * kLong + s * 1024, kLong, weights + p * kLong + s * 1024, kLong, 16,
                                     s == 0, room.sums + t * 1024 + p * 256, next + (t / 8) * kLong + t / 2 % 4 * 4096);
    }
  }
}

// The same with rows and weights laid out segment by segment, so that what is read together lies together.
template <int64_t segment, Kind rows_kind, int ahead>
void packed_product(const Room& room, const std::byte* weights) {
  TileShapes shapes;
  for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
  Tiles tiles(shapes);
  for (int64_t s = 0; s < kSteps32; s += segment)
    for (int64_t p = 0; p < kPanels; p += 2)
      for (int64_t t = 0; t < kRowTiles; t += 2)
        two_by_two<rows_kind, ahead>(room.rows + (s * kRowTiles + t * segment) * 1024, segment * 1024,
                                     weights + (s * kPanels + p * segment) * 1024, segment * 1024, segment, s == 0,
                                     room.sums + t * 1024 + p * 256);
}

struct Variant {
  const char* what;
  double count;
  std::function<void(int64_t)> body;
  std::vector<double> near = {}, far = {};
};
std::vector<Variant> variants;

// All variants in turn, again and again: a neighbour's work must not fall on one of them alone.
void run_all(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Variant& v : variants) {
      v.body(0);
      v.near.push_back(least_seconds(2, [&] { v.body(0); }) / cycle / v.count);
      v.far.push_back(least_seconds(1, [&] { v.body(1 + round % 200); }) / cycle / v.count);
    }
  }
  for (Variant& v : variants) {
    std::sort(v.near.begin(), v.near.end()), std::sort(v.far.begin(), v.far.end());
    std::printf("%-44s near: least %6.1f, median %6.1f; weights from afar %6.1f, %6.1f\n", v.what, v.near[0],
                v.near[v.near.size() / 2], v.far[0], v.far[v.far.size() / 2]);
  }
}

template <class F>
void say(const char* what, double count, F body) {
  variants.push_back({what, count, body});
}

template <int64_t segment, Kind kind, int ahead, int order, int64_t row_tiles = kRowTiles, Kind weights_kind = kPlain>
void blocked(const char* what, const Room& room) {
  say(what, static_cast<double>(kRowTiles * kPanels * kSteps32), [&room](int64_t round) {
    product<segment, kind, ahead, order, row_tiles, weights_kind>(room,
                                                                  room.weights + round * (kPanels * kSteps32 * 1024));
  });
}

// Widening alone, and with one row's product `lag` tiles later.
template <class F, int lag, int64_t ring_tiles = 16>
void widened(const char* what, const Room& room, bool ask) {
  constexpr int64_t kCount = 256;
  TileShapes shapes;
  for (int t : {0, 1, 2, 3, 4}) shapes.set(t, 1, 64);
  for (int t : {5, 6, 7}) shapes.set(t, 16, 64);
  say(what, static_cast<double>(kCount), [=, &room](int64_t round) {
    Tiles tiles(shapes);
    const std::byte* panel = room.weights + round * (256 << 10);
    std::byte* ring = reinterpret_cast<std::byte*>(room.sums);
    tile_load<4>(room.rows, 64);
    for (int64_t s = 0; s < kCount; ++s) {
      if (ask) F::ask(panel, kCount, s);
      F::tile(panel, kCount, s, ring + s % ring_tiles * 1024);
      if constexpr (lag >= 0) {
        tile_load<5>(ring + (s - lag + 16) % ring_tiles * 1024, 64);
        switch (s % 4) {
          case 0:
            tile_dot_bf16<0, 4, 5>();
            break;
          case 1:
            tile_dot_bf16<1, 4, 5>();
            break;
          case 2:
            tile_dot_bf16<2, 4, 5>();
            break;
          default:
            tile_dot_bf16<3, 4, 5>();
        }
      }
    }
  });
}

// Weights as the first operand: a row of a tile is an output's 32 inputs, even ones first, each looked up in a table of
// the sixteen values that the output's group has. Packed: factors [16] (float16), codes [16 outputs][16 bytes].
void table_tile(const std::byte* packed, std::byte* room) {
  alignas(64) float factors[16];
  store(factors, load_f16(packed));
  const __m512 codes = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);
  const __m512i shifts = _mm512_set_epi64(0x000c000c000c000c, 0x000c000c000c000c, 0x0008000800080008,
                                          0x0008000800080008, 0x0004000400040004, 0x0004000400040004, 0, 0);
  const __m512i mask = _mm512_set1_epi16(15), upper = _mm512_set1_epi16(16);
#pragma GCC unroll 8
  for (int n = 0; n < 16; n += 2) {
    const __m512 a = _mm512_mul_ps(codes, _mm512_set1_ps(factors[n])),
                 b = _mm512_mul_ps(codes, _mm512_set1_ps(factors[n + 1]));
    const __m512i table = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    auto spread = [&](int m) {
      const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed + 32 + 16 * m));
      return _mm512_srlv_epi16(_mm512_broadcast_i32x4(x), shifts);
    };
    _mm512_store_si512(room + n * 64, _mm512_permutexvar_epi16(_mm512_and_si512(spread(n), mask), table));
    _mm512_store_si512(room + n * 64 + 64,
                       _mm512_permutexvar_epi16(_mm512_ternarylogic_epi32(spread(n + 1), mask, upper, 0xea), table));
  }
}

// mode 0: widening alone; 1: and a product of one row; 2: of sixteen.
template <int mode, int lag, int64_t ring_tiles = 16>
void by_tables(const char* what, const Room& room) {
  constexpr int64_t kCount = 256;
  say(what, static_cast<double>(kCount), [&room](int64_t round) {
    TileShapes shapes;
    for (int t : {0, 1, 2, 3}) shapes.set(t, 16, mode == 2 ? 64 : 4);
    for (int t : {4, 5}) shapes.set(t, 16, 64);
    for (int t : {6, 7}) shapes.set(t, 16, mode == 2 ? 64 : 4);
    Tiles tiles(shapes);
    const std::byte* panel = room.weights + round * (256 << 10);
    std::byte* ring = reinterpret_cast<std::byte*>(room.sums);
    tile_load<6>(room.rows, 64);
    for (int64_t s = 0; s < kCount; s += 2) {
      ask_lines(panel + s * 288 + 3072, 576);
      table_tile(panel + s * 288, ring + s % ring_tiles * 1024);
      table_tile(panel + s * 288 + 288, ring + (s + 1) % ring_tiles * 1024);
      if constexpr (mode > 0) {
        tile_load<4>(ring + (s - lag + 16) % ring_tiles * 1024, 64);
        tile_load<5>(ring + (s + 1 - lag + 16) % ring_tiles * 1024, 64);
        tile_dot_bf16<0, 4, 6>(), tile_dot_bf16<1, 5, 6>();
      }
    }
  });
}

// One row in int8, for comparison: as the avx512 row computes it.
template <class F>
void by_integers(const char* what, const Room& room) {
  say(what, 256, [&room](int64_t round) {
    constexpr int64_t kGroups = 128;
    const std::byte* at = room.weights + round * (256 << 10);
    Weight weight = {};
    weight.data = const_cast<std::byte*>(at), weight.cols = kGroups * 32;
    PackedPanel<F> panels[2] = {{weight, 0, 0}, {weight, 16, 0}};
    Floats total[1][2] = {{splat(0), splat(0)}};
    Group32Linear<F>::template multiply<1, 2>(RowCursor(room.rows, 1, 0), 0, panels, kGroups, total);
    store(room.sums, total[0][0] + total[0][1]);
  });
}

}  // namespace
}  // namespace millrace::cpu

using namespace millrace::cpu;

int main() {
  if (!lab::allow_tiles()) return std::puts("no AMX here"), 1;
  cycle = least_seconds(40, [] { peak(20000); }) / 80000 / 16;
  std::printf("cycle %.4f ns\n", cycle * 1e9);
  siblings();
  pin(4);
  cycle = least_seconds(40, [] { peak(20000); }) / 80000 / 16;
  std::printf("cycle %.4f ns\n", cycle * 1e9);
  std::byte* at = lab::memory((int64_t{60} << 20));
  Room room{at, at + (4 << 20), reinterpret_cast<float*>(at + (2 << 20))};
  blocked<16, kPlain, 0, 0>("segment 16", room);
  blocked<16, kPlain, 2, 0>("segment 16, rows asked for", room);
  blocked<8, kPlain, 0, 0, 2>("segment 8, 32 rows (from the first cache)", room);
  constexpr double kCount = static_cast<double>(kRowTiles * kPanels * kSteps32);
  auto packed = [&](int64_t round) { return room.weights + round * (kPanels * kSteps32 * 1024); };
  say("segment 16, weights asked for", kCount, [&](int64_t r) { asking<kPlain, 0>(room, packed(r)); });
  say("packed, segment 16", kCount, [&](int64_t r) { packed_product<16, kPlain, 0>(room, packed(r)); });
  widened<Tiles32<Q8_0>, -1>("widen Q8_0", room, false);
  widened<Tiles32<Q4_0>, -1>("widen Q4_0", room, false);
  widened<Tiles256<Q4K>, -1>("widen Q4_K", room, false);
  widened<Tiles256<Q6K>, -1>("widen Q6_K", room, false);
  by_tables<0, 0>("Q4_0 by tables, no product", room);
  blocked<16, kT1, 0, 0>("segment 16, rows t1", room);
  blocked<16, kPlain, 0, 0, kRowTiles, kT1>("segment 16, weights t1", room);
  blocked<16, kT1, 0, 0, kRowTiles, kT1>("segment 16, both t1", room);
  blocked<32, kT1, 0, 0>("segment 32, rows t1", room);
  blocked<32, kT1, 0, 0, kRowTiles, kT1>("segment 32, both t1", room);
  blocked<64, kT1, 0, 0>("segment 64, rows t1", room);
  blocked<64, kT1, 0, 0, kRowTiles, kT1>("segment 64, both t1", room);
  blocked<64, kPlain, 0, 0>("segment 64", room);
  blocked<64, kT1, 0, 1>("segment 64, panels pass by, rows t1", room);
  blocked<64, kPlain, 0, 1, kRowTiles, kT1>("segment 64, panels pass by, weights t1", room);
  blocked<64, kT1, 0, 1, kRowTiles, kT1>("segment 64, panels pass by, both t1", room);
  widened<Tiles32<Q8_0>, 0, 1>("Q8_0, at once, room of 1", room, true);
  widened<Tiles32<Q8_0>, 0, 2>("Q8_0, at once, rooms of 2", room, true);
  widened<Tiles32<Q4_0>, 0, 1>("Q4_0, at once, room of 1", room, true);
  widened<Tiles32<Q4_0>, 0, 2>("Q4_0, at once, rooms of 2", room, true);
  widened<Tiles32<Q4_0>, 0, 4>("Q4_0, at once, rooms of 4", room, true);
  widened<Tiles32<Q4_0>, 1, 2>("Q4_0, 1 later, rooms of 2", room, true);
  widened<Tiles256<Q4K>, 0, 1>("Q4_K, at once, room of 1", room, true);
  widened<Tiles256<Q6K>, 0, 1>("Q6_K, at once, room of 1", room, true);
  by_tables<1, 0, 2>("Q4_0 by tables, at once, rooms of 2", room);
  by_tables<1, 0, 4>("Q4_0 by tables, at once, rooms of 4", room);
  by_tables<1, 2, 4>("Q4_0 by tables, 2 later, rooms of 4", room);
  by_integers<Q4_0>("Q4_0 by integers", room);
  by_integers<Q8_0>("Q8_0 by integers", room);
  for (int processor : {4, 11}) {
    pin(processor);
    for (Variant& v : variants) v.near.clear(), v.far.clear();
    std::printf("processor %d\n", processor);
    run_all(160);
  }
}

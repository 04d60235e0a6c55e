// Attention by tiles, one chunk of 128 positions: what do its parts cost, and does the plain C++ that stands for tiles
// in tests (tests/backend/emulated) give the machine's bits? Build, after the library:
//   g++ -std=c++20 -O2 -ffp-contract=off -Wno-uninitialized -mavx2 -mfma -mf16c -mavx512{f,bw,dq,vl,vnni,bf16} -Isrc
//   -Itests
//     lab/x86_attend.cpp
//     build/release/src/{backend/libmillrace_backend,tensor/libmillrace_tensor,base/libmillrace_base}.a -lfmt -lpthread
//   a.out [queries] [width]
// Cycles of the clock for 64 queries, best of many. On a machine without AMX only what stands beside the tiles.
#include <x86intrin.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../src/backend/cpu/x86/amx/attend.cpp"
#include "../tests/backend/emulated/tiles.cpp"

using namespace millrace;
using namespace millrace::cpu;

namespace {

// Everything but the tiles.
struct NoTiles {
  struct Configured {
    explicit Configured(const TileShapes&) {}
  };
  template <int>
  static void zero() {}
  template <int>
  static void load(const void*, int64_t) {}
  template <int>
  static void store(void*, int64_t) {}
  template <int, int, int>
  static void dot() {}
  static __m512i round(Floats low, Floats high) {  // what a machine without bfloat16 has of about that cost
    return _mm512_permutex2var_epi16(_mm512_castps_si512(low.v), _mm512_set1_epi32(1), _mm512_castps_si512(high.v));
  }
};

template <class F>
double best(F body) {
  unsigned long long least_seen = ~0ull;
  for (int i = 0; i < 3000; ++i) {
    const unsigned long long start = __rdtsc();
    body();
    const unsigned long long took = __rdtsc() - start;
    if (took < least_seen) least_seen = took;
  }
  return static_cast<double>(least_seen);
}

float* line_of(std::vector<float>& room) {
  return reinterpret_cast<float*>((reinterpret_cast<intptr_t>(room.data()) + 63) / 64 * 64);
}

struct Scene {
  Scene(int32_t wanted, int32_t wide)
      : queries(wanted),
        dim(wide),
        stride((dim + 17) / 16 * 16),
        scratch(kWorkerBytes / 4 + 16),
        sums(queries * stride + 16),
        into(queries * stride + 16),
        most(queries),
        total(queries),
        q(queries * dim),
        numbers(queries),
        begin(queries),
        end(queries, kAttendChunk),
        k(kAttendChunk * dim),
        v(kAttendChunk * dim) {
    uint32_t seed = 1;
    auto draw = [&] { return static_cast<float>((seed = seed * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1; };
    for (float& x : q) x = draw();
    for (uint16_t& x : k) x = KvF16::round(draw());
    for (uint16_t& x : v) x = KvF16::round(draw());
    for (int32_t i = 0; i < queries; ++i) at.push_back(q.data() + i * dim);
    for (int32_t i = 0; i < kAttendChunk; ++i) {
      keys[i] = reinterpret_cast<std::byte*>(k.data() + i * dim);
      values[i] = reinterpret_cast<std::byte*>(v.data() + i * dim);
    }
    kv.page_tokens = 16, kv.kv_heads = 1, kv.k_dim = kv.v_dim = dim, kv.form = DType::f16;
    attention.heads = queries, attention.scale = 0.125f;
  }
  AttendChunk chunk(bool merges) {
    return {&kv,
            dim,
            dim,
            kAttendChunk,
            keys,
            values,
            &attention,
            0,
            queries,
            at.data(),
            numbers.data(),
            numbers.data(),
            begin.data(),
            end.data(),
            most.data(),
            total.data(),
            line_of(sums) + 2,
            stride,
            reinterpret_cast<std::byte*>(line_of(scratch)),
            false,
            &ahead,
            merges ? line_of(into) : nullptr,
            &taken};
  }
  int32_t queries, dim;
  int64_t stride;
  std::vector<float> scratch, sums, into, most, total, q;
  std::vector<int32_t> numbers, begin, end;
  std::vector<uint16_t> k, v;
  std::vector<const float*> at;
  const std::byte *keys[kAttendChunk], *values[kAttendChunk];
  KvView kv{};
  Attention attention;
  Ahead ahead;
  bool taken = false;
};

template <class T>
void tiles_alone(const AttendChunk& chunk, const Scratch& room) {
  TileWork<T> work;
  for (int32_t first = 0; first < chunk.queries; first += kBlock) {
    const Block block = block_of(chunk, first);
    add_scores(chunk, room, block, room.scores[0], work);
    add_values(chunk, room, block, room.weights[0], work);
    work.finish();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Scene scene(argc > 1 ? std::atoi(argv[1]) : 256, argc > 2 ? std::atoi(argv[2]) : 64);
  const double per = 64.0 / scene.queries;
  const AttendChunk chunk = scene.chunk(true);
  const Scratch room(chunk.scratch);
  const Block block = block_of(chunk, 0);
  TileWork<NoTiles> none;
  std::printf("tile products at 16 cycles each: %.0f\n", 2.0 * 64 * kAttendChunk * scene.dim / (16 * 16 * 32) * 16);
  std::printf("without tiles: all %.0f\n", best([&] { attend_tiles<NoTiles, KvF16>(chunk); }) * per);
  std::printf("  queries %.0f\n", best([&] { arrange_queries<NoTiles>(chunk, scene.dim / kStep, room); }) * per);
  std::printf("  keys %.0f\n", best([&] { arrange_keys<NoTiles, KvF16>(chunk, kAttendChunk / kKeys, room); }) * per);
  std::printf("  values %.0f\n", best([&] { arrange_values<NoTiles, KvF16>(chunk, kAttendChunk, room); }) * per);
  std::printf("  softmax %.0f\n",
              best([&] { softmax<NoTiles>(chunk, block, room.scores[0], room.weights[0], none); }) * 4);
  std::printf("  merging %.0f\n", best([&] { deliver(chunk, block, room.sums); }) * 4);
  if (!amx_runs_here()) return std::printf("no AMX here\n"), 0;
  std::printf("with tiles: all %.0f\n", best([&] { attend_tiles<MachineTiles, KvF16>(chunk); }) * per);
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
  {
    const Tiles tiles(shapes);
    std::printf("  tiles alone %.0f\n", best([&] { tiles_alone<MachineTiles>(chunk, room); }) * per);
  }
  const AttendChunk plain = scene.chunk(false);
  attend_tiles<MachineTiles, KvF16>(plain);
  std::vector<float> sums = scene.sums, total = scene.total;
  attend_tiles<testing::PlainTiles, KvF16>(plain);
  const bool same = sums == scene.sums && total == scene.total;
  std::printf("plain C++ gives the machine's bits: %s\n", same ? "yes" : "NO");
  return same ? 0 : 1;
}

// How lines of a key-value cache come to a core: from the second cache to the first, and from memory when asked for at
// several paces. Pages as the engine keeps them: 16 tokens of 3 kv heads, 64 wide, bfloat16, 30 layers in a page.
//   g++ -std=c++20 -O2 lab/arm_lines.cpp && ./a.out
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

constexpr double kCyclesPerSecond = 2.6e9;
constexpr long kLayerBytes = 12288, kLayers = 30, kPages = 256, kPiece = 512;

double cycles() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() * kCyclesPerSecond;
}

void wait(long count) {
  if (count > 0) asm volatile("1: subs %0, %0, #1\nb.gt 1b" : "+&r"(count) : : "cc");
}

void ask_second(const char* line) { asm volatile("prfm pldl2keep, [%0]" : : "r"(line)); }

void read_piece(const char* piece) {
  for (long at = 0; at < kPiece; at += 64)
    asm volatile("ldp q0, q1, [%0]\nldp q2, q3, [%0, #32]" : : "r"(piece + at) : "memory", "v0", "v1", "v2", "v3");
}

void read_asking(const char* piece, const char* next) {
  for (long at = 0; at < kPiece; at += 64) {
    asm volatile("prfm pldl1keep, [%1]\nldp q0, q1, [%0]\nldp q2, q3, [%0, #32]"
                 :
                 : "r"(piece + at), "r"(next + at)
                 : "memory", "v0", "v1", "v2", "v3");
  }
}

using Pieces = std::vector<const char*>;

// The pieces of a layer as attention reads them: of a chunk of eight pages, per kv head keys page by page, then values
// a quarter of the dimensions at a time.
Pieces pieces_of(const char* store, const std::vector<long>& pages, long layer) {
  Pieces pieces;
  for (size_t chunk = 0; chunk < pages.size(); chunk += 8) {
    auto page = [&](size_t i) { return store + (pages[chunk + i] * kLayers + layer) * kLayerBytes; };
    for (long head = 0; head < 3; ++head) {
      for (size_t i = 0; i < 8; ++i)
        for (long n = 0; n < 4; ++n) pieces.push_back(page(i) + head * 2048 + n * kPiece);
      for (long n = 0; n < 4; ++n)
        for (size_t i = 0; i < 8; ++i) pieces.push_back(page(i) + 6144 + head * 2048 + n * kPiece);
    }
  }
  return pieces;
}

// 32 kB at a time: asked for `times` with `pace` between lines, then read; with `near` pieces asked for into the first
// cache on the way.
void measure(const char* store, const std::vector<long>& pages, int times, long pace, size_t near) {
  double asking = 0, reading = 0, count = 0;
  for (long layer = 0; layer < kLayers; ++layer) {
    Pieces pieces = pieces_of(store, pages, layer);
    for (size_t first = 0; first + 64 <= pieces.size(); first += 64, ++count) {
      double begin = cycles();
      for (int t = 0; t < times; ++t) {
        for (size_t i = 0; i < 64; ++i)
          for (long at = 0; at < kPiece; at += 64) ask_second(pieces[first + i] + at), wait(pace);
      }
      double asked = cycles();
      wait(1500);
      double start = cycles();
      for (size_t i = 0; i < 64; ++i) {
        if (near > 0) {
          read_asking(pieces[first + i], pieces[first + std::min<size_t>(63, i + near)]);
        } else {
          read_piece(pieces[first + i]);
        }
      }
      asm volatile("dsb sy" : : : "memory");
      asking += asked - begin;
      reading += cycles() - start;
    }
  }
  std::printf("asked %d times, a line in %5.1f cycles; %2zu pieces early into the first: %5.1f bytes a cycle\n", times,
              times > 0 ? asking / count / 512 / times : 0.0, near, 64 * kPiece / (reading / count));
}

void stream(const char* store, long bytes) {
  double best = 1e18;
  for (int pass = 0; pass < 50; ++pass) {
    double begin = cycles();
    for (long at = 0; at < bytes; at += kPiece) read_piece(store + at);
    best = std::min(best, cycles() - begin);
  }
  std::printf("one run of %4ld kB over and over: %5.1f bytes a cycle\n", bytes >> 10,
              static_cast<double>(bytes) / best);
}

}  // namespace

int main() {
  constexpr size_t kHuge = size_t{2} << 20, kBytes = kLayerBytes * kLayers * kPages;
  auto* store = static_cast<char*>(std::aligned_alloc(kHuge, (kBytes + kHuge) / kHuge * kHuge));
  madvise(store, kBytes, MADV_HUGEPAGE);
  std::memset(store, 1, kBytes);  // memory never written would be one page of zeros
  std::vector<long> pages;
  for (long i = 0; i < kPages; ++i) pages.push_back(i);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  for (long bytes : {32, 128, 512}) stream(store, bytes << 10);
  measure(store, pages, 0, 0, 0);
  for (int times : {1, 2})
    for (long pace : {0, 2, 4, 8}) measure(store, pages, times, pace, 0);
  for (size_t near : {1, 2, 4, 8, 16}) measure(store, pages, 1, 6, near);
}

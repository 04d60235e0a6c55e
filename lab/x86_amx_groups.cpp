// Sums of int8 products in groups of 32 by tiles of AMX, a float scale on both sides: in which order should tiles be
// loaded, multiplied and stored? Build on a machine with AMX:
//   g++ -std=c++20 -O3 -mavx512f -mavx512bw -mavx512vl -mfma lab/x86_amx_groups.cpp -o amx_groups && ./amx_groups
// One thread, everything in the first cache. A group of sixteen rows by sixteen outputs is 16384 operations; a tile
// product takes 16 cycles, so does storing a tile, and scaling its sums 24 (48 vector instructions, two a cycle).
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kGroups = 16;  // of a segment
constexpr int64_t kRowsBytes = 640, kWideBytes = 640;

struct alignas(64) Shapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 32, 64, 32, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 8, 16, 8};
};

template <int t>
void load(const void* at, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(t) : "memory");
}
template <int t>
void store(void* at) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(int64_t{64}), "i"(t) : "memory");
}
template <int c, int a, int b>
void product(const std::byte* rows, const std::byte* wide) {
  load<a>(rows, 32);
  load<b>(wide + 128, 64);
  asm volatile("tilezero %%tmm%c0" : : "i"(c));
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
}

// 1: each tile is stored right after its product.
void one_by_one(const std::byte* rows, const std::byte* wide, int32_t* out) {
  product<0, 4, 5>(rows, wide), store<0>(out);
  product<1, 6, 7>(rows + kRowsBytes, wide + kWideBytes), store<1>(out + 256);
  product<2, 4, 5>(rows + 2 * kRowsBytes, wide + 2 * kWideBytes), store<2>(out + 512);
  product<3, 6, 7>(rows + 3 * kRowsBytes, wide + 3 * kWideBytes), store<3>(out + 768);
}
// 2: four products, then four stores.
void four_then_store(const std::byte* rows, const std::byte* wide, int32_t* out) {
  product<0, 4, 5>(rows, wide);
  product<1, 6, 7>(rows + kRowsBytes, wide + kWideBytes);
  product<2, 4, 5>(rows + 2 * kRowsBytes, wide + 2 * kWideBytes);
  product<3, 6, 7>(rows + 3 * kRowsBytes, wide + 3 * kWideBytes);
  store<0>(out), store<1>(out + 256), store<2>(out + 512), store<3>(out + 768);
}
// 3: a tile is stored two products later.
void two_behind(const std::byte* rows, const std::byte* wide, int32_t* out) {
  product<0, 4, 5>(rows, wide);
  product<1, 6, 7>(rows + kRowsBytes, wide + kWideBytes);
  product<2, 4, 5>(rows + 2 * kRowsBytes, wide + 2 * kWideBytes), store<0>(out);
  product<3, 6, 7>(rows + 3 * kRowsBytes, wide + 3 * kWideBytes), store<1>(out + 256);
  store<2>(out + 512), store<3>(out + 768);
}

template <auto four, bool scale>
void segment(const std::byte* rows, const std::byte* wide, float* sums) {
  alignas(64) static int32_t ring[2][4 * 256];
  __m512 total[16];
  for (int r = 0; r < 16; ++r) total[r] = _mm512_loadu_ps(sums + 16 * r);
  four(rows, wide, ring[0]);
  for (int g = 0; g < kGroups; g += 4) {
    if (g + 4 < kGroups) four(rows + (g + 4) * kRowsBytes, wide + (g + 4) * kWideBytes, ring[(g / 4 + 1) % 2]);
    if (!scale) continue;
    for (int i = 0; i < 4; ++i) {
      const float* factors = reinterpret_cast<const float*>(rows + (g + i) * kRowsBytes + 512);
      __m512 factor = _mm512_loadu_ps(wide + (g + i) * kWideBytes);
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) {
        __m512 whole = _mm512_cvtepi32_ps(_mm512_load_si512(ring[g / 4 % 2] + i * 256 + 16 * r));
        total[r] = _mm512_fmadd_ps(whole, _mm512_mul_ps(factor, _mm512_set1_ps(factors[r])), total[r]);
      }
    }
  }
  for (int r = 0; r < 16; ++r) _mm512_storeu_ps(sums + 16 * r, total[r]);
}

template <auto run>
void measure(const char* name, const std::byte* rows, const std::byte* wide, float* sums, const float* expected) {
  std::memset(sums, 0, 1024);
  run(rows, wide, sums);
  bool same = expected == nullptr || std::memcmp(sums, expected, 1024) == 0;
  double best = 1e9;
  for (int pass = 0; pass < 20; ++pass) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20000; ++i) run(rows, wide, sums);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  double group = best / 20000 / kGroups;
  std::printf("%-34s %6.1f ns a group  %7.1f GOP/s%s\n", name, group * 1e9, 16384 / group * 1e-9,
              same ? "" : "  WRONG SUMS");
}

}  // namespace

int main() {
  if (syscall(SYS_arch_prctl, 0x1023, 18) != 0) return std::puts("no AMX here"), 1;
  Shapes shapes;
  asm volatile("ldtilecfg %0" : : "m"(shapes));
  std::vector<std::byte> memory(kGroups * (kRowsBytes + kWideBytes) + 64);
  std::byte* rows = memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
  std::byte* wide = rows + kGroups * kRowsBytes;
  for (int64_t i = 0; i < kGroups * 1280; ++i) rows[i] = static_cast<std::byte>(i * 7919 >> 3);
  for (int g = 0; g < kGroups; ++g) {
    for (int i = 0; i < 16; ++i) {
      float a = 0.01f * static_cast<float>(i + g), b = 0.02f * static_cast<float>(i - g);
      std::memcpy(rows + g * kRowsBytes + 512 + 4 * i, &a, 4);
      std::memcpy(wide + g * kWideBytes + 4 * i, &b, 4);
    }
  }
  float expected[256] = {}, sums[256];
  segment<one_by_one, true>(rows, wide, expected);
  measure<segment<one_by_one, true>>("1 stored one by one", rows, wide, sums, expected);
  measure<segment<four_then_store, true>>("2 four products, four stores", rows, wide, sums, expected);
  measure<segment<two_behind, true>>("3 stored two products later", rows, wide, sums, expected);
  measure<segment<one_by_one, false>>("1 without scaling", rows, wide, sums, nullptr);
  measure<segment<four_then_store, false>>("2 without scaling", rows, wide, sums, nullptr);
  measure<segment<two_behind, false>>("3 without scaling", rows, wide, sums, nullptr);
  asm volatile("tilerelease");
}

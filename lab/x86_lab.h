// What the lab programs for x86 share: memory, threads that start together, and time in cycles of a tile product.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace lab {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Filled with numbers that are harmless however they are read: as bfloat16 and float32 of either sign from 0.5 to 2, as
// float16 from 1.75 to 2, as int8. (Denormal factors cost a hundred cycles each.)
inline std::byte* memory(int64_t bytes) {
  bytes = (bytes + (2 << 20) - 1) >> 21 << 21;
  void* at = std::aligned_alloc(2 << 20, static_cast<size_t>(bytes));
  madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  uint32_t random = 1;
  for (uint16_t* to = static_cast<uint16_t*>(at); to < static_cast<uint16_t*>(at) + bytes / 2; ++to) {
    random = random * 1664525 + 1013904223;
    *to = static_cast<uint16_t>(0x3f00 | (random >> 31 << 15) | (random >> 8 & 0xff));
  }
  return static_cast<std::byte*>(at);
}

inline bool allow_tiles() {
#ifdef __x86_64__
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return true;
#endif
}

// Seconds that `threads` take for body(thread), all started together; the least of some passes.
template <class F>
double seconds(int threads, int passes, F body) {
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> team;
    std::vector<double> ends(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        ++ready;
        while (!go.load()) {
        }
        body(t);
        ends[static_cast<size_t>(t)] = now();
      });
    }
    while (ready.load() < threads) {
    }
    double begin = now();
    go = true;
    for (std::thread& thread : team) thread.join();
    best = std::min(best, *std::max_element(ends.begin(), ends.end()) - begin);
  }
  return best;
}

}  // namespace lab

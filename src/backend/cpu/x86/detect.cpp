#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf leaf(unsigned number, unsigned sub) {
  Leaf l;
  if (__get_cpuid_count(number, sub, &l.a, &l.b, &l.c, &l.d) == 0) return {};
  return l;
}

bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }
constexpr unsigned bit(int index) { return 1u << index; }

// Which registers the operating system keeps for us.
unsigned kept_state() {
  if (!has(leaf(1, 0).c, bit(27))) return 0;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool detect_avx2() {
  constexpr unsigned kVectors = bit(1) | bit(2);
  return has(leaf(1, 0).c, bit(12) | bit(28) | bit(29)) && has(leaf(7, 0).b, bit(5)) && has(kept_state(), kVectors);
}

bool detect_avx512() {
  constexpr unsigned kVectors = bit(5) | bit(6) | bit(7);
  Leaf seven = leaf(7, 0);
  return detect_avx2() && has(seven.b, bit(16) | bit(17) | bit(30) | bit(31)) && has(seven.c, bit(11)) &&
         has(kept_state(), kVectors);
}

bool detect_amx() {
  constexpr unsigned kTiles = bit(17) | bit(18);
  bool there = detect_avx512() && has(leaf(7, 0).d, bit(22) | bit(24) | bit(25)) && has(leaf(7, 1).a, bit(5)) &&
               has(kept_state(), kTiles);
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return there && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool avx2_runs_here() {
  static const bool runs = detect_avx2();
  return runs;
}

bool avx512_runs_here() {
  static const bool runs = detect_avx512();
  return runs;
}

bool amx_runs_here() {
  static const bool runs = detect_amx();
  return runs;
}

}  // namespace millrace::cpu

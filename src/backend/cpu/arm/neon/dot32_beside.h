// Weights that are widened by plain registers while the vector pipes multiply others. Those two pipes bind a tile of
// four rows (dot32_loop.h), a third of what the core could issue is free meanwhile, and a store from a plain register
// takes no place of them.
#pragma once

#include "backend/cpu/arm/formats32.h"

namespace millrace::cpu {
namespace {

// Nothing to be done beside products.
struct NothingBeside {
  static constexpr int kSteps = 0;
  template <int half>
  void step(std::integral_constant<int, half>) {}
  const std::byte* next(const std::byte* weights) const { return weights; }
  void end_group() {}
};

// Formats whose packed groups can be widened so, `steps` of a group's eight steps of four inputs with every group that
// is multiplied.
template <class F, int steps>
struct WidenBeside {
  static constexpr bool kCan = false;
};
template <int steps>
struct WidenBeside<Q4_0, steps> {
  static constexpr bool kCan = true;
  static constexpr int kSteps = steps;
  static constexpr int64_t kFrom = 16, kFromStep = 16, kToStep = 32;
  const std::byte* from;  // a step of a packed group
  std::byte* to;          // the same step of a wide one
  uint64_t a = 0, b = 0, c = 0, d = 0;

  // Outputs 0 to 3 are the low nibbles, without their sign, and 4 to 7 the high ones; both become 16 times the value.
  // A step in two parts.
  [[gnu::always_inline]] void step(std::integral_constant<int, 0>) {
    asm volatile(
        "ldp %[a], %[b], [%[from]], #16\n"
        "and %[c], %[nibbles], %[a], lsl #4\n"
        "and %[d], %[nibbles], %[b], lsl #4\n"
        "and %[a], %[a], %[nibbles]\n"
        : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [from] "+&r"(from)
        : [nibbles] "r"(uint64_t{0xf0f0f0f0f0f0f0f0})
        : "memory");
  }
  [[gnu::always_inline]] void step(std::integral_constant<int, 1>) {
    asm volatile(
        "eor %[c], %[c], #0x8080808080808080\n"
        "and %[b], %[b], #0xf0f0f0f0f0f0f0f0\n"
        "eor %[d], %[d], #0x8080808080808080\n"
        "stp %[a], %[b], [%[to], #16]\n"
        "stp %[c], %[d], [%[to]], #32\n"
        : [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d), [to] "+&r"(to)
        : [a] "r"(a)
        : "memory");
  }
  const std::byte* next(const std::byte*) const { return from; }
  [[gnu::always_inline]] void end_group() {
    from += Q4_0::kBytes - steps * kFromStep;
    to += 256 - steps * kToStep;
  }
};

}  // namespace
}  // namespace millrace::cpu

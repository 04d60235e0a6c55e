// What a thread does between two looks at something that another is about to change.
#pragma once

namespace millrace {

inline void relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // unlike yield, really waits (some tens of cycles)
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace millrace

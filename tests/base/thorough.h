// Whether this run takes every combination of what a test goes through (`./test thorough` sets MILLRACE_THOROUGH).
// Without it the tests below thin out their combinations, so that each kind and each format still comes in some.
#pragma once

#include <cstdlib>

namespace millrace::test {

inline bool thorough() {
  const char* said = std::getenv("MILLRACE_THOROUGH");
  return said != nullptr && *said != '\0';
}

}  // namespace millrace::test

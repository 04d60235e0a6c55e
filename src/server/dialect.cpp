#include "server/dialect.h"

#include <random>

namespace millrace {

std::string fresh_id(std::string_view prefix) {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  const uint64_t first = generator(), second = generator();
  return fmt::format("{}{:016x}{:016x}", prefix, first, second);
}

}  // namespace millrace

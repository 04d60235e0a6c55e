#include "base/human.h"

#include <fmt/format.h>

#include <iterator>

namespace millrace {

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  return fmt::format("{:.{}f} {}", value, whole ? 0 : (value < 9.995 ? 2 : 1), kUnits[unit]);
}

std::string brief_bytes(uint64_t bytes) {
  return bytes < 10'000'000 ? fmt::format("{} bytes", bytes) : human_bytes(bytes);
}

std::string counted(int64_t number, std::string_view noun, std::string_view plural) {
  if (number != 1 && !plural.empty()) return fmt::format("{} {}", number, plural);
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace millrace

#include "base/rng.h"

#include <algorithm>

#include "base/philox.h"

namespace millrace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    uint64_t product0 = kPhiloxMultiplier0 * counter[0];
    uint64_t product1 = kPhiloxMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

double uniform(const Draw& draw) {
  auto words = philox({static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32)},
                      {draw.position, draw.choice, draw.draw, 0});
  return to_unit(words[0], words[1]);
}

void uniforms(const Draw& first, std::span<double> out) {
  constexpr size_t kLanes = 8;
  for (size_t start = 0; start < out.size(); start += kLanes) {
    const auto words =
        philox_words<kLanes>(first.seed, first.choice, first.position, first.draw + static_cast<uint32_t>(start));
    const size_t count = std::min(kLanes, out.size() - start);
    for (size_t i = 0; i < count; ++i) out[start + i] = to_unit(words.high[i], words.low[i]);
  }
}

}  // namespace millrace

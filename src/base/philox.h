// The rounds of Philox4x32-10 (base/rng.h) on several counters side by side, in a form that vectorises and that devices
// compile too. Any thread.
#pragma once

#include <cstdint>

#include "base/both.h"

namespace millrace {

inline constexpr uint64_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

// The first two words of each draw.
template <int Lanes>
struct PhiloxWords {
  uint32_t high[Lanes], low[Lanes];
};

// Uniform in [0, 1), 53 bits, of a draw's first two words. By way of signed numbers, which x86 has vectors for; 53 bits
// fit.
MILLRACE_BOTH double to_unit(uint32_t high, uint32_t low) {
  return static_cast<double>(static_cast<int64_t>((uint64_t{high} << 32 | low) >> 11)) * 0x1.0p-53;
}

// Of the draws (seed, choice, position, first + i).
template <int Lanes>
MILLRACE_BOTH PhiloxWords<Lanes> philox_words(uint64_t seed, uint32_t choice, uint32_t position, uint32_t first) {
  uint32_t word0[Lanes], word1[Lanes], word2[Lanes], word3[Lanes];
  for (uint32_t i = 0; i < Lanes; ++i) word0[i] = position, word1[i] = choice, word2[i] = first + i, word3[i] = 0;
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int i = 0; i < Lanes; ++i) {
      const uint64_t product0 = kPhiloxMultiplier0 * word0[i], product1 = kPhiloxMultiplier1 * word2[i];
      word0[i] = static_cast<uint32_t>(product1 >> 32) ^ word1[i] ^ key0;
      word1[i] = static_cast<uint32_t>(product1);
      word2[i] = static_cast<uint32_t>(product0 >> 32) ^ word3[i] ^ key1;
      word3[i] = static_cast<uint32_t>(product0);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  PhiloxWords<Lanes> words;
  for (int i = 0; i < Lanes; ++i) words.high[i] = word0[i], words.low[i] = word1[i];
  return words;
}

}  // namespace millrace

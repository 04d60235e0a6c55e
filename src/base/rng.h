// Philox4x32-10: random numbers as a pure function of a key and a counter (Salmon et al., 2011). A draw is named by
// (seed, choice, position, draw), so a result never depends on how many numbers somebody else has drawn (contract 1).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 2> key, std::array<uint32_t, 4> counter);

struct Draw {
  uint64_t seed = 0;
  uint32_t choice = 0;    // which of n parallel answers
  uint32_t position = 0;  // of the token being chosen
  uint32_t draw = 0;      // several numbers for one token
};

// Uniform in [0, 1), 53 bits.
double uniform(const Draw& draw);

// out[i] = uniform of draw number first.draw + i, many at once.
void uniforms(const Draw& first, std::span<double> out);

}  // namespace millrace

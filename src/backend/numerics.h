// What decides the bits of a backend's results beside the weights. Any thread.
#pragma once

#include <string>

#include "backend/backend.h"

namespace millrace {

// Raised whenever the same weights and tokens give other bits than before on any backend: the order of a sum, a
// rounding, a way of packing. Answers and cached pages of another version are not ours to go on from.
inline constexpr int kNumericsVersion = 4;

// The instruction set and its arithmetic, or the kind of device: "cpu i8mm fast", "cuda hopper kernels" (those compute
// as the portable ones do, but for FP8 weights). Not the number of threads (contract 1).
std::string numerics_of(const Backend& backend);

}  // namespace millrace

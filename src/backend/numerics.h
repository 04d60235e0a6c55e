// The version of what all backends compute. Whose arithmetic it is says Backend::numerics(). Any thread.
#pragma once

namespace millrace {

// Raised whenever the same weights and tokens give other bits than before on any backend: the order of a sum, a
// rounding, a way of packing, a function of our own. Answers and cached pages of another version are not ours to go on
// from (session/fingerprint.h). tests/backend/numerics_test.cpp keeps hashes of results beside it and fails when they
// change and it does not. What the C library computes (exp, cos) is its own: both are as they were only with the same.
inline constexpr int kNumericsVersion = 4;

}  // namespace millrace

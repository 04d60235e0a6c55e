// Whether the text of a frame can go on in so many ways that the tokens it allows are better found once and kept, apart
// from the rest of a state; the others are walked together.
#pragma once

#include <bit>

#include "grammar/machine.h"

namespace millrace::grammar {

inline int count_bytes(const ByteSet& set) {
  int total = 0;
  for (uint64_t word : set.words) total += std::popcount(word);
  return total;
}

inline bool is_broad(Exprs& exprs, const Frame& frame) {
  constexpr int kFew = 3;
  if (frame.kind != Frame::text) return false;
  return frame.b != 0 || count_bytes(exprs.first_bytes(frame.a)) > kFew;
}

}  // namespace millrace::grammar

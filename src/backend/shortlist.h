// What a step brings to the host of each row of logits, where that is less than the whole row. The device proposes, the
// host decides: a row comes as a short list of tokens with their logits, and with what is certain about all others, so
// that the host's sampler finds exactly the token it would find in the whole row, or knows that it cannot and asks for
// the row. Plain data both sides read; backend/shortlist_group.h has the work itself, written once for host and device.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

inline constexpr int32_t kShortlistTokens = 1024;  // of a row, at most
inline constexpr int32_t kShortlistPart = 4096;    // logits a thread group looks at
inline constexpr int32_t kShortlistParts = 128;    // of a row, at most
inline constexpr int32_t kShortlistListed = 4096;  // tokens all parts of a row list together
inline constexpr int32_t kShortlistRows = 1024;    // of a step, at most; further ones come whole
inline constexpr int64_t kShortlistCols = int64_t{kShortlistPart} * kShortlistParts;

enum class ShortlistKind : int32_t {
  best,   // where the largest logit is, no more (every row brings that)
  whole,  // all logits
  race,   // the tokens that may arrive first in a draw over all of them (engine/sampler.h)
  list,   // the likeliest tokens
};

struct ShortlistAsk {
  ShortlistKind kind = ShortlistKind::best;
  // Of a race: token i arrives at E_i / w_i with w_i = 2^((logit - largest) * scale), and E_i from the random number
  // named by (seed, choice, position, i).
  float scale = 0;
  uint64_t seed = 0;
  uint32_t choice = 0, position = 0;
  // Of a list: at least the `count` likeliest if count > 0; else the likeliest that make up `mass` of the sum of
  // exp(logit - largest), and a little more; in either case nothing lower than largest - depth.
  int32_t count = 0;
  float mass = 2;
  float depth = 0;
};

struct ShortlistToken {
  int32_t id = 0;
  float logit = 0;
};

struct Shortlisted {
  int32_t best = -1;  // place of the largest logit, the lowest of equals; -1: the row is broken
  float largest = 0;  // that logit
  bool fits = false;  // false: only `best` is of use. Set by rows that are not broken and whose list has room
  float floor = 0;    // of a list: it has every token whose logit is at least this
  double sum = 0;     // of a list by mass: of exp(logit - largest) as the sampler takes it, to kShortlistSumError of it
  int32_t count = 0;  // of tokens
  const ShortlistToken* tokens = nullptr;  // in no order; valid until the next step
  std::span<const ShortlistToken> list() const { return {tokens, static_cast<size_t>(count)}; }
};
// What a step asks for and what it finds, row by row; in memory that Backend::allocate_results() gave.
struct ShortlistBatch {
  ShortlistAsk* asks = nullptr;      // [rows]
  Shortlisted* found = nullptr;      // [rows]
  ShortlistToken* tokens = nullptr;  // [rows][kShortlistTokens]
  static constexpr int64_t bytes(int64_t rows) {
    return rows *
           static_cast<int64_t>(sizeof(ShortlistAsk) + sizeof(Shortlisted) + kShortlistTokens * sizeof(ShortlistToken));
  }
};

// One row by the host: what every backend does, slowly. tokens: [kShortlistTokens].
void shortlist_on_host(const ShortlistAsk& ask, std::span<const float> row, Shortlisted& found, ShortlistToken* tokens);

// Both sides add the same float32 weights in float64, at most 2^19 of them, in different orders: 2^-34 each at most.
inline constexpr double kShortlistSumError = 0x1p-32;

}  // namespace millrace

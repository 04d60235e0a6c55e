// The `id:` lines of a stream, by which a client goes on where a broken stream ended: it sends the same body again with
// the last id as Last-Event-ID, here or to another replica. An answer is a function of its body, its seed and the
// model's fingerprint, so the id needs no text: it has the seed, the answer's name and time, and how much of each
// choice was told. It is sealed with a keyed digest: whoever changes it, or uses another's, is told so. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/identity.h"

namespace millrace {

using Mark = std::array<uint8_t, 8>;  // the beginning of an identity

Mark mark_of(const Identity& identity);

// What a client has of a choice.
struct SentSoFar {
  uint32_t taken = 0;  // events of the engine that are in it
  bool begun = false, told = false;
  friend bool operator==(const SentSoFar&, const SentSoFar&) = default;
};

struct EventPlace {
  // Of the request.
  Mark model = {}, body = {}, answer = {};  // whose fingerprint, which body, what that came to there
  std::array<uint8_t, 16> name = {};        // in the answer's id
  int64_t created = 0;
  uint64_t seed = 0;
  int64_t cached = 0;  // tokens of the prompt that were found in the cache
  // Of the event. Events are written in turns, each what came to one choice since the last time.
  int64_t first = 0;            // events before this turn
  int64_t told = 0;             // of the turn, this one among them
  uint32_t choice = 0;          // whose turn; the number of choices: the stream's end
  SentSoFar after;              // the choice when the turn is told
  std::vector<SentSoFar> sent;  // every choice before the turn
  friend bool operator==(const EventPlace&, const EventPlace&) = default;
};

using SealKey = std::array<uint8_t, 32>;

// Letters, digits, '-' and '_'.
std::string seal_place(const EventPlace& place, const SealKey& key);
// Whatever was not made by seal_place() with this key is refused.
Result<EventPlace> open_place(std::string_view text, const SealKey& key);

}  // namespace millrace

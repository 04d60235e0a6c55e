// What passes between the scheduler and whoever runs the steps: a StepPlan out, Sampled back. Values. The pointers to
// sequences are for launch() on the engine thread, which copies what the step needs; a step that runs elsewhere must
// not follow them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/kv_cache.h"
#include "engine/fill.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace millrace {

// Tokens [begin, begin + count) of a sequence are computed. The last `drafts` of them are room for guesses, of which
// the step may make fewer; the others are known, except that one right after the known ones may be the token the step
// before this one chooses.
struct Work {
  Sequence* sequence = nullptr;
  int begin = 0;
  int count = 0;
  int drafts = 0;
  bool samples = false;  // the last row (with guesses: these and the one before) gives tokens
  int residence = 0;     // of the sequence when planned
  int attempt = 0;
  FillStep fill = {};  // where masks are filled: the same rows, and what they are for
};

// To be done in this order: moves, the work, snapshots.
struct StepPlan {
  int64_t number = 0;
  std::vector<Work> work;
  std::vector<PageMove> moves;
  std::vector<PageCopy> snapshots;
  int tokens = 0;       // rows of the step
  int64_t context = 0;  // cached tokens its rows read, summed
  double expected = 0;  // seconds it should take; 0: not known yet

  bool empty() const { return work.empty() && moves.empty(); }
};

struct SampledRow {
  std::vector<Token> tokens;       // accepted drafts, then one more; none if the work does not sample. Where masks are
                                   // filled: those that are fixed with all before them, perhaps none
  std::vector<Logprobs> logprobs;  // as many, if they were asked for
  std::vector<double> mus;         // mirostat's bar after each token, where there is one
  std::optional<Error> error;      // no token could be chosen (broken logits); ends this sequence only
  int drafted = 0;                 // guesses on the longest path that was computed, at most the work's `drafts`
  int entries = -1;                // tokens of which all that a drafter keeps beside is there; -1: it keeps nothing
  int draft_rows = 0;              // rows that guesses took, where there were several paths
  int first_drafted = 0, along = 0;  // guesses of the first path, and of these those that were right
};

struct Sampled {
  std::vector<SampledRow> rows;       // one per work
  std::vector<uint8_t> failed_moves;  // by move; may be empty: all worked
  double seconds = 0;                 // how long the step took, guessing included
  double draft_seconds = 0;           // of them, guessing
  // Rows of logits that a machine apart brought in part; whole; and whole because the part did not settle the token.
  int64_t shortlist_rows = 0, whole_rows = 0, unsettled_rows = 0;
};

// Something to tell whoever waits for a request.
struct Event {
  RequestId request = 0;
  int choice = 0;
  std::optional<Token> token;
  std::optional<Logprobs> logprobs;
  Finish finish = Finish::none;  // not none: the last event of this answer
  std::optional<Error> error;
  int cached = 0;  // prompt tokens that were found in the cache when it started
  double mu = 0;   // mirostat's bar after the token, where there is one
};

}  // namespace millrace

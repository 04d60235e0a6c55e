// Policy: who goes first and how much a step does. The scheduler asks; policies look and answer, and change nothing.
// Times are seconds, given by the caller. Engine thread only.
//
//   fcfs      in order of arrival
//   priority  larger priority first; waiting long counts as priority, so nobody waits for ever
//   slo       steps only as long as running requests can bear (Targets::next_token), no more sequences than that
//             allows, and whoever cannot get a first token in time is told so at once
//   static    classical static batching, for comparison: a batch is formed, and nobody joins until all of it has ended
//
// In all but static, tenants take turns by tokens served: whoever had fewer goes first, so a thousand requests of one
// tenant do not stand before the single one of another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/sequence.h"
#include "engine/step_time.h"

namespace millrace {

// What the engine may use; fixed when it starts.
struct Limits {
  int step_tokens =
      512;  // rows of a step at most; at least max_sequences, so that every running sequence gets its token
  int max_sequences = 64;        // running at once
  int max_waiting = 1024;        // answers in the queue beyond those with a place to run; more are refused
  int max_choices = 64;          // answers to one prompt
  int context = 0;               // tokens of prompt and answer together
  int max_drafts = 0;            // guessed tokens a sequence and step
  int step_drafts = 0;           // and of all sequences together; 0: as many as rows allow
  bool whole_windows = false;    // a sequence that cannot have max_drafts guesses waits until it can
  bool fills = false;            // the model writes by filling masks: a sequence's rows of a step are never cut
  bool shifted = false;          // and predicts each token from the one before it
  double page_move_seconds = 0;  // moving a page to the second store or back
};

struct Tenant {
  std::string name;
  double served = 0;  // tokens computed for it, counted from the least of those active when it came
  int running = 0, waiting = 0;
  int pages = 0;  // held by its running sequences when the step was planned
  bool over_share = false;
};

// The scheduler as a policy sees it when a step is planned.
struct Load {
  double now = 0;
  const Limits* limits = nullptr;
  const StepTime* time = nullptr;
  std::span<Sequence* const> running;
  std::span<Sequence* const> queue;
  int waiting = 0;
  int64_t prompt_tokens = 0;   // to be computed before everybody here has a first token
  int decodes = 0;             // running sequences that need one token a step
  int64_t decode_context = 0;  // what those read in a step
  const Sequence* longest_waiting = nullptr;
  double mean_seconds = 0;  // that a sequence stays, of late; 0: not known
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  // Does a start before b, both waiting?
  virtual bool before(const Sequence& a, const Sequence& b, double now) const = 0;
  // Do tenants take turns, and yield to others what they have above their share?
  virtual bool takes_turns() const { return true; }
  // Running sequences of smaller rank are preempted first, and for a waiting one of larger rank.
  virtual int rank(const Sequence&) const { return 0; }
  // Tokens of the next step. The scheduler sees to it that all decodes have room.
  virtual int budget(const Load& load) const { return load.limits->step_tokens; }
  // May another sequence start now?
  virtual bool admits(const Load&) const { return true; }
  // Seconds a request with so many tokens to compute would wait, if that is too long for it; it is refused then.
  virtual std::optional<double> too_long(const Load&, const Targets&, int /*tokens*/) const { return std::nullopt; }
};

// "fcfs", "priority", "slo", "static"
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

}  // namespace millrace

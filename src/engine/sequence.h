// Sequence: one answer in the making. It knows tokens (the prompt and what was chosen so far) and has computed some of
// them, that is, their keys and values are in the cache; a step closes part of the gap. Prefill, a chunk of it, a
// decode, and going on after a cached prefix are all the same thing. Owned by the scheduler, engine thread only;
// workers never see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/draft/depths.h"
#include "engine/request.h"

namespace millrace {

struct Tenant;

struct Sequence {
  enum class State : uint8_t { waiting, running, finished };

  // What choosing among a thousand waiting ones reads stands together.
  int64_t id = 0;
  Tenant* tenant = nullptr;
  double arrived = 0;         // time of submission
  int64_t preempted_in = -1;  // the step in which it was last sent back to wait
  State state = State::waiting;
  bool started = false;
  bool yields = false;        // its tenant has more than its share: it is the first to go when room is needed
  int choice = 0;             // which of the request's answers
  int pending = 0;            // tokens chosen by a step in flight, so not known here yet
  int computed = 0;           // tokens in the cache once every step planned so far is done
  std::vector<Token> tokens;  // known

  // Where masks are filled: `computed` counts the tokens that are kept between passes, `pending` the passes in flight,
  // and `tokens` has of the answer what is fixed with all before it.
  bool fills = false;
  FillShape shape;
  int pass = 0;  // the next to be planned

  RequestId request = 0;
  std::shared_ptr<const Request> asked;
  int committed = 0;       // tokens in the cache for certain, once `confirmed`
  int entries = -1;        // of them, those of which all that a drafter keeps beside is there; -1: it keeps nothing
  bool confirmed = false;  // a step was committed since it took over what was cached, so that is there
  int room = 0;            // guesses that the next step may make for it
  DraftHistory history;    // what became of earlier ones
  SequencePages pages;

  int in_flight = 0;  // steps planned with it and not committed
  int residence = 0;  // counts up whenever its pages are given back: what a step in flight wrote is gone
  int attempt = 0;    // counts up when what a step in flight computes for it cannot be trusted
  int preemptions = 0;
  int reused = 0;             // tokens its first start found in the cache
  int from_second = 0;        // of them, those that had to come back from the second store for it
  std::vector<double> times;  // of its chosen tokens

  int known() const { return static_cast<int>(tokens.size()); }
  // Tokens that may be offered to others.
  int certain() const {
    const int there = confirmed ? std::min(committed, known()) : 0;
    return entries < 0 ? there : std::min(there, entries);
  }
  int remaining() const { return fills ? next_fill(shape, computed, pass).count : known() + pending - computed; }
  int prompt() const { return static_cast<int>(asked->prompt.size()); }
  int chosen() const { return known() - prompt(); }
};

}  // namespace millrace

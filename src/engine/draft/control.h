// DraftControl: how many guesses each answer gets in the next step. A guess is worth its chance to be kept; a row costs
// what steps with so many rows were measured to cost. Slots (answer, depth) are handed out by chance, and as many of
// them as give the most tokens a second, down to none. Plain arithmetic on values given to it: it reads no clock and
// knows no tokens. Answers do not depend on it. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/draft/depths.h"

namespace millrace {

// Seconds of a step by how many rows it had: rows 1 to 32 apart, because kernels jump there, above in eighths of a
// doubling. Between two that were measured it lies on the line or, never measured, below it, so that it gets tried.
class RowCosts {
 public:
  void observe(int rows, double seconds);
  double at(int rows) const;  // 0: nothing is known
  int64_t seen(int rows) const;

 private:
  static constexpr int kSingle = 32, kBuckets = 160;
  static int bucket(int rows);
  struct Entry {
    int64_t count = 0;
    double rows = 0, seconds = 0;  // averages
  };
  std::array<Entry, kBuckets> entries_;
};

class DraftControl {
 public:
  struct Seat {
    DraftHistory* history = nullptr;
    int limit = 0;  // guesses it can have
    int room = 0;   // and gets
  };
  virtual ~DraftControl() = default;
  // `rows` the step has anyway, of which `tokens` give a token; at most `spare` more.
  virtual void assign(std::span<Seat> seats, int rows, int tokens, int spare) = 0;
  // Guesses for an answer were computed.
  struct Landed {
    int room = 0;      // rows they could have had
    int drafted = 0;   // of the first way to go on
    int along = 0;     // of these, kept
    int accepted = 0;  // kept in all: more where another way was right
  };
  virtual void landed(DraftHistory& /*history*/, const Landed& /*what*/) {}
  // What became of a step: its rows, the most guesses of one answer, and how long it and the guessing took.
  virtual void ran(int /*rows*/, int /*depth*/, double /*seconds*/, double /*draft_seconds*/) {}
  // How long such a step takes; 0: not known.
  virtual double step_seconds(int /*rows*/, int /*depth*/) const { return 0; }
};

// Always as many as there is room for, at most `most` each.
std::unique_ptr<DraftControl> steady_drafts(int most);
// As many as pay.
std::unique_ptr<DraftControl> paying_drafts(int most);
// The same where several ways to go on are tried at once, at most so many beside the first (draft/tree.h).
std::unique_ptr<DraftControl> paying_trees(int most, int branches);

}  // namespace millrace

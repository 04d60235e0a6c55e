// What controls of guesses measure: steps by rows, a guess, and what became of guesses of all answers. Engine thread.
#pragma once

#include <algorithm>
#include <array>

#include "engine/draft/control.h"

namespace millrace {

class MeasuredControl : public DraftControl {
 public:
  void ran(int rows, int depth, double seconds, double draft_seconds) override {
    costs_.observe(rows, seconds - draft_seconds);
    if (depth == 0) return;
    const double each = draft_seconds / depth;
    const double known = depths_seen_++ == 0 ? each : depth_seconds_;
    depth_seconds_ = kFade * known + (1 - kFade) * std::min(each, depths_seen_ > 4 ? kOutlier * known : each);
  }
  void landed(DraftHistory& history, const Landed& what) override {
    history.add(what.drafted, what.along, kFadeOne);
    all_.add(what.drafted, what.along, kFadeAll);
  }
  double step_seconds(int rows, int depth) const override { return costs_.at(rows) + depth * depth_seconds_; }

 protected:
  static constexpr double kFade = 0.9;       // of older measurements
  static constexpr double kOutlier = 4;      // no measurement counts as more than so many times what is known
  static constexpr int64_t kLeastPlain = 3;  // steps without guesses that are measured before there are any
  static constexpr double kMargin = 1.01;    // what guesses must gain at least
  static constexpr double kFadeOne = 0.98, kFadeAll = 0.998;  // of older guesses, for one answer and for all together
  static constexpr double kFirst = 0.7;                       // what a guess is worth before any was seen
  static constexpr double kFirstWeight = 2;                   // guesses that this counts as
  static constexpr double kDeeperWeight = 8;                  // and what those one place nearer are worth, further away
  static constexpr double kAllWeight = 16;  // how many of an answer's own guesses all others' count as
  // After so many steps without a guess there is one, and after as many with guesses there is one more, to see whether
  // that pays by now: a few that happened to be wrong must not keep that place from ever being tried again.
  static constexpr int kProbe = 64;

  double chance(const DraftHistory& history, int depth) const {
    return history.chance(depth, of_all_[static_cast<size_t>(std::min(depth, DraftHistory::kDepths) - 1)], kAllWeight);
  }
  // Few were tried far ahead: there it is as likely as one place nearer until something else was seen.
  void look_at_all() {
    for (int depth = 1; depth <= DraftHistory::kDepths; ++depth) {
      const auto at = static_cast<size_t>(depth - 1);
      of_all_[at] =
          depth == 1 ? all_.chance(1, kFirst, kFirstWeight) : all_.chance(depth, of_all_[at - 1], kDeeperWeight);
    }
  }
  void probe(std::span<Seat> seats, int spare) {
    for (Seat& seat : seats) {
      if (++seat.history->since_probe < kProbe || seat.room >= seat.limit || spare < 1) continue;
      ++seat.room;
      seat.history->since_probe = 0;
      --spare;
    }
  }

  RowCosts costs_;
  DraftHistory all_;
  std::array<double, DraftHistory::kDepths> of_all_ = {};  // chances by depth
  double depth_seconds_ = 0;                               // a guess of every answer takes

 private:
  int64_t depths_seen_ = 0;
};

}  // namespace millrace

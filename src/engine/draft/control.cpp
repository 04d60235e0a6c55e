#include "engine/draft/control.h"

#include <cmath>
#include <limits>

#include "engine/draft/control_measured.h"

namespace millrace {
namespace {

constexpr double kFade = 0.9;       // of older measurements
constexpr double kOutlier = 4;      // no measurement counts as more than so many times what is known
constexpr int64_t kLeastPlain = 3;  // fewer measurements of a number of rows may be by chance
constexpr double kUntried = 0.25;   // what rows nobody tried cost at most above fewer, if more were hardly tried either

class Steady : public DraftControl {
 public:
  explicit Steady(int most) : most_(most) {}
  void ran(int rows, int, double seconds, double) override { costs_.observe(rows, seconds); }
  double step_seconds(int rows, int) const override { return costs_.at(rows); }
  void assign(std::span<Seat> seats, int, int, int spare) override {
    // In turn by depth, so that nobody has two before another has one.
    for (int depth = 1; depth <= most_; ++depth) {
      for (Seat& seat : seats) {
        if (seat.limit < depth || spare == 0) continue;
        seat.room = depth;
        --spare;
      }
    }
  }

 private:
  int most_;
  RowCosts costs_;  // guessing included
};

class Paying : public MeasuredControl {
 public:
  explicit Paying(int most) : most_(most) {}
  void assign(std::span<Seat> seats, int rows, int tokens, int spare) override;

 private:
  struct Slot {
    double worth;  // chance that this guess and all before it are kept
    int depth;
    size_t seat;
  };
  struct Choice {
    int deepest;
    size_t count;
    double rate;  // tokens a second
  };
  Choice most_worthwhile(int rows, int tokens) const;

  int most_;
  std::vector<Slot> slots_;
};

// Which slots give the most tokens a second: no deeper than `deepest`, and of those as many as the result's `count`, in
// their order. A deeper guess for one answer takes its time for all.
Paying::Choice Paying::most_worthwhile(int rows, int tokens) const {
  Choice best{0, 0, tokens / costs_.at(rows) * kMargin};
  for (int deepest = 1; deepest <= most_; ++deepest) {
    double gained = tokens;
    size_t count = 0;
    for (const Slot& slot : slots_) {
      if (slot.depth > deepest) continue;
      gained += slot.worth;
      const double rate = gained / (costs_.at(rows + static_cast<int>(++count)) + deepest * depth_seconds_);
      if (rate > best.rate) best = {deepest, count, rate};
    }
  }
  return best;
}

void Paying::assign(std::span<Seat> seats, int rows, int tokens, int spare) {
  if (costs_.seen(rows) < kLeastPlain) return;
  look_at_all();
  slots_.clear();
  for (size_t seat = 0; seat < seats.size(); ++seat) {
    double worth = 1;
    for (int depth = 1; depth <= std::min(seats[seat].limit, most_); ++depth) {
      worth *= chance(*seats[seat].history, depth);
      slots_.push_back({worth, depth, seat});
    }
  }
  std::stable_sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.worth > b.worth; });
  if (static_cast<int>(slots_.size()) > spare) slots_.resize(static_cast<size_t>(std::max(0, spare)));
  const Choice choice = most_worthwhile(rows, tokens);
  size_t left = choice.count;
  for (size_t i = 0; i < slots_.size() && left > 0; ++i) {
    if (slots_[i].depth > choice.deepest) continue;
    Seat& seat = seats[slots_[i].seat];
    seat.room = std::max(seat.room, slots_[i].depth);
    --left;
  }
  probe(seats, spare - static_cast<int>(choice.count));
}

}  // namespace

int RowCosts::bucket(int rows) {
  if (rows <= kSingle) return std::max(rows, 1) - 1;
  const int eighth = static_cast<int>(8 * std::log2(static_cast<double>(rows) / kSingle));
  return std::min(kSingle + eighth, kBuckets - 1);
}

void RowCosts::observe(int rows, double seconds) {
  if (!(seconds > 0)) return;
  Entry& entry = entries_[static_cast<size_t>(bucket(rows))];
  // The first may have been slow for its own reasons: what came after counts more.
  const double fade = entry.count == 0 ? 0 : entry.count < 3 ? 0.3 : kFade;
  const double counted = entry.count > 2 ? std::min(seconds, kOutlier * entry.seconds) : seconds;
  entry.seconds = fade * entry.seconds + (1 - fade) * counted;
  entry.rows = fade * entry.rows + (1 - fade) * rows;
  ++entry.count;
}

double RowCosts::at(int rows) const {
  const int own = bucket(rows);
  auto entry = [&](int at) { return entries_[static_cast<size_t>(at)]; };
  if (entry(own).count > 0 && own < kSingle) return entry(own).seconds;
  // The nearest measured at or below, and above.
  int below = own, above = own;
  while (below >= 0 && (entry(below).count == 0 || entry(below).rows > rows)) --below;
  while (above < kBuckets && (entry(above).count == 0 || entry(above).rows <= rows)) ++above;
  if (below < 0) return above < kBuckets ? entry(above).seconds : 0;
  if (above == kBuckets) return entry(below).seconds;
  const double share = (rows - entry(below).rows) / (entry(above).rows - entry(below).rows);
  const double rise = share * (entry(above).seconds - entry(below).seconds);
  if (entry(own).count > 0) return entry(below).seconds + rise;
  // One long step above, of the first prompt say, must not keep few rows from ever being tried.
  const bool once = entry(above).count < kLeastPlain;
  const double most = once ? kUntried * entry(below).seconds : std::numeric_limits<double>::infinity();
  return entry(below).seconds + std::min(0.6 * rise, most);
}

int64_t RowCosts::seen(int rows) const { return entries_[static_cast<size_t>(bucket(rows))].count; }

std::unique_ptr<DraftControl> steady_drafts(int most) { return std::make_unique<Steady>(most); }
std::unique_ptr<DraftControl> paying_drafts(int most) { return std::make_unique<Paying>(most); }

}  // namespace millrace

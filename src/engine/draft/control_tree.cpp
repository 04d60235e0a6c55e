// How large trees of guesses are: the same rows for every answer that has one, since what a row more is worth depends
// on how a tree of so many rows is cut (draft/tree.h), and none for answers that are seldom guessed. What the first way
// brings is told by its chances by depth, what the others add is measured by size.
#include <array>

#include "engine/draft/control_measured.h"
#include "engine/draft/drafter.h"
#include "engine/draft/tree.h"

namespace millrace {
namespace {

constexpr double kFirstCaught = 0.4;  // of tokens that the first way misses at its first place, before any was seen
constexpr double kFirstTrees = 4;     // trees that this counts as
constexpr double kFadeTrees = 0.99;   // of older ones

class PayingTrees : public MeasuredControl {
 public:
  PayingTrees(int most, int branches) : most_(std::min(most, kMostDrafts)), branches_(branches) {}
  void assign(std::span<Seat> seats, int rows, int tokens, int spare) override;
  void landed(DraftHistory& history, const Landed& what) override {
    MeasuredControl::landed(history, what);
    More& more = more_[static_cast<size_t>(std::min(what.room, kMostDrafts))];
    more.tokens = kFadeTrees * more.tokens + what.accepted - what.along;
    more.trees = kFadeTrees * more.trees + 1;
  }

 private:
  struct More {  // tokens that ways beside the first brought
    double tokens = 0, trees = 0;
  };
  struct Worth {
    double tokens;
    int room;
    size_t seat;
  };
  double worth(const DraftHistory& history, int room) const;

  int most_, branches_;
  std::array<More, kMostDrafts + 1> more_;
  std::vector<Worth> worths_, chosen_;
};

// Tokens that guesses in so many rows bring.
double PayingTrees::worth(const DraftHistory& history, int room) const {
  const int depth = main_depth(room, branches_);
  double kept = 1, sum = 0;
  for (int at = 1; at <= depth; ++at) sum += kept *= chance(history, at);
  if (depth == room) return sum;
  const More& more = more_[static_cast<size_t>(room)];
  const double usual = kFirstCaught * (1 - chance(history, 1));
  return sum + (more.tokens + usual * kFirstTrees) / (more.trees + kFirstTrees);
}

void PayingTrees::assign(std::span<Seat> seats, int rows, int tokens, int spare) {
  if (costs_.seen(rows) < kLeastPlain) return;
  look_at_all();
  double best = tokens / costs_.at(rows) * kMargin;
  chosen_.clear();
  for (int room = 1; room <= most_; ++room) {
    worths_.clear();
    for (size_t seat = 0; seat < seats.size(); ++seat) {
      const int own = std::min(room, seats[seat].limit);
      if (own > 0) worths_.push_back({worth(*seats[seat].history, own), own, seat});
    }
    std::stable_sort(worths_.begin(), worths_.end(),
                     [](const Worth& a, const Worth& b) { return a.tokens > b.tokens; });
    double gained = tokens;
    int taken = 0;
    const double guessing = main_depth(room, branches_) * depth_seconds_;
    for (size_t count = 0; count < worths_.size() && taken + worths_[count].room <= spare; ++count) {
      taken += worths_[count].room;
      gained += worths_[count].tokens;
      const double rate = gained / (costs_.at(rows + taken) + guessing);
      if (rate <= best) continue;
      best = rate;
      chosen_.assign(worths_.begin(), worths_.begin() + static_cast<ptrdiff_t>(count) + 1);
    }
  }
  for (const Worth& one : chosen_) {
    seats[one.seat].room = one.room;
    spare -= one.room;
  }
  probe(seats, spare);
}

}  // namespace

std::unique_ptr<DraftControl> paying_trees(int most, int branches) {
  return std::make_unique<PayingTrees>(most, branches);
}

}  // namespace millrace

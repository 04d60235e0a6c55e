// Runner: carries out one planned step on the real model: page moves, forward, sampling. It keeps its own copy of every
// answer in the making, because a step may be planned before the token it continues from is known to the scheduler;
// steps run in order, so here it always is. Where a plan has room for guesses it has the drafter make them, computes
// them with the rest, and keeps those that equal what it would have chosen anyway (other rules: draft/rule.h); rows
// after the first wrong one are never looked at, so an answer is the same with and without. One thread at a time calls
// it, the engine's or a thread of its own.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/draft/branches.h"
#include "engine/draft/drafter.h"
#include "engine/executor.h"
#include "engine/step_plan.h"

namespace millrace {

// What a step needs of its plan, copied so that the scheduler may go on meanwhile. Reused from step to step: once grown
// it allocates nothing.
struct Launch {
  struct Item {
    std::shared_ptr<const Request> asked;
    RequestId request = 0;
    int choice = 0;
    int begin = 0, count = 0;
    int residence = 0;          // of the sequence, when planned
    int drafts = 0;             // of the count: room for guesses
    int drafted = 0;            // guesses made, known once the step runs
    size_t branch = 0;          // the first of its other ways to go on, of the step's
    int branches = 0;           // how many there are
    int branch_rows = 0;        // rows of all of them
    int64_t branch_wanted = 0;  // rows of them that give logits
    bool samples = false;
    FillStep fill;
    std::vector<PageTable> tables;

    int known() const { return begin + count - drafts; }  // tokens before the first guess
    int rows() const { return count - drafts + drafted; }
    int wanted() const { return fill.wanted > 0 ? fill.wanted : samples && fill.count == 0 ? 1 + drafted : 0; }
  };
  std::vector<Item> items;  // the first `used` belong to this step
  size_t used = 0;
  std::vector<PageMove> moves;
  std::vector<PageCopy> snapshots;
  double expected = 0;            // seconds it should take; 0: not known yet
  std::vector<RequestId> forget;  // requests that ended: no step from this one on has them

  void take(const StepPlan& plan);
};

class Runner {
 public:
  // The executor and the second store (may be null) outlive the runner, and so does the drafter, if there is one.
  Runner(Executor& executor, Store* second, Drafter* drafter = nullptr, DraftRule rule = DraftRule::exact);

  // One result for every item. Never fails as a whole: an answer that cannot go on has an error of its own.
  void run(Launch& launch, Sampled& sampled);

  int64_t scratch_bytes() const { return scratch_.bytes(); }
  size_t answers() const { return answers_.size(); }

 private:
  struct Answer {
    std::vector<Token> tokens;
    ConstraintStates states;           // by position, if the request has a constraint
    std::unique_ptr<Sampler> sampler;  // null if its parameters are refused; `error` says why
    std::optional<Error> error;
    std::optional<Filling> filling;  // where masks are filled, instead of `tokens`
    std::vector<Token> guesses;
    std::vector<std::vector<Token>> others;           // other ways to go on, as the drafter said them
    int kept_branch = -1;                             // which of them the step went on with
    std::vector<std::vector<TokenProbability>> odds;  // of guesses, where the rule goes by them
  };
  Answer& answer(const Launch::Item& item);
  void draft(Launch& launch, Sampled& sampled);
  void observe(const Launch& launch, Sampled& sampled);  // the drafter is shown what was computed
  void take_guesses(Launch::Item& item, Answer& answer);
  void fail(Answer& answer, Error why, SampledRow& row);
  // Other ways to go on, as far as there is room for them.
  void open_branches(Launch::Item& item, Answer& answer);
  // A branch of the item whose first guesses are `agreed`, with more to compare or not; -1: none.
  int branch_with(const Launch::Item& item, std::span<const Token> agreed) const;
  int64_t first_row_of(const Launch::Item& item, int64_t first, int branch) const;
  void put_path(const Launch::Item& item, Answer& answer, int branch);  // -1: the first path
  const Branch& branch_of(const Launch::Item& item, int branch) const {
    return branches_.at(item.branch + static_cast<size_t>(branch));
  }
  void note_branches(const Launch::Item& item, SampledRow& out) const;
  void keep_branches(const Launch& launch, const Sampled& sampled);
  // One row of an item: which of all wanted rows it is, and the tokens before it.
  struct Row {
    int64_t index = 0;
    std::span<const Token> context;
    std::span<const Token> banned;  // before the least length
    int guess = 0;                  // which guess comes next, counted from 0; the last row has none
  };
  Row row_of(const Launch::Item& item, const Answer& answer, int64_t index, int guess) const;
  // Goes through an item's rows in turn, with what `choose` gives for each, up to the first guess it disagrees with.
  template <class Choose>
  void take(const Launch::Item& item, int64_t& next_row, SampledRow& out, Choose choose);
  bool by_rule(const Launch::Item& item) const {  // another than what comes out without guesses
    return rule_ != DraftRule::exact && item.drafted > 0 && item.asked->sampling.temperature > 0;
  }
  Result<Token> judge(const Launch::Item& item, const Row& row, std::span<const float> logits, const TokenMask* mask);
  Result<Token> choose_whole(const Launch::Item& item, const Row& row, std::span<const float> logits, SampledRow& out);
  Result<Token> choose_shortlist(const Launch::Item& item, const Row& row, const Shortlisted& found, SampledRow& out);
  bool all_greedy(const Launch& launch);
  ShortlistAsk ask_of(const Launch::Item& item, const Row& row);
  void run_greedy(const Launch& launch, Sampled& sampled);
  void run_shortlist(const Launch& launch, Sampled& sampled);
  void run_whole(const Launch& launch, Sampled& sampled);
  void fill(const Launch::Item& item, const Tensor& logits, int64_t& next_row, SampledRow& out);

  Executor& executor_;
  Store* second_;
  Drafter* drafter_;
  DraftRule rule_;
  bool fills_;
  SamplerScratch scratch_;
  std::map<std::pair<RequestId, int>, Answer> answers_;
  std::vector<Chunk> chunks_;
  std::vector<DraftAsk> drafts_;
  std::vector<Observed> observed_;
  Branches branches_;
};

}  // namespace millrace

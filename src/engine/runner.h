// Runner: carries out one planned step on the real model: page moves, forward, sampling. It keeps its own copy of every
// answer in the making, because a step may be planned before the token it continues from is known to the scheduler;
// steps run in order, so here it always is. One thread at a time calls it, the engine's or a thread of its own.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

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
    bool samples = false;
    std::vector<PageTable> tables;
  };
  std::vector<Item> items;  // the first `used` belong to this step
  size_t used = 0;
  std::vector<PageMove> moves;
  std::vector<PageCopy> snapshots;
  std::vector<RequestId> forget;  // requests that ended: no step from this one on has them

  void take(const StepPlan& plan);
};

class Runner {
 public:
  // The executor and the second store (may be null) outlive the runner.
  Runner(Executor& executor, Store* second);

  // One result for every item. Never fails as a whole: an answer that cannot go on has an error of its own.
  void run(Launch& launch, Sampled& sampled);

  int64_t scratch_bytes() const { return scratch_.bytes(); }
  size_t answers() const { return answers_.size(); }

 private:
  struct Answer {
    std::vector<Token> tokens;
    std::unique_ptr<Sampler> sampler;  // null if its parameters are refused; `error` says why
    std::optional<Error> error;
  };
  Answer& answer(const Launch::Item& item);
  void choose(const Launch::Item& item, std::span<const float> logits, SampledRow& row);
  void fail(Answer& answer, Error why, SampledRow& row);
  bool all_greedy(const Launch& launch);
  std::span<const Token> banned_now(const Launch::Item& item) const;  // before the least length
  ShortlistAsk ask_of(const Launch::Item& item);
  void choose_shortlist(const Launch::Item& item, const ShortlistAsk& ask, const Shortlisted& found, int64_t index,
                        SampledRow& row);
  void run_greedy(const Launch& launch, Sampled& sampled);
  void run_shortlist(const Launch& launch, Sampled& sampled);
  void run_whole(const Launch& launch, Sampled& sampled);
  void take_best(const Launch::Item& item, int32_t best, SampledRow& row);

  Executor& executor_;
  Store* second_;
  SamplerScratch scratch_;
  std::map<std::pair<RequestId, int>, Answer> answers_;
  std::vector<Chunk> chunks_;
};

}  // namespace millrace

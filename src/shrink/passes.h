// Passes over a text: every token of every document or window goes through a model, in steps that depend on the text
// and the executor's options only. Two models given the same texts and options see the same rows step by step, so that
// what one computed can be set beside what the other did. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "eval/perplexity.h"

namespace millrace {

// Hears how many tokens were computed; false stops.
using PassProgress = std::function<bool(int64_t tokens)>;

class TextPass {
 public:
  // The texts outlive it. The executor gives logits of as many rows as it takes.
  TextPass(Executor& executor, std::span<const ScoredText> texts);

  struct Row {
    size_t text;
    int32_t position;
  };
  bool done() const { return active_.empty() && next_ == texts_.size(); }
  // One step: the logits of its rows, which rows() names, in the executor's memory until the next.
  Tensor step();
  std::span<const Row> rows() const { return rows_; }

 private:
  struct Active {
    size_t text = 0;
    int32_t computed = 0;
    SequencePages pages;
  };
  int32_t length(const Active& active) const;

  Executor& executor_;
  std::span<const ScoredText> texts_;
  KvCache cache_;
  size_t next_ = 0;
  std::vector<Active> active_;
  std::vector<Row> rows_;
};

int64_t tokens_of(std::span<const ScoredText> texts);  // that a pass computes
Result<void> run_pass(Executor& executor, std::span<const ScoredText> texts, const PassProgress& progress);

// Every fifth text is held out: what is decided is decided by texts that nothing was fitted to.
struct SplitTexts {
  std::vector<ScoredText> fitted, held_out;
};
Result<SplitTexts> split_texts(std::vector<ScoredText> texts);

}  // namespace millrace

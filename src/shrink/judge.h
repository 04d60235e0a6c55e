// Judge: how far models are from one teacher on held-out text. The teacher's logits are computed once and kept where
// they fit, so that judging many students costs one pass each. The same figures for any number of threads. One thread,
// with a team.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/team.h"
#include "eval/compare.h"
#include "shrink/passes.h"

namespace millrace {

class Judge {
 public:
  // The teacher, its backend and the texts outlive it. `threads` compare rows; 0: one for every core.
  static Result<std::unique_ptr<Judge>> make(const Model& teacher, Backend& backend, std::span<const ScoredText> texts,
                                             int threads);

  // Compares with the teacher; only the first `texts` of the texts, 0: all.
  Result<Comparison> judge(const Model& student, Backend& backend, const PassProgress& progress, size_t texts = 0);
  std::span<const ScoredText> texts() const { return texts_; }
  int64_t tokens() const { return tokens_of(texts_); }

 private:
  Judge(std::span<const ScoredText> texts, int threads);
  Result<void> keep(const PassProgress& progress);

  std::span<const ScoredText> texts_;
  Team team_;
  std::unique_ptr<Executor> executor_;  // the teacher's
  ExecutorOptions options_;
  float* kept_ = nullptr;  // [rows of a pass over all texts, vocab], or null: too many
  bool filled_ = false;
};

}  // namespace millrace

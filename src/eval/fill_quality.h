// What a model that fills masks writes with so many passes, and how far keeping finished blocks is from computing
// everything: at each pass by blocks, the distributions at masked positions are compared with those of the whole
// sequence with the same tokens. One thread.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/fill.h"
#include "eval/divergence.h"

namespace millrace {

struct FillQuality {
  std::vector<std::vector<Token>> answers;  // up to the first end token, which is not part of them
  int64_t passes = 0;                       // over all answers, whole ones
  int64_t tokens = 0;                       // positions filled
  int64_t rows = 0;                         // computed, without those that only compare
  LogitDistance frozen;                     // whole sequence against frozen blocks; no rows where all is exact
};

// An executor of this model for prompts up to so long and answers of `length`.
Result<std::unique_ptr<Executor>> filling_executor(const Model& model, Backend& backend, int32_t prompt, int32_t length,
                                                   const KvForm& kv);

// The likeliest tokens are chosen. `whole` is another such executor, which by blocks computes what to compare with.
// `go_on` is asked after each answer.
Result<FillQuality> measure_filling(Executor& executor, Executor& whole, std::span<const std::vector<Token>> prompts,
                                    int32_t length, const FillAsk& ask, std::span<const Token> end_tokens,
                                    const std::function<bool()>& go_on = {});

}  // namespace millrace

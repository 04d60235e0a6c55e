// Golden logits: what another implementation computed for a model, stored beside it as golden.safetensors (input_ids
// [tokens], logits [tokens, vocab], and perhaps greedy [n], the tokens it goes on with, and greedy_gap [n], how far
// apart its two largest logits were there). The check runs the same tokens here and measures the distance. One thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/executor.h"
#include "eval/divergence.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct Golden {
  std::vector<Token> input;
  std::vector<float> logits;  // [input, vocab]
  int64_t vocab = 0;
  std::vector<Token> greedy;
  std::vector<float> gaps;

  std::span<const float> row(size_t index) const {
    return std::span(logits).subspan(index * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
  }
};

Result<Golden> read_golden(const std::filesystem::path& file);

// How near is near enough depends on the arithmetic.
enum class GoldenRule : uint8_t {
  reference,  // largest difference <= 1e-3 of the largest |logit|; greedy tokens equal where the gap exceeds 0.1
  float32,    // mean KL <= 1e-5; gap 0.1
  // Activations or KV in fewer bits: mean KL <= 1e-3, max <= 5e-3; gap 0.4. With experts, rounding may turn a close
  // choice between two of them, and then that row is another function of its input: the median KL is held to 5e-3
  // instead, the mean to 0.1, and the gap is 1.
  reduced,
  // The same of weights that a checkpoint keeps in codes (GPTQ, W8A8 and others), where a single row may be 1e-2 off:
  // sixteen bits round some rows of the stored ones by that much even if weights are kept as float32 (docs/gpu.md).
  codes,
  // Such weights where inputs are rounded to eight bits: the median KL is held to 1e-2 (tests/model/quantised_test.cpp
  // says why).
  codes_of_codes,
};

struct GoldenResult {
  LogitDistance distance;
  double kl_median = 0;
  int greedy = 0, equal = 0;  // tokens compared, and how many are the same
  int first_difference = -1;  // index of the first that is not
  float gap_there = 0;        // its stored gap
  std::string failure;        // why it does not pass; empty: it passes
  bool passed() const { return failure.empty(); }
};

// Tokens as such files store them.
Result<std::vector<Token>> stored_tokens(const StoredTensor& tensor);
// A gap up to which another token than the stored one is excused; and why a result does not pass, if it does not, of a
// model in which rounding turns no choice.
float greedy_gap(GoldenRule rule);
std::string golden_failure(const GoldenResult& result, GoldenRule rule, bool wrong_token);

// What an executor must hold for it.
ExecutorOptions golden_options(const Golden& golden);

// Greedy tokens are compared one by one after the stored ones, so that one difference does not hide the next.
Result<GoldenResult> check_golden(Executor& executor, const Golden& golden, GoldenRule rule);

}  // namespace millrace

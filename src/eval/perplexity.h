// Perplexity: exp of the mean surprise of the tokens of a text, each given those before it. Two ways to cut a text:
//
// - documents: the text is split at blank lines; every document stands alone, begin token in front (if the model has
// one), end
//   token behind; every token after the begin token is scored, the end token too.
// - windows: the whole text as one row of tokens, cut into windows of `context` tokens that do not overlap; the first
// token of
//   each gives its place to the begin token, and of every window the second half is scored, so that each scored token
//   has at least half a window before it. The last, incomplete window is left out. This is what llama.cpp's perplexity
//   tool does.
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/executor.h"

namespace millrace {

// Tokens [first, end) are scored, each given all before it; first is at least 1.
struct ScoredText {
  std::vector<Token> tokens;
  int32_t first = 1;
};

struct TextScore {
  int64_t tokens = 0;
  double surprise = 0;  // sum, in nats
  double squares = 0;   // sum of squares
};

struct Perplexity {
  TextScore total;
  std::vector<TextScore> texts;  // as given
  double value() const;
  // Of value(), taking the surprises of tokens as independent.
  double standard_error() const;
};

std::vector<std::string_view> split_documents(std::string_view text);

std::vector<ScoredText> cut_windows(std::span<const Token> tokens, std::optional<Token> begin, int32_t context);

// Several texts share a step where they are short. `progress` hears how many tokens were computed and may say false to
// stop.
Result<Perplexity> score_texts(Executor& executor, std::span<const ScoredText> texts,
                               const std::function<bool(int64_t tokens)>& progress);

// Options of an executor that suits such texts on this model: enough sequences to fill a step, logits of every row
// within a bounded workspace.
ExecutorOptions scoring_options(std::span<const ScoredText> texts, int32_t vocab);

}  // namespace millrace

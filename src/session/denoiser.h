// Denoiser: writes with a masked-diffusion model. An answer is a row of mask tokens after the prompt; each pass fills
// some of them, those the model is surest of, until none is left. Two named ways: exact computes the whole sequence in
// every pass; frozen blocks keep the keys and values of the prompt and of finished blocks, which for a model trained
// with full attention is an approximation. The executor is made for it (denoise_options) and used by nobody else. What
// is drawn is keyed by (seed, position, pass), so the same request gives the same tokens. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/executor.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Which positions are filled first.
enum class Remasking : uint8_t {
  confidence,  // the likelier their token
  entropy,     // the lower the entropy of their distribution
  margin,      // the further the likeliest token is ahead of the next
  order,       // left to right
};
Result<Remasking> remasking_from_name(std::string_view name);

struct DiffusionOptions {
  int32_t length = 128;  // tokens of the answer
  int32_t steps = 0;     // passes in all; 0: one for every two tokens
  int32_t block = 0;     // tokens of a block; 0: no blocks, everything is computed in every pass
  Remasking remasking = Remasking::confidence;
  double temperature = 0;  // 0: the likeliest token
  uint64_t seed = 0;
  std::vector<Token> end_tokens = {};  // the first one fixed ends the answer
  Token mask = -1;
  bool shifted = false;  // logits of a position are of the token after it (Dream)
};

// What a model's files say of it: the mask token and whether logits are shifted. An error if there is no mask token.
Result<void> read_diffusion(const Checkpoint& checkpoint, const ModelSpec& spec, Token tokenizer_mask,
                            DiffusionOptions& out);

struct Denoised {
  std::vector<Token> tokens;  // up to an end token, which is not part of them
  Token ended_by = -1;
  int32_t passes = 0;                       // through the model
  std::vector<std::vector<int32_t>> fixed;  // by pass: the positions of the answer that it filled, ascending
};

class Denoiser {
 public:
  explicit Denoiser(Executor& executor) : executor_(executor) {}

  // `listener` hears each token once everything before it is fixed; false stops.
  using Listener = std::function<bool(Token token)>;
  Result<Denoised> run(std::span<const Token> prompt, const DiffusionOptions& options, const Listener& listener = {});

 private:
  struct Candidate {
    int32_t position = 0;  // of the answer
    Token token = 0;
    double rank = 0;  // the largest first
  };
  struct Pass {
    int32_t begin = 0, end = 0;  // of the answer: what may be filled
    int32_t take = 0, number = 0;
  };
  Result<void> check(std::span<const Token> prompt, const DiffusionOptions& options) const;
  Tensor compute(int32_t begin, int32_t end, int32_t wanted);
  Result<std::vector<int32_t>> pass(const DiffusionOptions& options, int32_t prompt, const Pass& pass);
  Result<void> fill(const DiffusionOptions& options, int32_t prompt, int32_t begin, int32_t end, int32_t steps,
                    const std::function<bool()>& heard, Denoised& out);
  bool tell(const DiffusionOptions& options, int32_t prompt, const Listener& listener, Denoised& out);

  Executor& executor_;
  std::vector<Token> tokens_;  // prompt and answer
  std::vector<PageTable> tables_;
  int32_t told_ = 0;
};

// What an executor must hold for a prompt and an answer of these lengths.
ExecutorOptions denoise_options(int32_t prompt, const DiffusionOptions& options);

}  // namespace millrace

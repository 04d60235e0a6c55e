// Writing by filling masks: an answer is a row of mask tokens after the prompt, and each pass fills some of them, those
// the model is surest of, until none is left. Two ways: exact computes the whole sequence in every pass; by blocks, one
// block is filled after another, and keys and values of the prompt and of finished blocks are kept (frozen), which for
// a model trained with full attention is an approximation. How many positions a pass fills is settled before the first
// one runs, so that passes can be planned ahead; which ones they are, the model says. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/sampling.h"

namespace millrace {

struct Request;

// Which positions are filled first; ties go to the earlier one.
enum class Remasking : uint8_t {
  confidence,  // the likelier their token
  entropy,     // the lower the entropy of their distribution
  margin,      // the further the likeliest token is ahead of the next
  order,       // left to right
};
inline constexpr std::string_view kRemaskings = "confidence|entropy|margin|order";
Result<Remasking> remasking_from_name(std::string_view name);
std::string_view remasking_name(Remasking rule);

// What a request may say about it.
struct FillAsk {
  int32_t steps = 0;  // passes over the answer; 0: one for every two tokens
  int32_t block = 0;  // tokens of a block; 0: exact
  Remasking remasking = Remasking::confidence;

  friend bool operator==(const FillAsk&, const FillAsk&) = default;
};

// Tokens of an answer whose length nobody says: all of them are computed from the first pass on.
inline constexpr int32_t kUsualFill = 128;

// The part of a request that says how many rows which pass has.
struct FillShape {
  int32_t prompt = 0, length = 0;
  int32_t steps = 0, block = 0;
  bool shifted = false;  // logits of a position are of the token after it

  FillShape() = default;
  FillShape(int32_t prompt_tokens, int32_t length_tokens, const FillAsk& ask, bool is_shifted);
  bool exact() const { return block == 0; }
  int32_t total() const { return prompt + length; }
  int32_t blocks() const { return exact() ? 1 : (length + block - 1) / block; }
  int32_t passes() const;
};

// What is computed next: a pass, or (pass -1) tokens whose keys and values are kept from then on.
struct FillStep {
  int32_t begin = 0, count = 0;  // positions; all of them see all up to the last
  int32_t wanted = 0;            // of the last of them, logits are wanted
  int32_t pass = -1;
  int32_t first = 0, end = 0;  // of the answer: what may be filled
  int32_t take = 0;            // how many are
};
// With the first `kept` tokens in the cache for good and so many passes done. Nothing (count 0) after the last.
FillStep next_fill(const FillShape& shape, int32_t kept, int32_t pass);

// One answer in the making.
class Filling {
 public:
  // All masks; of what is told, the first `told` tokens have been.
  Filling(std::span<const Token> prompt, const FillShape& shape, Token mask, int32_t told = 0);

  // Prompt and answer, masks where nothing is fixed.
  std::span<const Token> tokens() const { return tokens_; }
  // Fills what a pass may, from its rows of logits. Gives the tokens that are fixed now with all before them and were
  // not told yet; `fixed`, if there is one, the positions of the answer that were filled, ascending.
  using Rows = std::function<std::span<const float>(int32_t row)>;
  Result<std::vector<Token>> fill(const FillStep& step, const Request& request, int32_t choice, const Rows& rows,
                                  std::vector<int32_t>* fixed = nullptr);

 private:
  FillShape shape_;
  Token mask_;
  int32_t told_;
  std::vector<Token> tokens_;
};

// What cannot be promised where tokens come in any order is refused, and so is a word on passes where they do not.
Result<void> check_fill(const Request& request, bool fills, int32_t step_tokens);

}  // namespace millrace

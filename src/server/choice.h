// Choice: one answer of a request on its way to the client. Tokens come in; parts (reasoning, content, calls of tools),
// log-probabilities and ids that may be shown go out, as much as is there whenever somebody asks. What a slow reader
// has not taken is kept as text, not as events, so it costs no more than the answer itself. One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "server/request_body.h"
#include "session/answer_part.h"
#include "session/parted_answer.h"
#include "session/prediction.h"

namespace millrace {

// One token's log-probabilities.
struct ShownLogprobs {
  Token token = 0;
  Logprobs values;
  size_t offset = 0;  // characters of the answer that were certain before it
};

class Choice {
 public:
  // The model outlives it.
  static Result<Choice> create(const LoadedModel& model, const RequestBody& asked, Thinking thinking = Thinking::may);

  // Takes an event of this answer. True: a stop string is complete, and the engine need not go on with it.
  bool take(const Event& event);
  // What the ids of its calls are made of: the same gives the same.
  void name_calls(std::string name) { name_ = std::move(name); }
  void put_in_front(std::string_view text);  // echo
  bool echoed() const { return echoed_; }
  // The first tokens that come are the prompt's, from its second on: only their log-probabilities are kept.
  void score_prompt(std::span<const Token> prompt);

  bool done() const { return !reason_.empty(); }
  std::string_view finish_reason() const { return reason_; }  // "stop", "length", "tool_calls", empty: not yet
  const std::optional<Error>& error() const { return error_; }
  int tokens() const { return tokens_; }  // chosen so far, an end token included
  int reasoning_tokens() const { return reasoning_tokens_; }
  int cached() const { return cached_; }
  std::string_view stopped_by() const { return answer_.stopped_by(); }  // the stop string; empty: none did
  // Of its tokens, where the engine reports them: how likely the answer was.
  double mean_logprob() const { return tokens_ > 0 ? logprob_sum_ / tokens_ : 0; }
  // Counts what of a prediction is in the answer.
  void predict(std::shared_ptr<const PredictedText> text) { prediction_.emplace(std::move(text)); }
  const std::optional<PredictionUse>& prediction() const { return prediction_; }

  // What came since the last clear(), in order; neighbours of a kind are one. A call begins with its id and name, its
  // arguments follow as pieces of JSON text. Every call has an id: the model's, or one made here.
  const std::vector<AnswerPart>& parts() const { return parts_; }
  int calls() const { return calls_; }               // that have begun in the whole answer
  int earlier_calls() const { return told_calls_; }  // of them, before the last clear()
  std::string text() const;                          // the content among the parts
  const std::vector<Token>& ids() const { return ids_; }
  const std::vector<ShownLogprobs>& logprobs() const { return logprobs_; }
  // Of the prompt's tokens, where they were asked for; the first has none.
  const std::vector<ShownLogprobs>& prompt_logprobs() const { return prompt_logprobs_; }
  bool empty() const { return parts_.empty() && ids_.empty() && logprobs_.empty(); }
  void clear();

 private:
  explicit Choice(PartedAnswer answer) : answer_(std::move(answer)) {}
  void end(std::string_view reason);
  void look_at(size_t first, size_t bytes);

  // Whose ids calls have: our own, own ones of nine letters, as the format's are, or what stands for the name.
  enum class Ids : uint8_t { own, nine, named };
  PartedAnswer answer_;
  std::vector<AnswerPart> parts_;
  std::vector<Token> ids_;
  std::vector<ShownLogprobs> logprobs_, prompt_logprobs_;
  std::string reason_, name_;
  std::optional<Error> error_;
  std::optional<PredictionUse> prediction_;
  size_t offset_ = 0;
  int tokens_ = 0, cached_ = 0, reasoning_tokens_ = 0;
  size_t scored_ = 0;  // tokens of the prompt that are to be scored
  int calls_ = 0, told_calls_ = 0;
  Ids ids_of_ = Ids::own;
  bool whole_call_ = false;
  double logprob_sum_ = 0;
  bool keep_ids_ = false, keep_logprobs_ = true, echoed_ = false;
};

}  // namespace millrace

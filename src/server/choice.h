// Choice: one answer of a request on its way to the client. Tokens come in; text, log-probabilities and ids that may be
// shown go out, as much as is there whenever somebody asks. What a slow reader has not taken is kept as text, not as
// events, so it costs no more than the answer itself. One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/step_plan.h"
#include "server/request_body.h"
#include "session/answer.h"
#include "session/answer_part.h"
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
  static Result<Choice> create(const LoadedModel& model, const RequestBody& asked);

  // Takes an event of this answer. True: a stop string is complete, and the engine need not go on with it.
  bool take(const Event& event);
  void put_in_front(std::string_view text) { text_.insert(0, text); }  // echo

  bool done() const { return !reason_.empty(); }
  std::string_view finish_reason() const { return reason_; }  // "stop", "length", empty: not yet
  const std::optional<Error>& error() const { return error_; }
  int tokens() const { return tokens_; }  // chosen so far, an end token included
  int cached() const { return cached_; }
  std::string_view stopped_by() const { return answer_.stops().found(); }  // the stop string; empty: none did
  // Of its tokens, where the engine reports them: how likely the answer was.
  double mean_logprob() const { return tokens_ > 0 ? logprob_sum_ / tokens_ : 0; }
  // Counts what of a prediction is in the answer.
  void predict(std::shared_ptr<const PredictedText> text) { prediction_.emplace(std::move(text)); }
  const std::optional<PredictionUse>& prediction() const { return prediction_; }

  // What came since the last clear().
  std::vector<AnswerPart> parts() const {
    if (text_.empty()) return {};
    return {{AnswerPart::Kind::content, text_}};
  }
  const std::string& text() const { return text_; }
  const std::vector<Token>& ids() const { return ids_; }
  const std::vector<ShownLogprobs>& logprobs() const { return logprobs_; }
  bool empty() const { return text_.empty() && ids_.empty() && logprobs_.empty(); }
  void clear();

 private:
  explicit Choice(Answer answer) : answer_(std::move(answer)) {}
  void end(std::string_view reason);

  Answer answer_;
  std::string text_;
  std::vector<Token> ids_;
  std::vector<ShownLogprobs> logprobs_;
  std::string reason_;
  std::optional<Error> error_;
  std::optional<PredictionUse> prediction_;
  size_t offset_ = 0;
  int tokens_ = 0, cached_ = 0;
  double logprob_sum_ = 0;
  bool keep_ids_ = false, keep_logprobs_ = true;
};

}  // namespace millrace

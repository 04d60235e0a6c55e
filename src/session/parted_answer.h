// PartedAnswer: one answer as its tokens come, taken apart into reasoning, content and calls of tools by the model's
// own format; where nothing is to be taken apart, all is content, as Answer gives it. Whole characters only, and
// nothing that may still become a mark or a stop string. Stop strings are looked for in content alone: neither the
// arguments of a call nor reasoning end an answer. One per answer, one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "session/answer.h"
#include "session/answer_part.h"
#include "session/loaded_model.h"
#if MILLRACE_SESSION_TEXT
#include "session/call_reader.h"
#include "text/detokenizer.h"
#endif

namespace millrace {

struct PartsAsked {
  bool chat = false;                     // reasoning is taken apart, and calls if there are tools
  std::shared_ptr<const ToolUse> tools;  // null: nothing is a call
  Thinking thinking = Thinking::may;
};

class PartedAnswer {
 public:
  // The model outlives it.
  static Result<PartedAnswer> create(const LoadedModel& model, std::span<const std::string> stops, bool continues,
                                     PartsAsked asked);

  // Appends what is certain now; neighbours of a kind become one. True: a stop string is complete, and nothing more
  // will come.
  bool push(Token token, std::vector<AnswerPart>& out);
  // The tokens have ended: appends what was held back.
  void finish(std::vector<AnswerPart>& out);
  bool thinking() const;                // it is in the middle of reasoning
  std::string_view stopped_by() const;  // the stop string that ended it; empty: none did

 private:
  PartedAnswer() = default;
  bool pass(std::vector<AnswerPart>& read, std::vector<AnswerPart>& out);

  std::optional<Answer> plain_;
  std::string piece_;
#if MILLRACE_SESSION_TEXT
  const Tokenizer* tokenizer_ = nullptr;
  std::shared_ptr<const ToolUse> tools_;
  std::optional<CallReader> reader_;
  std::optional<Detokenizer> detokenizer_;
  StopStrings stops_;
  std::vector<AnswerPart> read_;
#endif
};

// Adds a part, or what it says to the last one if that is of its kind.
void append_part(std::vector<AnswerPart>& out, AnswerPart part);

}  // namespace millrace

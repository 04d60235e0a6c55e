// Answer: the text of one answer as its tokens come: whole characters only, and nothing that may still become a stop
// string. Control tokens are left out. Without a tokenizer there is no text, and stop strings are refused. One per
// answer, one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "session/loaded_model.h"
#include "session/stop_strings.h"
#if MILLRACE_SESSION_TEXT
#include "text/detokenizer.h"
#endif

namespace millrace {

class Answer {
 public:
  // `continues`: the answer goes on in the middle of a text, so a space in front of it stays.
  static Result<Answer> create(const LoadedModel& model, std::span<const std::string> stops, bool continues);

  // Appends to `out` the text that is certain now. True: a stop string is complete, and nothing more will come.
  bool push(Token token, std::string& out);
  // The tokens have ended: appends what was held back.
  void finish(std::string& out);

  const StopStrings& stops() const { return stops_; }

 private:
  StopStrings stops_;
#if MILLRACE_SESSION_TEXT
  std::optional<Detokenizer> detokenizer_;
  std::string piece_;
#endif
};

// The tokens of a text as a prompt: after the begin token, if the model wants one and the text does not bring it.
// Control tokens written out in the text count as such.
Result<std::vector<Token>> raw_prompt(const LoadedModel& model, std::string_view text);

}  // namespace millrace

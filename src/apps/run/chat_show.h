// An answer of a chat as a terminal shows it: words that are not broken, reasoning dim, calls of tools in one line
// each. Where nobody watches, the content alone and as it is. One answer, main thread.
#pragma once

#include <string>

#include "apps/cli/terminal.h"
#include "apps/cli/wrap.h"
#include "session/answer_part.h"

namespace millrace::apps {

class ChatShow {
 public:
  // `silent`: nothing is shown, content() is still kept.
  ChatShow(const Terminal& terminal, bool silent);

  void add(const AnswerPart& part);
  void end();  // what was held back, and the end of the line
  const std::string& content() const { return content_; }
  const JsonArray& calls() const { return calls_; }

 private:
  void write(std::string_view text);
  void to_kind(AnswerPart::Kind kind);
  void show_call();

  const Terminal& terminal_;
  bool silent_, watched_;
  Wrap wrap_;
  std::string content_, name_, arguments_;
  JsonArray calls_;
  AnswerPart::Kind kind_ = AnswerPart::Kind::content;
  bool shown_ = false;      // anything at all
  bool line_open_ = false;  // the last thing shown was no line break
  bool begun_ = false;      // content has begun
};

// Columns of the terminal that standard output is; 0 if it is none.
int out_columns();

}  // namespace millrace::apps

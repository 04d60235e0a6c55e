// What a person types into a chat: lines with editing and history on a terminal, plain lines from anywhere else,
// several lines where one is not enough. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/run/chat_history.h"

namespace millrace::apps {

class LineEditor;
class Terminal;

class ChatInput {
 public:
  // `history`: what was typed in earlier runs is there, and what is typed now will be.
  ChatInput(const Terminal& terminal, bool history);
  ~ChatInput();

  bool interactive() const { return interactive_; }
  // The next thing said, or nothing at the end of input or when Ctrl-C was pressed twice. A line that ends in a
  // backslash goes on in the next; a line that starts with three double quotes goes on until they come again. Ctrl-C
  // forgets what was typed of it.
  std::optional<std::string> next(const std::string& prompt = "> ");

 private:
  enum class Got : uint8_t { line, cleared, leave, end };
  Got line(const std::string& prompt, std::string& text);
  Got whole(const std::string& prompt, std::string& text);

  const Terminal& terminal_;
  bool interactive_ = false;
  std::optional<ChatHistory> history_;
  std::unique_ptr<LineEditor> editor_;
};

}  // namespace millrace::apps

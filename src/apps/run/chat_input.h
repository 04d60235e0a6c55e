// What a person types into a chat: lines with editing and history on a terminal, plain lines from anywhere else,
// several lines where one is not enough. Main thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::apps {

class ChatInput {
 public:
  ChatInput();

  bool interactive() const { return interactive_; }
  // The next thing said, or nothing at the end of input. A line that ends in a backslash goes on in the next; a line
  // that starts with three double quotes goes on until they come again.
  std::optional<std::string> next();

 private:
  std::optional<std::string> line(const char* prompt);

  bool interactive_ = false;
};

}  // namespace millrace::apps

// One line at a time from a terminal, by libedit, with what a chat wants beside editing: Ctrl-C clears the line, a
// paste comes in whole with its line breaks (shown as U+2424), and Ctrl-Z stops the program as ever. In builds with
// libedit only. Main thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace millrace::apps {

class LineEditor {
 public:
  enum class Outcome : uint8_t {
    line,
    cleared,  // Ctrl-C on a line with something on it
    leave,    // Ctrl-C on an empty one
    end,      // the end of input
  };
  static std::unique_ptr<LineEditor> create();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Outcome read(std::string_view prompt, std::string& text);
  void remember(std::string_view text);

 private:
  struct State;
  LineEditor();
  std::unique_ptr<State> state_;
};

}  // namespace millrace::apps

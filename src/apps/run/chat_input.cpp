#include "apps/run/chat_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "apps/cli/terminal.h"
#include "apps/run/line_editor.h"

namespace millrace::apps {
namespace {

constexpr std::string_view kFence = "\"\"\"";

}  // namespace

ChatInput::ChatInput(const Terminal& terminal, bool history)
    : terminal_(terminal), interactive_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {
#if MILLRACE_HAS_EDIT
  if (!interactive_) return;
  editor_ = LineEditor::create();
  if (editor_ == nullptr || !history) return;
  history_ = ChatHistory::usual();
  for (const std::string& text : history_->load()) editor_->remember(text);
#else
  static_cast<void>(history);
#endif
}

ChatInput::~ChatInput() = default;

ChatInput::Got ChatInput::line(const std::string& prompt, std::string& text) {
#if MILLRACE_HAS_EDIT
  if (editor_ != nullptr) {
    switch (editor_->read(prompt, text)) {
      case LineEditor::Outcome::line:
        return Got::line;
      case LineEditor::Outcome::cleared:
        return Got::cleared;
      case LineEditor::Outcome::leave:
        return Got::leave;
      case LineEditor::Outcome::end:
        return Got::end;
    }
  }
#endif
  if (interactive_) {
    std::fputs(prompt.c_str(), stderr);
    std::fflush(stderr);
  }
  if (!std::getline(std::cin, text)) return Got::end;
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return Got::line;
}

ChatInput::Got ChatInput::whole(const std::string& prompt, std::string& text) {
  if (const Got got = line(prompt, text); got != Got::line) return got;
  std::string more;
  if (text.starts_with(kFence)) {
    text.erase(0, kFence.size());
    while (!text.ends_with(kFence)) {
      const Got got = line(". ", more);
      if (got == Got::end) return Got::line;
      if (got != Got::line) return Got::cleared;
      text += "\n" + more;
    }
    text.resize(text.size() - kFence.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    return Got::line;
  }
  while (text.ends_with('\\')) {
    text.back() = '\n';
    const Got got = line(". ", more);
    if (got == Got::end) break;
    if (got != Got::line) return Got::cleared;
    text += more;
  }
  return Got::line;
}

std::optional<std::string> ChatInput::next(const std::string& prompt) {
  std::string text;
  for (bool again = false;; again = true) {
    switch (whole(prompt, text)) {
      case Got::line:
#if MILLRACE_HAS_EDIT
        if (editor_ != nullptr && !text.empty()) {
          editor_->remember(text);
          if (history_) history_->add(text);
        }
#endif
        return text;
      case Got::end:
        return std::nullopt;
      case Got::leave:
        if (again) return std::nullopt;
        terminal_.note("(Ctrl-C once more, or /exit, leaves)");
        break;
      case Got::cleared:
        break;
    }
  }
}

}  // namespace millrace::apps

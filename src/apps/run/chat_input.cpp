#include "apps/run/chat_input.h"

#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#if MILLRACE_HAS_EDIT
#include <editline/readline.h>
#endif

namespace millrace::apps {
namespace {

constexpr std::string_view kFence = "\"\"\"";

}  // namespace

ChatInput::ChatInput() : interactive_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {
#if MILLRACE_HAS_EDIT
  if (interactive_) {
    std::setlocale(LC_CTYPE, "");  // so that a character of several bytes is one character
    rl_outstream = stderr;         // standard output is for answers
    using_history();
  }
#endif
}

std::optional<std::string> ChatInput::line(const char* prompt) {
#if MILLRACE_HAS_EDIT
  if (interactive_) {
    char* typed = readline(prompt);
    if (typed == nullptr) return std::nullopt;
    std::string text(typed);
    if (!text.empty()) add_history(typed);
    std::free(typed);
    return text;
  }
#endif
  if (interactive_) {
    std::fputs(prompt, stderr);
    std::fflush(stderr);
  }
  std::string text;
  if (!std::getline(std::cin, text)) return std::nullopt;
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

std::optional<std::string> ChatInput::next() {
  std::optional<std::string> first = line("> ");
  if (!first) return std::nullopt;
  std::string text = *first;
  if (text.starts_with(kFence)) {
    text.erase(0, kFence.size());
    while (!text.ends_with(kFence)) {
      std::optional<std::string> more = line(". ");
      if (!more) return text;
      text += "\n" + *more;
    }
    text.resize(text.size() - kFence.size());
    if (text.starts_with('\n')) text.erase(0, 1);
    if (text.ends_with('\n')) text.pop_back();
    return text;
  }
  while (text.ends_with('\\')) {
    text.back() = '\n';
    std::optional<std::string> more = line(". ");
    if (!more) break;
    text += *more;
  }
  return text;
}

}  // namespace millrace::apps

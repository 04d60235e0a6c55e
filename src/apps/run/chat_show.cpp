#include "apps/run/chat_show.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace millrace::apps {

int out_columns() {
  winsize size = {};
  if (::isatty(STDOUT_FILENO) != 1) return 0;
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

ChatShow::ChatShow(const Terminal& terminal, bool silent)
    : terminal_(terminal), silent_(silent), watched_(terminal.out_is_tty()), wrap_(out_columns()) {}

void ChatShow::write(std::string_view text) {
  if (silent_ || text.empty()) return;
  terminal_.write_out(kind_ == AnswerPart::Kind::reasoning ? terminal_.out_paint(Style::dim, text) : std::string(text));
  std::fflush(stdout);
  shown_ = true;
  line_open_ = !text.ends_with('\n');
}

// Reasoning and content stand on lines of their own.
void ChatShow::to_kind(AnswerPart::Kind kind) {
  if (kind == kind_) return;
  write(wrap_.flush());
  if (line_open_) write("\n");
  wrap_ = Wrap(out_columns());
  kind_ = kind;
}

void ChatShow::show_call() {
  JsonObject call = {{"name", name_}, {"arguments", arguments_}};
  calls_.push_back(std::move(call));
  if (!watched_) return;
  write(terminal_.out_paint(Style::cyan, fmt::format("-> {}({})", printable(name_), printable(arguments_))));
  write("\n");
}

void ChatShow::add(const AnswerPart& part) {
  std::string_view text = part.text;
  switch (part.kind) {
    case AnswerPart::Kind::reasoning:
      if (!watched_) return;  // a pipe gets the answer, nothing else
      to_kind(part.kind);
      write(wrap_.push(printable(text, true)));
      return;
    case AnswerPart::Kind::content:
      // Some models say a space or a line break first; nobody needs to see it.
      if (!begun_) text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
      if (text.empty()) return;
      begun_ = true;
      content_ += text;
      to_kind(part.kind);
      write(watched_ ? wrap_.push(printable(text, true)) : std::string(text));
      return;
    case AnswerPart::Kind::call:
      to_kind(part.kind);
      name_ = text;
      arguments_.clear();
      return;
    case AnswerPart::Kind::arguments:
      arguments_ += text;
      return;
    case AnswerPart::Kind::ended:
      show_call();
      return;
  }
}

void ChatShow::end() {
  write(wrap_.flush());
  if (line_open_ || !shown_) write("\n");
}

}  // namespace millrace::apps

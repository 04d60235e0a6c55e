#include "apps/run/line_editor.h"

#if MILLRACE_HAS_EDIT
#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "apps/run/chat_history.h"

namespace millrace::apps {
namespace {

constexpr wchar_t kBreak = 0x2424;      // a line break, as it is shown within a line
constexpr size_t kMostPaste = 1 << 20;  // characters
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

std::wstring to_wide(std::string_view text) {
  std::wstring out;
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t count = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
    uint32_t code = count == 1 ? first : first & (0xFFu >> (count + 1));
    for (size_t j = 1; j < count && i + j < text.size(); ++j)
      code = code << 6 | (static_cast<unsigned char>(text[i + j]) & 0x3Fu);
    out += code == '\n' ? kBreak : static_cast<wchar_t>(code);
    i += count;
  }
  return out;
}

void add_utf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80u | (code >> (6 * i) & 0x3Fu));
}

std::string to_text(std::wstring_view wide) {
  std::string out;
  for (const wchar_t c : wide) add_utf8(c == kBreak ? '\n' : static_cast<uint32_t>(c), out);
  return out;
}

}  // namespace

struct LineEditor::State {
  EditLine* edit = nullptr;
  HistoryW* history = nullptr;
  std::wstring prompt;
  bool interrupted = false;

  static State& of(EditLine* edit) {
    void* state = nullptr;
    el_wget(edit, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }
  static wchar_t* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  static unsigned char on_interrupt(EditLine* edit, wint_t) {
    of(edit).interrupted = true;
    const LineInfoW* line = el_wline(edit);
    el_cursor(edit, static_cast<int>(line->lastchar - line->cursor));
    el_wset(edit, EL_REFRESH);
    return CC_NEWLINE;
  }
  static unsigned char on_suspend(EditLine* edit, wint_t) {
    el_wset(edit, EL_PREP_TERM, 0);
    ::raise(SIGTSTP);
    el_wset(edit, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }
  // Everything up to the mark that ends it; control characters cannot get into the line that way.
  static unsigned char on_paste(EditLine* edit, wint_t) {
    std::wstring text;
    wchar_t c = 0;
    while (text.size() < kMostPaste && el_wgetc(edit, &c) == 1) {
      text += c;
      if (text.ends_with(kPasteEnd)) break;
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring clean;
    for (const wchar_t one : text) {
      const bool line = one == L'\r' || one == L'\n';
      clean += line ? kBreak : one < 0x20 || one == 0x7f ? L' ' : one;
    }
    if (!clean.empty() && el_winsertstr(edit, clean.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }
};

LineEditor::LineEditor() : state_(std::make_unique<State>()) {}

LineEditor::~LineEditor() {
  if (state_->edit != nullptr) el_end(state_->edit);
  if (state_->history != nullptr) history_wend(state_->history);
}

std::unique_ptr<LineEditor> LineEditor::create() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  std::unique_ptr<LineEditor> made(new LineEditor());
  State& state = *made->state_;
  state.edit = el_init("millrace", stdin, stderr, stderr);  // standard output is for answers
  state.history = history_winit();
  if (state.edit == nullptr || state.history == nullptr) return nullptr;
  HistEventW event;
  history_w(state.history, &event, H_SETSIZE, static_cast<int>(ChatHistory::kMost));
  history_w(state.history, &event, H_SETUNIQUE, 1);
  el_wset(state.edit, EL_CLIENTDATA, &state);
  el_wset(state.edit, EL_PROMPT, &State::show_prompt);
  el_wset(state.edit, EL_EDITOR, L"emacs");
  el_wset(state.edit, EL_SIGNAL, 0);
  el_wset(state.edit, EL_HIST, history_w, state.history);
  el_wset(state.edit, EL_SETTY, L"-d", L"-isig", nullptr);  // its keys come to us as characters
  el_wset(state.edit, EL_ADDFN, L"clear-line", L"clear the line", &State::on_interrupt);
  el_wset(state.edit, EL_ADDFN, L"suspend", L"stop the program", &State::on_suspend);
  el_wset(state.edit, EL_ADDFN, L"take-paste", L"take a paste whole", &State::on_paste);
  el_wset(state.edit, EL_BIND, L"^C", L"clear-line", nullptr);
  el_wset(state.edit, EL_BIND, L"^Z", L"suspend", nullptr);
  el_wset(state.edit, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  el_wset(state.edit, EL_BIND, L"\x1b[200~", L"take-paste", nullptr);
  return made;
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, std::string& text) {
  State& state = *state_;
  state.prompt = to_wide(prompt);
  state.interrupted = false;
  const char* kind = std::getenv("TERM");
  const bool able = kind != nullptr && std::strcmp(kind, "dumb") != 0;
  auto brackets = [&](const char* sequence) {
    if (!able) return;
    std::fputs(sequence, stderr);
    std::fflush(stderr);
  };
  brackets("\x1b[?2004h");
  int count = 0;
  el_wset(state.edit, EL_PREP_TERM, 1);  // before the prompt is seen, so that no key is taken the old way
  const wchar_t* line = el_wgets(state.edit, &count);
  brackets("\x1b[?2004l");
  text.clear();
  if (state.interrupted) std::fputs("^C\n", stderr);
  if (line == nullptr || count <= 0) return state.interrupted ? Outcome::leave : Outcome::end;
  std::wstring_view typed(line, static_cast<size_t>(count));
  while (!typed.empty() && (typed.back() == L'\n' || typed.back() == L'\r')) typed.remove_suffix(1);
  text = to_text(typed);
  if (!state.interrupted) return Outcome::line;
  return typed.empty() ? Outcome::leave : Outcome::cleared;
}

void LineEditor::remember(std::string_view text) {
  HistEventW event;
  history_w(state_->history, &event, H_ENTER, to_wide(text).c_str());
}

}  // namespace millrace::apps
#else
namespace millrace::apps {

struct LineEditor::State {};
LineEditor::~LineEditor() = default;

}  // namespace millrace::apps
#endif

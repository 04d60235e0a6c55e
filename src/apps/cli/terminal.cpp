#include "apps/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace millrace::apps {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool forced(const char* name) { return is_set(name) && std::string_view(std::getenv(name)) != "0"; }

bool wants_color(std::string_view choice, bool is_tty) {
  if (choice == "always") return true;
  if (choice == "never" || is_set("NO_COLOR")) return false;
  if (forced("CLICOLOR_FORCE") || forced("FORCE_COLOR")) return true;
  const char* term = std::getenv("TERM");
  return is_tty && term != nullptr && std::string_view(term) != "dumb";
}

// Bytes of the well-formed UTF-8 character the text begins with, 0 if it begins with none.
size_t character_bytes(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t count = byte(0) < 0x80   ? 1
                 : byte(0) < 0xC2 ? 0
                 : byte(0) < 0xE0 ? 2
                 : byte(0) < 0xF0 ? 3
                 : byte(0) < 0xF5 ? 4
                                  : 0;
  if (count > text.size()) return 0;
  for (size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (count == 3 && ((byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) >= 0xA0))) return 0;
  if (count == 4 && ((byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) >= 0x90))) return 0;
  return count;
}

// C0, delete, and C1 (which UTF-8 writes as C2 80 to C2 9F).
bool is_control(std::string_view character) {
  auto first = static_cast<unsigned char>(character[0]);
  return first < 0x20 || first == 0x7F || (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
}

}  // namespace

Terminal::Terminal(std::string_view color, bool quiet)
    : quiet_(quiet), out_is_tty_(::isatty(STDOUT_FILENO) == 1), err_is_tty_(::isatty(STDERR_FILENO) == 1) {
  color_out_ = wants_color(color, out_is_tty_);
  color_err_ = wants_color(color, err_is_tty_);
}

void Terminal::write_out(std::string_view text) const { std::fwrite(text.data(), 1, text.size(), stdout); }

void Terminal::write_line(std::string_view prefix, Style style, std::string_view text) const {
  std::string line = err_paint(style, prefix);
  line += text;
  line += '\n';
  std::fflush(stdout);  // so that both streams read in order on a terminal
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Terminal::fail(std::string_view message) const {
  std::string line(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_line("millrace: ", Style::red, printable(line));
}

std::string Terminal::paint(bool on, Style style, std::string_view text) {
  static constexpr const char* kCodes[] = {"0", "1", "2", "31", "32", "33", "36"};
  if (!on || style == Style::plain || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(style)], text);
}

int Terminal::err_columns() const {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

std::string human_count(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  if (count < 1000) return fmt::format("{}", count);
  double value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : (value < 99.95 ? 1 : 0), kUnits[unit]);
}

std::string human_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Progress::Progress(const Terminal& terminal, std::string label, uint64_t total, Unit unit)
    : terminal_(terminal), label_(std::move(label)), total_(total), unit_(unit), start_(Clock::now()), shown_(start_) {}

Progress::~Progress() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void Progress::update(uint64_t done) {
  if (terminal_.quiet()) return;
  auto now = Clock::now();
  using std::chrono::milliseconds;
  milliseconds pause = !terminal_.err_is_tty() ? milliseconds(10000) : milliseconds(drawn_ ? 100 : 500);
  if (now - shown_ < pause) return;
  shown_ = now;
  draw(std::chrono::duration<double>(now - start_).count(), done);
}

void Progress::draw(double seconds, uint64_t done) {
  double fraction = total_ == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  auto amount = [&](uint64_t value) { return unit_ == Unit::bytes ? human_bytes(value) : human_count(value); };
  auto rate = static_cast<uint64_t>(static_cast<double>(done) / seconds);
  std::string numbers = fmt::format("{:3.0f}%  {} of {}", fraction * 100, amount(done), amount(total_));
  if (rate > 0) numbers += fmt::format("  {}/s", amount(rate));
  if (fraction > 0) numbers += fmt::format("  {} left", human_seconds(seconds / fraction - seconds));
  if (!terminal_.err_is_tty()) {
    terminal_.note("{} {}", label_, numbers);
    return;
  }
  int room = terminal_.err_columns() - static_cast<int>(width(label_) + width(numbers)) - 6;
  std::string bar;
  if (room >= 10) {
    int cells = std::min(room, 40);
    int filled = static_cast<int>(fraction * cells + 0.5);
    for (int i = 0; i < cells; ++i) bar += i < filled ? "━" : "─";
  }
  std::string line = fmt::format("\r\x1b[K{} {} {}", label_, terminal_.err_paint(Style::cyan, bar), numbers);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

std::string printable(std::string_view text, bool lines) {
  std::string out;
  while (!text.empty()) {
    size_t count = character_bytes(text);
    bool keep = count > 0 && (!is_control(text.substr(0, count)) || (lines && (text[0] == '\n' || text[0] == '\t')));
    count = std::max<size_t>(count, 1);
    for (char c : text.substr(0, count)) {
      out += keep ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(count);
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    size_t count = character_bytes(text);
    out += count > 0 ? text.substr(0, count) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(std::max<size_t>(count, 1));
  }
  return out;
}

size_t width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::print(const Terminal& terminal) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t most = width(columns_[i].title);
    for (const auto& cells : rows_) most = std::max(most, width(cells[i]));
    widths.push_back(most);
  }
  auto line = [&](auto&& cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) {
      std::string padding(widths[i] - width(cell(i)), ' ');
      if (i > 0) text += "  ";
      text += columns_[i].align == Align::right ? padding + cell(i) : cell(i) + padding;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  };
  terminal.print("{}\n", terminal.out_paint(Style::bold, line([&](size_t i) { return columns_[i].title; })));
  for (const auto& cells : rows_) terminal.print("{}\n", line([&](size_t i) { return cells[i]; }));
}

}  // namespace millrace::apps

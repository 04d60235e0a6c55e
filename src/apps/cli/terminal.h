// The terminal's manners in one place: data goes to stdout, everything else to stderr; colours and moving bars only
// where a person is watching. One Terminal is made in main and lives as long as the process; its methods may be called
// from any thread, a Progress from one thread.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/human.h"

namespace millrace::apps {

enum class Style : uint8_t { plain, bold, dim, red, green, yellow, cyan };

class Terminal {
 public:
  // `color` is auto, always or never. Auto: NO_COLOR, CLICOLOR_FORCE, FORCE_COLOR and TERM=dumb are heeded.
  Terminal(std::string_view color, bool quiet);

  // Data: stdout, exactly these bytes. A failed write is noticed at the end of main.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    write_out(fmt::format(format, std::forward<Args>(args)...));
  }
  void write_out(std::string_view text) const;

  // A remark, a line on stderr; silent under --quiet.
  template <class... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) const {
    if (!quiet_) write_line("", Style::plain, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    write_line("warning: ", Style::yellow, fmt::format(format, std::forward<Args>(args)...));
  }
  // What ends the program: "millrace: " and the message, as one line.
  void fail(std::string_view message) const;

  std::string out_paint(Style style, std::string_view text) const { return paint(color_out_, style, text); }
  std::string err_paint(Style style, std::string_view text) const { return paint(color_err_, style, text); }

  bool quiet() const { return quiet_; }
  bool err_is_tty() const { return err_is_tty_; }
  bool out_is_tty() const { return out_is_tty_; }
  int err_columns() const;  // 80 where unknown

 private:
  static std::string paint(bool on, Style style, std::string_view text);
  void write_line(std::string_view prefix, Style style, std::string_view text) const;

  bool quiet_ = false;
  bool out_is_tty_ = false, err_is_tty_ = false;
  bool color_out_ = false, color_err_ = false;
};

// "1.5 GiB", "318 B".
using millrace::human_bytes;
// "1.1 B", "14.2 M", "512": a count of parameters or tokens.
std::string human_count(uint64_t count);
std::string human_seconds(double seconds);

// How far a long job is, on stderr: a bar that moves on a terminal, a line every ten seconds elsewhere, nothing under
// --quiet or when the job takes less than half a second.
class Progress {
 public:
  enum class Unit : uint8_t { bytes, count };
  Progress(const Terminal& terminal, std::string label, uint64_t total, Unit unit);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(double seconds, uint64_t done);

  const Terminal& terminal_;
  std::string label_;
  uint64_t total_;
  Unit unit_;
  Clock::time_point start_, shown_;
  bool drawn_ = false;
};

// Columns aligned by their widest cell; numbers to the right. Widths count characters, not bytes.
class Table {
 public:
  enum class Align : uint8_t { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);
  void print(const Terminal& terminal) const;  // to stdout, title line bold

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Text from a file or a person as it may be shown: control characters and broken UTF-8 become \xNN, so that no file
// name and no model can move the cursor or change colours. With `lines`, line breaks and tabs stay.
std::string printable(std::string_view text, bool lines = false);

// The same bytes with broken UTF-8 replaced by U+FFFD, for JSON.
std::string valid_utf8(std::string_view text);

// Number of characters a terminal shows for UTF-8 text, taking every character as one column wide.
size_t width(std::string_view text);

}  // namespace millrace::apps

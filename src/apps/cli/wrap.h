// Words that flow into lines as they come, for a terminal: a word that does not fit goes to the next line whole. Words
// are held back until they end; long ones, and scripts without spaces, break where they must. Lines of code (fenced, or
// indented) stay as they are. One stream, one thread.
#pragma once

#include <string>
#include <string_view>

namespace millrace::apps {

class Wrap {
 public:
  // 0 columns: nothing is held back or changed.
  explicit Wrap(int columns) : columns_(columns) {}

  // What can be shown now. Whole characters go in.
  std::string push(std::string_view text);
  // What was held back: at the end, and before anything else is shown on the line.
  std::string flush();
  int column() const { return column_; }

 private:
  void take(std::string_view character, std::string& out);
  void end_line(std::string& out);
  void place_word(std::string& out);
  bool as_is() const {
    return fenced_ || line_.starts_with("    ") || line_.starts_with("\t") || line_.starts_with("|");
  }

  int columns_;
  int column_ = 0;    // where the next character goes
  std::string line_;  // the line of the text, as far as it came (its beginning)
  std::string word_;  // held back
  int word_width_ = 0;
  std::string spaces_;  // before it: dropped where the line breaks
  bool fenced_ = false;
};

// Columns a character takes: 0, 1 or 2.
int character_width(std::string_view character);

}  // namespace millrace::apps

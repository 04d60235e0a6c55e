// Page: a report as one HTML file that needs nothing else: style, text, tables and charts (report/chart.h) inside.
// Follows the reader's choice of light or dark, and prints in black on white. Text given to it is escaped; what comes
// from chart.h is markup already. Values; one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::report {

std::string escaped(std::string_view text);  // & < > " and what is no UTF-8 or no printable character

// A number with the letter for its thousands: 13.5 G, 420 k, 1310, 0.25.
std::string short_number(double value, int digits = 3);
std::string short_bytes(double bytes);      // 13.5 GB
std::string short_seconds(double seconds);  // 4.2 ms

struct Figure {
  std::string value, label, note;  // "284", "tokens a second", "H200, batch 1"
};

struct Column {
  std::string title;
  bool number = true;  // to the right, digits of one width
};

struct TableRow {
  std::vector<std::string> cells;
  bool strong = false;  // the row the reader asked about
};

class Page {
 public:
  Page(std::string title, std::string subtitle) : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

  void figures(const std::vector<Figure>& figures);  // large numbers, side by side
  void section(std::string_view title, std::string_view lead = "");
  void text(std::string_view paragraph);
  void note(std::string_view paragraph);                                              // smaller
  void chart(std::string_view markup, std::string_view caption);                      // from report/chart.h
  void charts(const std::vector<std::pair<std::string, std::string>>& side_by_side);  // markup and caption
  void table(const std::vector<Column>& columns, const std::vector<TableRow>& rows);
  std::string html(std::string_view made_by) const;

 private:
  std::string title_, subtitle_, body_;
};

}  // namespace millrace::report

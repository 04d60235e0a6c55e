// StopStrings: finds the strings that end an answer in text that arrives in pieces, and holds back what may turn out to
// be the beginning of one. What it says depends on the text only, never on how the text was cut: the first stop string
// to be complete ends the answer (of two complete at the same byte, the longer), and it is not part of what is let
// through. One per answer, one thread at a time.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

class StopStrings {
 public:
  static constexpr size_t kMost = 64;          // strings
  static constexpr size_t kLongest = 1 << 16;  // bytes of one

  StopStrings() = default;
  static Result<StopStrings> create(std::span<const std::string> stops);

  // Takes the next piece and appends to `out` all that can no longer belong to a stop string. True: one is complete,
  // and nothing after it will come.
  bool push(std::string_view piece, std::string& out);
  // The answer ended otherwise: appends what was held back.
  void finish(std::string& out);
  // The same in the middle of an answer: what comes next is another text.
  void flush(std::string& out);

  bool stopped() const { return found_ >= 0; }
  std::string_view found() const { return stopped() ? std::string_view(stops_[static_cast<size_t>(found_)].text) : ""; }
  size_t held_back() const { return held_.size(); }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // [i]: longest proper border of the first i + 1 bytes (Knuth, Morris and Pratt)
    uint32_t matched = 0;
  };
  void advance(Stop& stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  int found_ = -1;
};

}  // namespace millrace

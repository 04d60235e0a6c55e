#include "session/stop_strings.h"

#include <algorithm>

namespace millrace {

Result<StopStrings> StopStrings::create(std::span<const std::string> stops) {
  if (stops.size() > kMost)
    return error(Code::invalid, "{} stop strings, but at most {} are allowed", stops.size(), kMost);
  StopStrings result;
  for (const std::string& text : stops) {
    if (text.empty()) return error(Code::invalid, "a stop string is empty: it would end every answer at once");
    if (text.size() > kLongest) {
      return error(Code::invalid, "a stop string has {} bytes, but at most {} are allowed", text.size(), kLongest);
    }
    Stop stop{.text = text, .fallback = std::vector<uint32_t>(text.size(), 0)};
    for (size_t i = 1; i < text.size(); ++i) {
      uint32_t border = stop.fallback[i - 1];
      while (border > 0 && text[border] != text[i]) border = stop.fallback[border - 1];
      stop.fallback[i] = text[border] == text[i] ? border + 1 : 0;
    }
    result.stops_.push_back(std::move(stop));
  }
  return result;
}

void StopStrings::advance(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched - 1];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

bool StopStrings::push(std::string_view piece, std::string& out) {
  if (stopped()) return true;
  if (stops_.empty()) {
    out += piece;
    return false;
  }
  for (char byte : piece) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      advance(stops_[i], byte);
      bool complete = stops_[i].matched == stops_[i].text.size();
      if (complete && (found_ < 0 || stops_[i].text.size() > found().size())) found_ = static_cast<int>(i);
      longest = std::max<size_t>(longest, stops_[i].matched);
    }
    size_t keep = stopped() ? found().size() : longest;
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
    if (stopped()) {
      held_.clear();
      return true;
    }
  }
  return false;
}

void StopStrings::finish(std::string& out) {
  if (!stopped()) out += held_;
  held_.clear();
}

void StopStrings::flush(std::string& out) {
  finish(out);
  for (Stop& stop : stops_) stop.matched = 0;
}

}  // namespace millrace

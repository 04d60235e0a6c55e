#include "session/channel_reader.h"

#if MILLRACE_SESSION_TEXT
#include <algorithm>
#include <utility>

#include "session/parted_answer.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

constexpr size_t kLongestHead = 512;
constexpr size_t kControl = 5;  // bytes of control_bytes()

// Text without control tokens.
std::string plain(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\xFE') {
      at += kControl;
    } else {
      out += text[at++];
    }
  }
  return out;
}

// The nearest place where a mark stands, or may begin to: `whole` is its length there, 0 while it is not whole.
size_t nearest(std::string_view text, std::span<const std::string> marks, size_t& whole) {
  for (size_t at = 0; at < text.size(); ++at) {
    for (const std::string& mark : marks) {
      const std::string_view rest = text.substr(at, mark.size());
      if (mark.empty() || !std::string_view(mark).starts_with(rest)) continue;
      whole = rest.size() == mark.size() ? mark.size() : 0;
      return at;
    }
  }
  return text.size();
}

}  // namespace

ChannelReader::ChannelReader(const CallFormat& format, std::span<const Tool> tools, Inside inside)
    : format_(&format), tools_(tools), stops_(format.stops) {
  const size_t to = format.begin.find("to=");
  recipient_ = to == std::string::npos ? "" : format.begin.substr(to);
  // A new message ends one that nothing has ended.
  const size_t mark = format.start.starts_with('\xFE') ? kControl : format.start.find("|>") + 2;
  stops_.push_back(format.start.substr(0, mark));
  stops_.push_back(format.channel);
  in_text_ = inside != Inside::none;
  kind_ = inside == Inside::reasoning ? Kind::reasoning : Kind::content;
}

void ChannelReader::push(std::string_view bytes, Parts& out) {
  held_ += bytes;
  while (in_text_ ? read_text(out) : read_head(out)) {
  }
}

void ChannelReader::finish(Parts& out) {
  ended_ = true;
  while (in_text_ ? read_text(out) : read_head(out)) {
  }
}

std::string ChannelReader::words(std::string_view head) const {
  std::string text(head);
  for (const std::string& mark :
       {format_->start, format_->channel, std::string("<|constrain|>"), std::string("<|end|>")}) {
    for (size_t at = text.find(mark); !mark.empty() && at != std::string::npos; at = text.find(mark))
      text.replace(at, mark.size(), " ");
  }
  for (size_t at = text.find('\xFE'); at != std::string::npos; at = text.find('\xFE'))
    text.replace(at, std::min(kControl, text.size() - at), " ");
  return text;
}

const Tool* ChannelReader::tool_in(std::string_view words) const {
  const size_t at = recipient_.empty() ? std::string_view::npos : words.find(recipient_);
  if (at == std::string_view::npos) return nullptr;
  const std::string_view rest = words.substr(at + recipient_.size());
  const std::string_view name = rest.substr(0, rest.find_first_of(" \n\t"));
  for (const Tool& tool : tools_)
    if (tool.name == name) return &tool;
  return nullptr;
}

void ChannelReader::say(Parts& out, std::string_view text) {
  if (text.empty()) return;
  if (kind_ == Kind::arguments) return say_arguments(out, text);
  if (std::exchange(apart_, false)) append_part(out, {kind_, "\n\n"});
  append_part(out, {kind_, std::string(text)});
  if (kind_ == Kind::content) said_ = true;
  if (kind_ == Kind::reasoning) thought_ = true;
}

// They are whole where their object ends; what follows it is white space, or nothing anybody knows of.
void ChannelReader::say_arguments(Parts& out, std::string_view text) {
  size_t at = 0;
  for (; at < text.size() && !whole_; ++at) {
    const char c = text[at];
    if (quoted_) {
      quoted_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    quoted_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') whole_ = --depth_ <= 0;
  }
  append_part(out, {Kind::arguments, std::string(text.substr(0, at))});
  if (whole_ && at > 0) append_part(out, {Kind::ended, ""});
}

void ChannelReader::begin_text(Parts& out, std::string_view head) {
  const std::string spoken = words(head);
  in_text_ = true;
  if (const Tool* tool = tool_in(spoken)) {
    kind_ = Kind::arguments;
    depth_ = 0;
    quoted_ = escaped_ = whole_ = false;
    append_part(out, {Kind::call, tool->name});
    return;
  }
  const bool addressed = spoken.find("to=") != std::string::npos;
  const bool thinks = !addressed && (" " + spoken + " ").find(" " + format_->think_channel + " ") != std::string::npos;
  kind_ = thinks ? Kind::reasoning : Kind::content;
  apart_ = thinks ? thought_ : said_;
  if (!addressed) return;  // to nobody there is: content, whole
  const size_t from = spoken.find_first_not_of(' ');
  say(out, spoken.substr(std::min(from, spoken.size())) + " ");
}

bool ChannelReader::read_head(Parts& out) {
  const size_t mark = held_.find(format_->message);
  if (mark <= kLongestHead) {
    const std::string head = held_.substr(0, mark);
    held_.erase(0, mark + format_->message.size());
    begin_text(out, head);
    return true;
  }
  if (!ended_ && held_.size() < kLongestHead + format_->message.size()) return false;
  // No head of a message: content, but for what begins every message.
  if (held_.starts_with(format_->start)) held_.erase(0, format_->start.size());
  for (bool more = true; more;) {
    const auto stop = std::find_if(stops_.begin(), stops_.end(),
                                   [this](const std::string& one) { return !one.empty() && held_.starts_with(one); });
    more = stop != stops_.end();
    if (more) held_.erase(0, stop->size());
  }
  kind_ = Kind::content;
  apart_ = said_;
  in_text_ = !held_.empty();
  return in_text_;
}

bool ChannelReader::read_text(Parts& out) {
  size_t whole = 0;
  const size_t end = nearest(held_, stops_, whole);
  const bool cut = whole == 0 && ended_;
  const std::string text = plain(std::string_view(held_).substr(0, cut ? held_.size() : end));
  say(out, text);
  held_.erase(0, cut ? held_.size() : end);
  if (whole == 0) return false;
  // A mark that begins a head stays: it is part of it.
  const bool begins = held_.starts_with(stops_[stops_.size() - 2]) || held_.starts_with(format_->channel);
  if (!begins) held_.erase(0, whole);
  if (kind_ == Kind::arguments && !whole_) append_part(out, {Kind::ended, ""});
  in_text_ = false;
  return true;
}

}  // namespace millrace
#endif

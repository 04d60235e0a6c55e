#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
#include <algorithm>
#include <utility>

#include "session/parted_answer.h"
#include "session/python_literal.h"

namespace millrace {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kSpace = " \n\r\t";
constexpr size_t kControl = 5;      // bytes of control_bytes()
constexpr size_t kMostSpace = 64;   // bytes in one place of a mark
constexpr size_t kLongestId = 128;  // that a model gives a call
constexpr size_t kMostDigits = 9;

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
}

// Where JSON and tags may have white space.
bool may_follow(char c) { return std::string_view("{[:,}]>").find(c) != std::string_view::npos; }
bool may_precede(char c) { return std::string_view("{[\"}]<:,").find(c) != std::string_view::npos; }

// As the inside of a JSON string.
void append_escaped(std::string& out, std::string_view text) {
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

}  // namespace

CallReader::CallReader(const CallFormat& format, std::span<const Tool> tools, bool thinking, bool continues)
    : format_(&format), tools_(tools) {
  using Inside = ChannelReader::Inside;
  if (format.style == CallFormat::Style::channels)
    channels_.emplace(format, tools, thinking ? Inside::reasoning : continues ? Inside::content : Inside::none);
  const size_t mark = format.known() && !tools.empty() ? format.begin.find_first_not_of(kSpace) : std::string::npos;
  if (mark != std::string::npos) begin_ = format.begin.substr(mark);
  for (const Tool& tool : tools) longest_name_ = std::max(longest_name_, tool.name.size());
  if (thinking) state_ = State::thinking;
  if (!channels_ && !thinking && !continues) held_ = format.lead;
  led_ = !held_.empty();
  skip_space_ = thinking;
}

void CallReader::push(std::string_view bytes, Parts& out) {
  held_ += std::exchange(cut_, {});
  held_ += bytes;
  // A control token is whole, or waited for.
  const size_t tail = held_.size() - std::min(held_.size(), kControl - 1);
  if (const size_t control = held_.find('\xFE', tail); control != std::string::npos) {
    cut_ = held_.substr(control);
    held_.resize(control);
  }
  if (channels_) return channels_->push(std::exchange(held_, {}), out);
  while (advance(out)) {
  }
  if (from_ > 4096 && from_ * 2 > held_.size()) {
    held_.erase(0, from_);
    from_ = 0;
  }
}

void CallReader::finish(Parts& out) {
  cut_.clear();
  ended_ = true;
  if (channels_) return channels_->finish(out);
  while (advance(out)) {
  }
}

void CallReader::drop(size_t bytes) {
  from_ += bytes;
  seen_ = solid_ = 0;
}

void CallReader::pass(size_t place) {
  for (; seen_ < place; ++seen_)
    if (!is_space(at(seen_))) solid_ = seen_ + 1;
}

void CallReader::emit(Parts& out, Kind kind, std::string_view text, std::string_view id) const {
  append_part(out, {kind, std::string(text), std::string(id)});
}

// The first bytes of what is held, but for control tokens.
std::string CallReader::visible(size_t bytes) const {
  std::string text;
  for (size_t place = 0; place < bytes;) {
    if (at(place) == '\xFE') {
      place += kControl;
    } else {
      text += at(place++);
    }
  }
  return text;
}

void CallReader::emit_visible(Parts& out, Kind kind, size_t bytes) {
  std::string text = visible(bytes);
  drop(bytes);
  if (skip_space_) {
    text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
    skip_space_ = text.empty();
  }
  emit(out, kind, text);
}

bool CallReader::advance(Parts& out) {
  switch (state_) {
    case State::first:
      return read_first();
    case State::thinking:
      return read_thinking(out);
    case State::content:
      return read_content(out);
    case State::arguments:
      return read_arguments(out);
    case State::key:
      return read_key(out);
    case State::value:
      return read_value(out);
    case State::after:
      return read_after(out);
  }
  return false;
}

// Reasoning that the answer opens itself stands at its very beginning.
bool CallReader::read_first() {
  const std::string& mark = format_->think_begin;
  while (seen_ < size() && is_space(at(seen_))) ++seen_;
  const size_t space = seen_;
  size_t end = 0;
  const Match found = mark.empty() ? Match::no : match(mark, space, false, end);
  if (found == Match::more && !ended_) return false;
  seen_ = 0;
  state_ = State::content;
  if (found != Match::yes) return true;
  drop(end);
  led_ = false;
  skip_space_ = true;
  state_ = State::thinking;
  return true;
}

bool CallReader::read_thinking(Parts& out) {
  const std::string& mark = format_->think_end;
  for (size_t place = seen_; place < size(); ++place) {
    size_t end = 0;
    const Match found = mark.empty() || at(place) != mark[0] ? Match::no : match(mark, place, false, end);
    pass(place);
    if (found == Match::more && !ended_) break;
    if (found != Match::yes) {
      pass(place + 1);
      continue;
    }
    const size_t after = end - solid_;
    emit_visible(out, Kind::reasoning, solid_);
    drop(after);
    skip_space_ = true;
    state_ = State::content;
    return true;
  }
  const size_t whole = ended_ ? size() : solid_;
  if (whole > 0) emit_visible(out, Kind::reasoning, whole);
  return false;
}

bool CallReader::read_content(Parts& out) {
  for (size_t place = seen_; place < size(); ++place) {
    Head head;
    const Match found = begin_.empty() || at(place) != begin_[0] ? Match::no : match_head(begin_, place, head);
    bool thought = false;
    const Match message = found == Match::yes ? Match::no : match_message(place, head.end, thought);
    pass(place);
    if ((found == Match::more || message == Match::more) && !ended_) break;
    if (found != Match::yes && message != Match::yes) {
      if (std::exchange(led_, false)) {  // it begins like nothing that is known: what the prompt said is not part of it
        drop(format_->lead.size());
        return true;
      }
      pass(place + 1);
      continue;
    }
    led_ = false;
    const size_t after = head.end - solid_;
    if (solid_ > 0) emit_visible(out, Kind::content, solid_);
    drop(after);
    if (found == Match::yes) begin_call(out, head);
    skip_space_ = found != Match::yes && thought;
    if (thought) state_ = State::thinking;
    return true;
  }
  const size_t whole = ended_ ? size() : solid_;
  if (whole > 0) emit_visible(out, Kind::content, whole);
  return false;
}

// Of formats whose messages begin alike: what is said begins at a place, or reasoning.
CallReader::Match CallReader::match_message(size_t place, size_t& end, bool& thought) const {
  if (format_->lead.empty() || at(place) != format_->lead[0]) return Match::no;
  const Match said = match(format_->content_begin, place, false, end);
  if (said == Match::yes || format_->think_begin.empty()) return said;
  const Match thinks = match(format_->think_begin, place, false, end);
  thought = thinks == Match::yes;
  return std::max(said, thinks);
}

// White space, as much as there is: `more` if it may go on.
CallReader::Match CallReader::match_space(size_t& place) const {
  const size_t begin = place;
  while (place < size() && is_space(at(place))) ++place;
  if (place - begin > kMostSpace) return Match::no;
  return place == size() ? Match::more : Match::yes;
}

CallReader::Match CallReader::match(std::string_view text, size_t place, bool loose, size_t& end,
                                    std::string* id) const {
  char before = '\0';
  for (char c : text) {
    if (loose && is_space(c)) {
      before = c;
      continue;  // what follows takes it
    }
    if (place >= size()) return Match::more;
    if (loose && is_space(at(place)) && (is_space(before) || may_follow(before) || may_precede(c))) {
      if (const Match space = match_space(place); space != Match::yes) return space;
    }
    if (c == kCallId || c == kCallIndex || c == kCallCount) {
      const size_t begin = place, most = c == kCallId ? kLongestId : kMostDigits;
      while (place < size() && (is_digit(at(place)) || (c == kCallId && (is_word(at(place)) || at(place) == ':'))))
        ++place;
      if (place - begin > most) return Match::no;
      if (place == size()) return Match::more;
      if (place == begin) return Match::no;
      if (c == kCallId && id != nullptr) *id = held().substr(begin, place - begin);
    } else if (at(place++) != c) {
      return Match::no;
    }
    before = c;
  }
  end = place;
  return Match::yes;
}

// The longest name that is there; a longer one may be on its way.
CallReader::Match CallReader::match_name(size_t place, size_t& end, const Tool*& tool) const {
  const std::string_view rest = held().substr(place, longest_name_);
  tool = nullptr;
  for (const Tool& one : tools_) {
    if (rest.size() < one.name.size() && one.name.starts_with(rest) && !ended_) return Match::more;
    if (rest.starts_with(one.name) && (tool == nullptr || one.name.size() > tool->name.size())) tool = &one;
  }
  if (tool == nullptr) return Match::no;
  end = place + tool->name.size();
  return Match::yes;
}

// The name once more.
CallReader::Match CallReader::match_twice(size_t& after, const Head& head) const {
  size_t place = 0;
  const Match found = match(format_->twice, after, true, place);
  if (found != Match::yes) return found;
  const std::string_view name = head.tool->name, rest = held().substr(place, name.size());
  if (rest.size() < name.size() && name.starts_with(rest)) return Match::more;
  after = place + name.size();
  return rest == name ? Match::yes : Match::no;
}

// The beginning of a call, up to its arguments: only when all of it is there is it a call.
CallReader::Match CallReader::match_head(std::string_view prefix, size_t place, Head& head) const {
  size_t name = 0, after = 0;
  Match found = match(prefix, place, true, name, &head.id);
  if (found != Match::yes) return found;
  if (!prefix.empty() && is_space(prefix.back())) {
    found = match_space(name);
    if (found != Match::yes) return found;
  }
  found = match_name(name, after, head.tool);
  if (found == Match::yes && !format_->twice.empty()) found = match_twice(after, head);
  if (found != Match::yes) return found;
  if (format_->style == CallFormat::Style::json) {
    found = match(format_->middle, after, true, head.end, &head.id);
    if (found == Match::yes) found = match_space(head.end);
    if (found != Match::yes) return found;
    return at(head.end) == '{' ? Match::yes : Match::no;
  }
  size_t opened = 0;
  found = match(format_->open, after, true, opened, &head.id);
  if (!quotes() && (found == Match::yes || (found == Match::more && !ended_))) {
    head.end = opened;
    return found;
  }
  Match bare = match(format_->bare_end, after, true, head.end);
  if (bare != Match::yes && !format_->bare_between.empty())
    bare = std::max(bare, match(format_->bare_between, after, true, head.end));
  if (quotes() && bare != Match::yes && (bare == Match::no || ended_)) {  // "f(" may be the beginning of "f()]"
    head.end = opened;
    return found;
  }
  if (bare != Match::yes) return bare;
  head.bare = true;
  head.end = after;  // what follows is what follows any call
  return Match::yes;
}

void CallReader::begin_call(Parts& out, const Head& head) {
  const bool tags = format_->style == CallFormat::Style::tags;
  tool_ = head.tool;
  bare_ = head.bare;
  skip_space_ = in_text_ = escaped_ = keyed_ = false;
  depth_ = 0;
  emit(out, Kind::call, tool_->name, head.id);
  if (tags) emit(out, Kind::arguments, bare_ ? "{}" : "{");
  if (bare_) emit(out, Kind::ended, "");
  state_ = !tags ? State::arguments : bare_ ? State::after : State::key;
}

bool CallReader::read_arguments(Parts& out) {
  size_t place = 0;
  bool whole = false;
  for (; place < size() && !whole; ++place) {
    const char c = at(place);
    if (in_text_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_text_ = false;
      }
      continue;
    }
    if (c == '"') in_text_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') whole = --depth_ == 0;
  }
  emit(out, Kind::arguments, visible(place));
  drop(place);
  if (!whole) return false;
  emit(out, Kind::ended, "");
  state_ = State::after;
  return true;
}

// The key goes up to the nearest place where what stands between key and value does.
bool CallReader::read_key(Parts& out) {
  size_t end = 0;
  Match best = Match::no;
  for (; seen_ < size(); ++seen_) {
    // What begins a text in quotes is part of the value.
    const size_t first = quotes() ? size_t{CallFormat::kNumeric} : 0;
    for (size_t type = first; type < (quotes() ? first + 1 : size_t{CallFormat::kTypes}); ++type) {
      size_t here = 0;
      const Match found = match(format_->equals[type], seen_, false, here);
      if (found == Match::yes && (best != Match::yes || here > end)) {
        best = Match::yes;
        end = here;
        type_ = type;
      } else if (found == Match::more && best == Match::no && !ended_) {
        best = Match::more;
      }
    }
    if (best != Match::no) break;
  }
  if (best == Match::more || (best == Match::no && !ended_)) return false;
  std::string text = keyed_ ? ", \"" : "\"";
  key_ = visible(best == Match::yes ? seen_ : size());
  if (quotes()) key_.erase(0, std::min(key_.find_first_not_of(kSpace), key_.size()));
  append_escaped(text, key_);
  if (best == Match::no) {  // the answer was cut inside a key
    if (!key_.empty()) emit(out, Kind::arguments, text);
    drop(size());
    return false;
  }
  drop(end);
  emit(out, Kind::arguments, text + "\": ");
  typed_ = format_->equals[CallFormat::kNumeric] != format_->equals[CallFormat::kText];
  const Json* type = typed_ ? nullptr : type_of_value();
  certain_ = (typed_ ? type_ == CallFormat::kText : type != nullptr && *type == Json("string")) && !format_->cdata;
  json_ = typed_ ? type_ != CallFormat::kText : type != nullptr && type->is_string() && *type != Json("string");
  in_text_ = escaped_ = false;
  keyed_ = true;
  begun_ = looked_ = plain_ = false;
  opened_ = in_mark_ = false;
  nest_ = 0;
  nest_quote_ = '\0';
  close_.clear();
  next_ = format_->next, between_ = format_->between, last_ = format_->end;
  state_ = State::value;
  return true;
}

const Json* CallReader::type_of_value() const {
  const Json* properties = find(tool_->parameters, "properties");
  const Json* property = properties == nullptr ? nullptr : find(*properties, key_);
  return property == nullptr ? nullptr : find(*property, "type");
}

bool CallReader::is_text(std::string_view value) const {
  if (typed_) return type_ == CallFormat::kText;
  const Json* type = type_of_value();
  if (type != nullptr && type->is_string() && type->get_string() != "string") return false;
  if (type != nullptr && type->is_array()) {
    const auto& list = type->get_array();
    if (std::find(list.begin(), list.end(), Json("string")) == list.end()) return false;
    const bool null = value == "null" || value == "None";
    return !(null && std::find(list.begin(), list.end(), Json("null")) != list.end());
  }
  if (type != nullptr) return true;
  // Nothing is said of it: a text unless it is JSON of another kind, or a list or dictionary as Python has them.
  if (auto parsed = parse_json(value); parsed.ok()) return parsed->is_string();
  return !(value.starts_with('[') || value.starts_with('{')) || !json_of_python(value);
}

bool CallReader::inside_json(char c) {
  if (in_text_) {
    in_text_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
    return true;
  }
  in_text_ = c == '"';
  return in_text_;
}

// Of a value that has not ended: a text goes out as it comes, and when the answer is cut, what there is.
void CallReader::tell_unfinished(Parts& out) {
  const size_t bytes = ended_ ? size() : seen_;
  if (!ended_ && (!certain_ || bytes == 0)) return;
  std::string text = begun_ || !certain_ ? "" : "\"";
  if (certain_) {
    append_escaped(text, visible(bytes));
  } else {
    text += visible(bytes);
  }
  begun_ |= certain_;
  emit(out, Kind::arguments, text);
  drop(bytes);
}

// A value goes up to the nearest place where what ends a value stands whole: parts of it may be in the value, and all
// of it in a text inside JSON.
bool CallReader::read_value(Parts& out) {
  if (quotes() && !opened_ && open_quote() == Match::more) return false;
  size_t end = 0;
  Match next = Match::no, last = Match::no;
  for (; seen_ < size(); ++seen_) {
    const char c = at(seen_);
    if (quotes() && close_.empty() && !plain_) {
      size_t length = 1;
      const Match inside = inside_nested(length);
      if (inside == Match::more && !ended_) break;
      if (inside != Match::no) {
        seen_ += length - 1;
        continue;
      }
    }
    if (!looked_ && !is_space(c)) {  // its first letter tells, where nothing else does
      json_ |= !certain_ && !typed_ && (c == '{' || c == '[' || c == '"');
      looked_ = true;
    }
    if (!quotes() && json_ && inside_json(c)) continue;
    if (c != next_[0] && (between_.empty() || c != between_[0]) && (last_.empty() || c != last_[0]) &&
        !(quotes() && close_.empty() && is_space(c)))
      continue;
    size_t unused = 0;
    next = match_next(seen_, end);
    last = last_.empty() ? Match::no : match(last_, seen_, quotes() && close_.empty(), unused);
    if (last != Match::yes && !between_.empty()) last = std::max(last, match_between(seen_));
    if (ended_ && next == Match::more) next = Match::no;
    if (ended_ && last == Match::more) last = Match::no;
    if (next != Match::no || last != Match::no) break;
  }
  if (ended_ && seen_ == size() && last_.empty()) last = Match::yes;  // the end of the answer is what ends it
  const bool over = next == Match::yes || (next == Match::no && last == Match::yes);
  if (!over && ended_ && json_ && !plain_) {
    plain_ = true, json_ = false, seen_ = 0;  // JSON that has no end: a text, once more from its beginning
    return true;
  }
  if (!over) {
    tell_unfinished(out);
    return false;
  }
  end_value(out, quotes() && close_.empty() ? json_of(held().substr(0, seen_)) : visible(seen_));
  if (next == Match::yes) {
    drop(end);
    state_ = State::key;
    return true;
  }
  drop(seen_ + close_.size());
  emit(out, Kind::arguments, "}");
  emit(out, Kind::ended, "");
  state_ = State::after;
  return true;
}

void CallReader::end_value(Parts& out, std::string_view rest) {
  std::string text;
  constexpr std::string_view kCdata = "<![CDATA[", kCdataEnd = "]]>";
  if (format_->cdata && rest.starts_with(kCdata) && rest.ends_with(kCdataEnd)) {
    rest.remove_prefix(kCdata.size());
    rest.remove_suffix(kCdataEnd.size());
  }
  if (begun_ || certain_ || is_text(rest)) {
    text = begun_ ? "" : "\"";
    append_escaped(text, rest);
    text += '"';
  } else {
    std::string_view bare = rest.substr(std::min(rest.find_first_not_of(kSpace), rest.size()));
    while (!bare.empty() && is_space(bare.back())) bare.remove_suffix(1);
    if (parse_json(bare).ok()) {
      text = bare;
    } else if (auto python = json_of_python(bare)) {
      text = *python;
    } else {  // no JSON after all
      text = "\"";
      append_escaped(text, rest);
      text += '"';
    }
  }
  emit(out, Kind::arguments, text);
}

// After the arguments: a further call, or the end of all.
bool CallReader::read_after(Parts& out) {
  const std::string& between = bare_ ? format_->bare_between : format_->between;
  const std::string& last = bare_ ? format_->bare_end : format_->end;
  Head head;
  size_t end = 0;
  const Match further = between.empty() || format_->single ? Match::no : match_head(between, 0, head);
  if (further == Match::more && !ended_) return false;
  if (further == Match::yes) {
    drop(head.end);
    begin_call(out, head);
    return true;
  }
  const Match over = match(last, 0, true, end);
  if (over == Match::more && !ended_) return false;
  if (over == Match::yes) drop(end);
  if (over == Match::more) drop(size());  // cut inside the marks after a call that is whole
  skip_space_ = true;
  state_ = State::content;
  return size() > 0;
}

}  // namespace millrace
#endif

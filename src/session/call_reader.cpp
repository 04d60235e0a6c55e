#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
#include <algorithm>

namespace millrace {
namespace {

constexpr std::string_view kSpace = " \n\r\t";
constexpr size_t kControl = 5;  // bytes of control_bytes()

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
}

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

CallReader::CallReader(const CallFormat& format, std::span<const Tool> tools, bool thinking)
    : format_(format), tools_(tools) {
  const size_t mark = format.known() ? format.begin.find(format.trigger) : std::string::npos;
  if (mark != std::string::npos) begin_ = format.begin.substr(mark);
  if (thinking) state_ = State::thinking;
}

void CallReader::push(std::string_view bytes, Events& out) {
  held_ += bytes;
  while (advance(out)) {
  }
}

void CallReader::finish(Events& out) {
  ended_ = true;
  while (advance(out)) {
  }
}

void CallReader::emit(Events& out, CallEvent::Kind kind, std::string_view text, std::string_view id) {
  const bool whole = kind == CallEvent::Kind::call || kind == CallEvent::Kind::ended;
  if (text.empty() && !whole) return;
  if (!whole && !out.empty() && out.back().kind == kind) {
    out.back().text += text;
  } else {
    out.push_back({kind, std::string(text), std::string(id)});
  }
}

// The first bytes of what is held go out, but for control tokens.
void CallReader::emit_visible(Events& out, CallEvent::Kind kind, size_t bytes) {
  std::string text;
  for (size_t at = 0; at < bytes;) {
    if (held_[at] == '\xFE') {
      at += kControl;
      continue;
    }
    text += held_[at++];
  }
  held_.erase(0, std::min(bytes, held_.size()));
  if (skip_space_) {
    const size_t from = std::min(text.find_first_not_of(kSpace), text.size());
    text.erase(0, from);
    skip_space_ = text.empty();
  }
  emit(out, kind, text);
}

size_t CallReader::hold_from(std::string_view mark) const {
  size_t from = held_.size();
  for (size_t at = held_.size() - std::min(held_.size(), mark.size()); !mark.empty() && at < held_.size(); ++at) {
    if (mark.starts_with(std::string_view(held_).substr(at))) {
      from = at;
      break;
    }
  }
  // A control token that is not whole yet.
  const size_t control = held_.rfind('\xFE');
  if (control != std::string::npos && held_.size() - control < kControl) from = std::min(from, control);
  while (from > 0 && is_space(held_[from - 1])) --from;
  return from;
}

bool CallReader::advance(Events& out) {
  switch (state_) {
    case State::first:
      return read_first();
    case State::thinking:
      return read_thinking(out);
    case State::content:
      return read_content(out);
    case State::head:
      return read_head(out, "", 0);
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
  const size_t from = std::min(held_.find_first_not_of(kSpace), held_.size());
  const std::string_view rest = std::string_view(held_).substr(from);
  if (!format_.think_begin.empty() && rest.starts_with(format_.think_begin)) {
    held_.erase(0, from + format_.think_begin.size());
    skip_space_ = true;
    state_ = State::thinking;
    return true;
  }
  if (!ended_ && !format_.think_begin.empty() && format_.think_begin.starts_with(rest)) return false;
  state_ = State::content;
  return true;
}

bool CallReader::read_thinking(Events& out) {
  const std::string& mark = format_.think_end;
  const size_t at = mark.empty() ? std::string::npos : held_.find(mark);
  if (at == std::string::npos) {
    emit_visible(out, CallEvent::Kind::reasoning, ended_ ? held_.size() : hold_from(mark));
    return false;
  }
  size_t end = at;
  while (end > 0 && is_space(held_[end - 1])) --end;
  const size_t space = at - end;
  emit_visible(out, CallEvent::Kind::reasoning, end);
  held_.erase(0, space + mark.size());
  skip_space_ = true;
  state_ = State::content;
  return true;
}

bool CallReader::read_content(Events& out) {
  if (begin_.empty()) {  // no calls are known: all is content
    emit_visible(out, CallEvent::Kind::content, ended_ ? held_.size() : hold_from(""));
    return false;
  }
  const size_t at = held_.find(format_.trigger);
  if (at == std::string::npos) {
    emit_visible(out, CallEvent::Kind::content, ended_ ? held_.size() : hold_from(format_.trigger));
    return false;
  }
  size_t end = at;
  while (end > 0 && is_space(held_[end - 1])) --end;
  if (end > 0) {
    emit_visible(out, CallEvent::Kind::content, end);
    return true;
  }
  return read_head(out, begin_, at);
}

CallReader::Match CallReader::match(std::string_view text, size_t at, size_t& end) {
  for (char c : text) {
    if (at >= held_.size()) return Match::more;
    if (c == kCallId) {
      const size_t from = at;
      while (at < held_.size() && (is_word(held_[at]) || held_[at] == ':')) ++at;
      if (at == held_.size()) return Match::more;
      if (at == from) return Match::no;
      id_ = held_.substr(from, at - from);
    } else if (c == kCallIndex || c == kCallCount) {
      const size_t from = at;
      while (at < held_.size() && is_digit(held_[at])) ++at;
      if (at == held_.size()) return Match::more;
      if (at == from) return Match::no;
    } else if (held_[at++] != c) {
      return Match::no;
    }
  }
  end = at;
  return Match::yes;
}

CallReader::Match CallReader::match_name(size_t at, size_t& end) const {
  end = at;
  while (end < held_.size() && is_word(held_[end])) ++end;
  if (end == held_.size()) return Match::more;
  const std::string_view name = std::string_view(held_).substr(at, end - at);
  const bool known = std::any_of(tools_.begin(), tools_.end(), [&](const Tool& tool) { return tool.name == name; });
  return known ? Match::yes : Match::no;
}

// The beginning of a call, up to its arguments: only when all of it is there is it a call.
bool CallReader::read_head(Events& out, std::string_view prefix, size_t space) {
  const bool tags = format_.style == CallFormat::Style::tags;
  size_t name_at = 0, name_end = 0, end = 0;
  id_.clear();
  Match found = match(prefix, space, name_at);
  if (found == Match::yes) found = match_name(name_at, name_end);
  bool bare = false;
  if (found == Match::yes && !tags) {
    found = match(format_.middle, name_end, end);
    if (found == Match::yes && end >= held_.size()) found = Match::more;
    if (found == Match::yes && held_[end] != '{') found = Match::no;
  } else if (found == Match::yes) {
    found = match(format_.open, name_end, end);
    size_t other = 0;
    const Match empty = match(format_.bare_end, name_end, other);
    if (found != Match::yes && empty == Match::yes) {
      bare = true;
      found = Match::yes;
      // Of what follows the name, that is what follows the arguments: `after` reads the rest.
      end = name_end;
    } else if (found == Match::no && empty == Match::more) {
      found = Match::more;
    }
  }
  if (found == Match::more && !ended_) return false;
  if (found != Match::yes) {  // none after all
    state_ = State::content;
    if (held_.size() <= space) return false;
    const size_t step = space + (held_[space] == '\xFE' ? kControl : 1);
    const bool cut = ended_ && found == Match::more;
    emit_visible(out, CallEvent::Kind::content, cut ? held_.size() : std::min(step, held_.size()));
    return true;
  }
  name_ = held_.substr(name_at, name_end - name_at);
  skip_space_ = false;
  emit(out, CallEvent::Kind::call, name_, id_);
  held_.erase(0, end);
  depth_ = 0;
  in_text_ = escaped_ = keyed_ = false;
  state_ = !tags ? State::arguments : bare ? State::after : State::key;
  if (tags) emit(out, CallEvent::Kind::arguments, bare ? "{}" : "{");
  if (bare) emit(out, CallEvent::Kind::ended, "");
  again_ = bare;
  return true;
}

bool CallReader::read_arguments(Events& out) {
  size_t at = 0;
  bool whole = false;
  for (; at < held_.size() && !whole; ++at) {
    const char c = held_[at];
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
  emit(out, CallEvent::Kind::arguments, std::string_view(held_).substr(0, at));
  held_.erase(0, at);
  if (!whole) return false;
  emit(out, CallEvent::Kind::ended, "");
  again_ = false;
  state_ = State::after;
  return true;
}

bool CallReader::read_key(Events& out) {
  size_t key_end = 0;
  Match best = Match::no;
  size_t end = 0;
  // The key goes up to the nearest place where what stands between key and value does.
  for (; key_end <= held_.size() && best == Match::no; ++key_end) {
    for (size_t type = 0; type < CallFormat::kTypes; ++type) {
      size_t here = 0;
      const Match found = match(format_.equals[type], key_end, here);
      if (found == Match::yes && (best != Match::yes || here > end)) {
        best = Match::yes;
        end = here;
        type_ = type;
      } else if (found == Match::more && best == Match::no) {
        best = Match::more;
      }
    }
  }
  if (best != Match::yes) {
    if (!ended_) return false;
    held_.clear();  // the answer was cut inside a key
    return false;
  }
  --key_end;
  key_ = held_.substr(0, key_end);
  held_.erase(0, end);
  typed_ = format_.equals[CallFormat::kNumber] != format_.equals[CallFormat::kText];
  std::string text = keyed_ ? ", \"" : "\"";
  append_escaped(text, key_);
  emit(out, CallEvent::Kind::arguments, text + "\": ");
  keyed_ = true;
  begun_ = false;
  state_ = State::value;
  return true;
}

bool CallReader::is_text(std::string_view value) const {
  if (typed_) return type_ == CallFormat::kText;
  const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& one) { return one.name == name_; });
  const Json* properties = tool == tools_.end() ? nullptr : find(tool->parameters, "properties");
  const Json* property = properties == nullptr ? nullptr : find(*properties, key_);
  const Json* type = property == nullptr ? nullptr : find(*property, "type");
  if (type != nullptr && type->is_string() && type->get_string() != "string") return false;
  if (type != nullptr && type->is_array()) {
    const auto& list = type->get_array();
    if (std::find(list.begin(), list.end(), Json("string")) == list.end()) return false;
    return !(value == "null" && std::find(list.begin(), list.end(), Json("null")) != list.end());
  }
  if (type != nullptr) return true;
  // Nothing is said of it: a text unless it is JSON of another kind.
  auto parsed = parse_json(value);
  return !parsed.ok() || parsed->is_string();
}

bool CallReader::read_value(Events& out) {
  // The nearest place where something that ends a value stands, or may come to stand.
  size_t at = 0, end = 0;
  Match found = Match::no;
  enum { kNext, kBetween, kEnd } which = kEnd;
  for (; at < held_.size() && found == Match::no; ++at) {
    if (format_.next[0] != held_[at] && format_.between[0] != held_[at] && format_.end[0] != held_[at]) continue;
    size_t ends[3] = {};
    const Match matches[] = {match(format_.next, at, ends[0]),
                             format_.between.empty() ? Match::no : match(format_.between, at, ends[1]),
                             match(format_.end, at, ends[2])};
    for (size_t i : {kNext, kBetween, kEnd}) {
      // What is not there yet may still come, and is then what ends it, if it is longer than what is there.
      if (found == Match::yes || matches[i] == Match::no) continue;
      if (matches[i] == Match::more && ended_) continue;
      if (matches[i] == Match::more && found == Match::no) found = Match::more;
      if (matches[i] == Match::yes && found == Match::no) {
        found = Match::yes;
        end = ends[i];
        which = static_cast<decltype(which)>(i);
      }
    }
  }
  if (found != Match::no) --at;
  const bool certain = typed_ ? type_ == CallFormat::kText : false;
  if (found != Match::yes) {
    if (certain && (at > 0 || ended_)) {  // a text goes out as it comes
      std::string text = begun_ ? "" : "\"";
      append_escaped(text, std::string_view(held_).substr(0, at));
      begun_ = true;
      emit(out, CallEvent::Kind::arguments, text);
      held_.erase(0, at);
    } else if (ended_) {
      end_value(out, held_);
      held_.clear();
    }
    return false;
  }
  end_value(out, std::string_view(held_).substr(0, at));
  held_.erase(0, end);
  if (which == kNext) {
    state_ = State::key;
    return true;
  }
  emit(out, CallEvent::Kind::arguments, "}");
  emit(out, CallEvent::Kind::ended, "");
  state_ = which == kBetween ? State::head : State::content;
  skip_space_ = which == kEnd;
  return true;
}

void CallReader::end_value(Events& out, std::string_view rest) {
  std::string text;
  if (begun_ || is_text(rest)) {
    text = begun_ ? "" : "\"";
    append_escaped(text, rest);
    text += '"';
  } else {
    const size_t from = std::min(rest.find_first_not_of(kSpace), rest.size());
    std::string_view bare = rest.substr(from);
    while (!bare.empty() && is_space(bare.back())) bare.remove_suffix(1);
    if (bare == "True" || bare == "False") {
      text = bare == "True" ? "true" : "false";
    } else if (bare == "None") {
      text = "null";
    } else if (parse_json(bare).ok()) {
      text = bare;
    } else {  // no JSON after all
      text = "\"";
      append_escaped(text, rest);
      text += '"';
    }
  }
  emit(out, CallEvent::Kind::arguments, text);
}

// After the arguments: a further call, or the end of all.
bool CallReader::read_after(Events& out) {
  size_t next = 0, end = 0;
  const std::string& between = again_ ? format_.bare_between : format_.between;
  const Match further = between.empty() || format_.single ? Match::no : match(between, 0, next);
  const Match over = match(again_ ? format_.bare_end : format_.end, 0, end);
  if (further == Match::yes) {
    held_.erase(0, next);
    state_ = State::head;
    return true;
  }
  if (!ended_ && (further == Match::more || over == Match::more)) return false;
  if (over == Match::yes) {
    held_.erase(0, end);
  } else if (over == Match::more || further == Match::more) {
    held_.clear();  // the answer was cut inside the marks after a call that is whole
  }
  static_cast<void>(out);
  skip_space_ = true;
  state_ = State::content;
  return !held_.empty();
}

}  // namespace millrace
#endif

// Of CallReader: values in formats whose texts stand in quotes and other values do not, f(a='x', b=[1, 2]).
#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
#include "session/python_literal.h"

namespace millrace {
namespace {

constexpr size_t kMostSpace = 64, kLongestKey = 256;

bool is_space(char c) { return std::string_view(" \n\r\t").find(c) != std::string_view::npos; }

}  // namespace

// A text begins with its quote, or with the other of the two that Python has.
CallReader::Match CallReader::open_quote() {
  const std::string& open = format_->quote_open;
  size_t end = 0;
  Match found = match(open, 0, false, end);
  if (found == Match::more && !ended_) return found;
  opened_ = true;
  close_ = found == Match::yes ? format_->quote : "";
  if (found != Match::yes && (open == "'" || open == "\"") && size() > 0 && (at(0) == '\'' || at(0) == '"')) {
    close_ = std::string(1, at(0));
    end = 1;
  }
  if (close_.empty()) return Match::no;
  drop(end);
  type_ = CallFormat::kText;
  certain_ = true;
  json_ = false;
  next_ = close_ + format_->next, between_ = close_ + format_->between, last_ = close_ + format_->end;
  return Match::yes;
}

// Yes: what stands at the place, `length` bytes of it, ends no value.
CallReader::Match CallReader::inside_nested(size_t& length) {
  const char c = at(seen_);
  size_t end = 0;
  if (in_mark_) {
    const Match closing = match(format_->quote, seen_, false, end);
    if (closing != Match::yes) return closing == Match::more && !ended_ ? Match::more : Match::yes;
    in_mark_ = false;
    length = end - seen_;
    return Match::yes;
  }
  if (nest_quote_ != '\0') {
    if (!escaped_ && c == nest_quote_) nest_quote_ = '\0';
    escaped_ = !escaped_ && c == '\\';
    return Match::yes;
  }
  if (format_->quote_open.size() > 1) {
    const Match opening = match(format_->quote_open, seen_, false, end);
    if (opening == Match::more && !ended_) {
      // What ends a value may begin as the mark does.
      return nest_ > 0 || match(last_, seen_, false, end) == Match::no ? Match::more : Match::no;
    }
    if (opening == Match::yes) {
      in_mark_ = true;
      length = end - seen_;
      return Match::yes;
    }
  }
  if (c == '"' || c == '\'') {
    nest_quote_ = c;
    escaped_ = false;
    return Match::yes;
  }
  if (c == '[' || c == '{' || c == '(') {
    ++nest_;
    return Match::yes;
  }
  if (nest_ > 0 && (c == ']' || c == '}' || c == ')')) {
    --nest_;
    return Match::yes;
  }
  return nest_ > 0 ? Match::yes : Match::no;
}

// Where texts are in quotes, their closing quote and a comma may stand in a text: only a key after them tells.
CallReader::Match CallReader::match_next(size_t place, size_t& end) const {
  const Match found = match(next_, place, quotes(), end);
  if (found != Match::yes || !quotes()) return found;
  constexpr std::string_view kNoKey = "'\"=,:(){}[]<>\n\\";
  size_t key = end;
  while (key < size() && is_space(at(key)) && key - end < kMostSpace) ++key;
  const size_t begin = key;
  while (key < size() && at(key) != '\xFE' && kNoKey.find(at(key)) == std::string_view::npos &&
         key - begin < kLongestKey)
    ++key;
  if (key == size()) return Match::more;
  size_t unused = 0;
  return key == begin ? Match::no : match(format_->equals[CallFormat::kNumeric], key, false, unused);
}

CallReader::Match CallReader::match_between(size_t place) const {
  size_t unused = 0;
  if (!quotes()) return match(between_, place, false, unused);
  Head head;
  return match_head(between_, place, head);
}

// A value that is no text, as JSON where it is one.
std::string CallReader::json_of(std::string_view raw) const {
  while (!raw.empty() && is_space(raw.front())) raw.remove_prefix(1);
  while (!raw.empty() && is_space(raw.back())) raw.remove_suffix(1);
  if (parse_json(raw).ok()) return std::string(raw);
  if (auto json = json_of_python(raw, format_->quote_open, format_->quote)) return *json;
  return visible(raw.size());
}

}  // namespace millrace
#endif

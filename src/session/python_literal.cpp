#include "session/python_literal.h"

#include <array>

#include "base/json.h"

namespace millrace {
namespace {

class PythonReader {
 public:
  PythonReader(std::string_view text, std::string_view open, std::string_view close)
      : text_(text), open_(open), close_(close) {}

  std::optional<std::string> run() {
    if (!value(0)) return std::nullopt;
    skip();
    if (at_ != text_.size() || !parse_json(out_).ok()) return std::nullopt;
    return std::move(out_);
  }

 private:
  static constexpr int kMostDepth = 64;

  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool value(int depth) {
    skip();
    if (at_ >= text_.size() || depth > kMostDepth) return false;
    const char c = text_[at_];
    if (c == '[' || c == '(') return list(c == '[' ? ']' : ')', depth);
    if (c == '{') return dict(depth);
    if (marked_here()) return marked();
    if (c == '\'' || c == '"') return quoted(c);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords = {{{"True", "true"},
                                                                                      {"False", "false"},
                                                                                      {"None", "null"},
                                                                                      {"true", "true"},
                                                                                      {"false", "false"},
                                                                                      {"null", "null"}}};
    for (const auto& [word, json] : kWords) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      out_ += json;
      return true;
    }
    const size_t from = at_;
    while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos) ++at_;
    out_ += text_.substr(from, at_ - from);
    return at_ > from;
  }

  bool list(char close, int depth) {
    ++at_;
    out_ += '[';
    for (bool first = true;; first = false) {
      if (take(close)) break;
      if (!first && !take(',')) return false;
      if (!first) out_ += ", ";
      if (!value(depth + 1)) return false;
    }
    out_ += ']';
    return true;
  }

  bool dict(int depth) {
    ++at_;
    out_ += '{';
    for (bool first = true;; first = false) {
      if (take('}')) break;
      if (!first && !take(',')) return false;
      if (!first) out_ += ", ";
      skip();
      if (!key() || !take(':')) return false;
      out_ += ": ";
      if (!value(depth + 1)) return false;
    }
    out_ += '}';
    return true;
  }

  bool key() {
    if (at_ >= text_.size()) return false;
    if (marked_here()) return marked();
    if (text_[at_] == '\'' || text_[at_] == '"') return quoted(text_[at_]);
    const size_t end = open_.empty() ? std::string_view::npos : text_.find_first_of(":,{}[]\"'", at_);
    if (end == std::string_view::npos || end == at_ || text_[end] != ':') return false;
    out_ += to_text(Json(boost::json::string(text_.substr(at_, end - at_))));
    at_ = end;
    return true;
  }

  bool marked_here() const { return !open_.empty() && text_.substr(at_).starts_with(open_); }
  bool marked() {
    at_ += open_.size();
    const size_t end = text_.find(close_, at_);
    if (end == std::string_view::npos) return false;
    out_ += to_text(Json(boost::json::string(text_.substr(at_, end - at_))));
    at_ = end + close_.size();
    return true;
  }

  bool quoted(char quote) {
    ++at_;
    out_ += '"';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        out_ += '"';
        return true;
      }
      if (c == '\\' && at_ + 1 < text_.size()) {
        const char next = text_[++at_];
        if (next == '\'') {
          out_ += next;
        } else if (next == 'x') {
          out_ += "\\u00";
        } else {
          out_ += '\\';
          out_ += next;
        }
      } else if (c == '"') {
        out_ += "\\\"";
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out_ += c;
      }
    }
    return false;
  }

  std::string_view text_, open_, close_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::optional<std::string> json_of_python(std::string_view text, std::string_view open, std::string_view close) {
  const bool marks = open.size() > 1 && !close.empty();  // a quote that Python has too is read as Python does
  return PythonReader(text, marks ? open : std::string_view(), marks ? close : std::string_view()).run();
}

}  // namespace millrace

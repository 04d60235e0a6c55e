// RuleReader: what the readers of GBNF and Lark share: a place in a text, words, white space and comments, and an error
// that names the line. One thread.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::grammar {

class RuleReader {
 protected:
  // `comment` begins one that goes to the end of its line; `letters` may stand in words beside letters and digits.
  RuleReader(std::string_view text, std::string_view comment, std::string_view letters)
      : text_(text), comment_(comment), letters_(letters) {}

  Error wrong(std::string_view what) const {
    const size_t line =
        static_cast<size_t>(std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n')) + 1;
    return error(Code::invalid, "line {} of the grammar: {} is expected", line, what);
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool sees(std::string_view what) const { return at_ <= text_.size() && text_.substr(at_, what.size()) == what; }
  bool eat(std::string_view what) {
    if (!sees(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip(bool lines) {
    while (at_ < text_.size()) {
      if (sees(comment_)) {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\r' || (lines && peek() == '\n')) {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string word() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(peek())) || letters_.find(peek()) != std::string_view::npos))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  size_t at_ = 0;

 private:
  std::string_view comment_, letters_;
};

}  // namespace millrace::grammar

#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/pretty.h"

namespace millrace::jinja {
namespace {

bool is_wrap_space(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word(char32_t c) { return c == '_' || is_alnum(c); }
bool is_letter(char32_t c) { return c == '_' || (is_word(c) && !is_decimal(c)); }
bool is_word_or_punctuation(char32_t c) {
  return is_word(c) || (c < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(c)) != std::string_view::npos);
}

// A line cut into words and spaces the way textwrap cuts it; pieces are positions in code points.
class Splitter {
 public:
  Splitter(const std::u32string& text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  size_t piece_end(size_t start) const {
    size_t end = start;
    if (is_wrap_space(text_[start])) {
      while (end < text_.size() && is_wrap_space(text_[end])) ++end;
      return end;
    }
    if (!at_hyphens_) {
      while (end < text_.size() && !is_wrap_space(text_[end])) ++end;
      return end;
    }
    if (start > 0 && is_word_or_punctuation(text_[start - 1])) {
      if (size_t dash = long_dash_end(start); dash > 0) return dash;
    }
    for (end = start + 1;; ++end) {
      if (end >= text_.size() || is_wrap_space(text_[end])) return end;
      if (breaks_after_hyphen(end)) return end + 1;
      if (is_word_or_punctuation(text_[end - 1]) && long_dash_end(end) > 0) return end;
    }
  }

 private:
  // Where two or more hyphens that a word follows end; 0 if there are none here.
  size_t long_dash_end(size_t at) const {
    size_t end = at;
    while (end < text_.size() && text_[end] == '-') ++end;
    return end - at >= 2 && end < text_.size() && is_word(text_[end]) ? end : 0;
  }

  bool letter_at(size_t i) const { return i < text_.size() && is_letter(text_[i]); }

  // Whether the hyphen here joins two parts of a word.
  bool breaks_after_hyphen(size_t at) const {
    if (text_[at] != '-') return false;
    bool before = (at >= 2 && letter_at(at - 1) && letter_at(at - 2)) ||
                  (at >= 3 && letter_at(at - 3) && text_[at - 2] == '-' && is_word_or_punctuation(text_[at - 1]));
    if (!before || !letter_at(at + 1)) return false;
    return letter_at(at + 2) || (at + 2 < text_.size() && text_[at + 2] == '-' && letter_at(at + 3));
  }

  const std::u32string& text_;
  bool at_hyphens_;
};

struct Piece {
  size_t start, end;
  int64_t size() const { return static_cast<int64_t>(end - start); }
};

class Wrapper {
 public:
  Wrapper(const std::u32string& text, const WrapOptions& options) : text_(text), options_(options) {
    Splitter splitter(text, options.break_on_hyphens);
    for (size_t start = 0; start < text.size();) {
      size_t end = splitter.piece_end(start);
      pieces_.push_back({start, end});
      start = end;
    }
  }

  Result<std::vector<std::string>> wrap(Run& run) {
    std::vector<std::string> lines;
    while (next_ < pieces_.size()) {
      TRY_VOID(run.step());
      if (!lines.empty() && is_blank(pieces_[next_])) ++next_;
      std::vector<Piece> line;
      int64_t used = 0;
      for (; next_ < pieces_.size() && used + pieces_[next_].size() <= options_.width; ++next_) {
        used += pieces_[next_].size();
        line.push_back(pieces_[next_]);
      }
      if (next_ < pieces_.size() && pieces_[next_].size() > options_.width) break_long(line, used);
      if (!line.empty() && is_blank(line.back())) line.pop_back();
      if (line.empty()) continue;
      std::string out;
      for (const Piece& piece : line) {
        for (size_t i = piece.start; i < piece.end; ++i) append_code_point(out, text_[i]);
      }
      TRY_VOID(run.read_bytes(out.size()));
      lines.push_back(std::move(out));
    }
    return lines;
  }

 private:
  // textwrap asks str.strip(), which knows more spaces than it splits at.
  bool is_blank(const Piece& piece) const {
    for (size_t i = piece.start; i < piece.end; ++i) {
      if (!is_space(text_[i])) return false;
    }
    return true;
  }

  void break_long(std::vector<Piece>& line, int64_t used) {
    Piece& piece = pieces_[next_];
    if (!options_.break_long_words) {
      if (line.empty()) line.push_back(pieces_[next_++]);
      return;
    }
    auto room = static_cast<size_t>(options_.width - used);
    size_t end = piece.start + room;
    if (options_.break_on_hyphens) {
      for (size_t i = end; i-- > piece.start + 1;) {
        if (text_[i] != '-') continue;
        bool other = std::any_of(text_.begin() + static_cast<std::ptrdiff_t>(piece.start),
                                 text_.begin() + static_cast<std::ptrdiff_t>(i), [](char32_t c) { return c != '-'; });
        if (other) end = i + 1;
        break;
      }
    }
    line.push_back({piece.start, end});
    piece.start = end;
  }

  const std::u32string& text_;
  WrapOptions options_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;
};

}  // namespace

Result<std::vector<std::string>> wrap_text(Run& run, std::string_view text, const WrapOptions& options) {
  if (options.width <= 0) return fail("invalid width {} (must be > 0)", options.width);
  TRY_VOID(run.read_bytes(text.size() * 8));
  TRY_VOID(run.room_for(text.size() * 24));
  std::u32string code_points;
  for (size_t i = 0; i < text.size();) code_points += next_code_point(text, i);
  return Wrapper(code_points, options).wrap(run);
}

}  // namespace millrace::jinja

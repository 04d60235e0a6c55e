#include "text/template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/template/code_points.h"

namespace millrace::jinja {
namespace {

struct Operator {
  std::string_view text;
  Token token;
};

// Longer ones first, so that the first match is the right one.
constexpr Operator kOperators[] = {
    {"//", Token::floor_divide},
    {"**", Token::power},
    {"==", Token::equal},
    {"!=", Token::not_equal},
    {">=", Token::greater_equal},
    {"<=", Token::less_equal},
    {"+", Token::add},
    {"-", Token::subtract},
    {"/", Token::divide},
    {"*", Token::multiply},
    {"%", Token::modulo},
    {"~", Token::tilde},
    {"[", Token::left_bracket},
    {"]", Token::right_bracket},
    {"(", Token::left_parenthesis},
    {")", Token::right_parenthesis},
    {"{", Token::left_brace},
    {"}", Token::right_brace},
    {">", Token::greater},
    {"<", Token::less},
    {"=", Token::assign},
    {".", Token::dot},
    {":", Token::colon},
    {"|", Token::pipe},
    {",", Token::comma},
    {";", Token::semicolon},
};

// Line ends become \n, and one at the very end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Lexeme>> run() {
    while (position_ < source_.size()) TRY_VOID(lex_root());
    push(Token::end);
    return std::move(lexemes_);
  }

 private:
  enum class Opening { none, variable, tag, comment, raw };

  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }
  Error fail(std::string_view message) const { return error(Code::invalid, "line {}: {}", line_, message); }

  Lexeme& push(Token token, std::string text = {}) {
    Lexeme& lexeme = lexemes_.emplace_back();
    lexeme.token = token;
    lexeme.line = line_;
    lexeme.text = std::move(text);
    return lexeme;
  }

  // Moves on by so many bytes, counting lines.
  void advance(size_t bytes) {
    auto begin = source_.begin() + static_cast<std::ptrdiff_t>(position_);
    line_ += static_cast<uint32_t>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    position_ += bytes;
    if (bytes > 0) line_starting_ = source_[position_ - 1] == '\n';
  }

  size_t spaces_at(size_t offset) const {
    size_t end = offset;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_space(next_code_point(source_, next))) break;
      end = next;
    }
    return end - offset;
  }

  char byte_at(size_t offset) const { return offset < source_.size() ? source_[offset] : '\0'; }

  // If a {% raw %} tag starts at the offset, its length; 0 otherwise. `word` is raw or endraw.
  size_t raw_tag_length(size_t offset, std::string_view word) const {
    size_t i = offset + 2;
    if (byte_at(i) == '-' || byte_at(i) == '+') ++i;
    i += spaces_at(i);
    if (source_.compare(i, word.size(), word) != 0) return 0;
    i += word.size();
    i += spaces_at(i);
    const bool ends = word == "endraw";
    if (source_.compare(i, 3, "-%}") == 0) return i + 3 + spaces_at(i + 3) - offset;
    if (ends && source_.compare(i, 3, "+%}") == 0) return i + 3 - offset;
    if (source_.compare(i, 2, "%}") != 0) return 0;
    i += 2;
    if (ends && byte_at(i) == '\n') ++i;
    return i - offset;
  }

  // Adds the text up to a tag, cut as the tag's sign says.
  void push_data(std::string_view text, char sign, bool may_strip_line) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip_right(text);
    } else if (sign != '+' && may_strip_line) {
      size_t newline = text.rfind('\n');
      size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      bool starts_line = line_start > 0 || line_starting_;
      if (starts_line && line_start < text.size() && strip_left(text.substr(line_start)).empty()) {
        kept = text.substr(0, line_start);
      }
    }
    if (!kept.empty()) push(Token::data, std::string(kept));
  }

  Result<void> lex_root() {
    size_t found = position_;
    Opening opening = Opening::none;
    size_t raw_length = 0;
    for (; (found = source_.find('{', found)) != std::string::npos; ++found) {
      char next = byte_at(found + 1);
      if (next == '%') raw_length = raw_tag_length(found, "raw");
      opening = next == '{'   ? Opening::variable
                : next == '#' ? Opening::comment
                : next != '%' ? Opening::none
                              : (raw_length > 0 ? Opening::raw : Opening::tag);
      if (opening != Opening::none) break;
    }
    if (opening == Opening::none) {
      push(Token::data, std::string(rest()));
      advance(rest().size());
      return {};
    }
    char sign = byte_at(found + 2);
    if (sign != '-' && sign != '+') sign = '\0';
    push_data(rest().substr(0, found - position_), sign, opening != Opening::variable);
    advance(found - position_);
    if (opening == Opening::raw) return lex_raw(raw_length);
    if (opening == Opening::comment) return lex_comment();
    push(opening == Opening::variable ? Token::variable_begin : Token::tag_begin);
    advance(sign == '\0' ? 2 : 3);
    return lex_tag(opening == Opening::variable);
  }

  Result<void> lex_raw(size_t opening_length) {
    advance(opening_length);
    for (size_t found = position_; (found = source_.find("{%", found)) != std::string::npos; ++found) {
      size_t length = raw_tag_length(found, "endraw");
      if (length == 0) continue;
      push_data(rest().substr(0, found - position_), byte_at(found + 2), true);
      advance(found - position_ + length);
      return {};
    }
    return fail("Missing end of raw directive");
  }

  Result<void> lex_comment() {
    size_t begin = position_ + 2;
    if (byte_at(begin) == '-' || byte_at(begin) == '+') ++begin;
    size_t found = source_.find("#}", begin);
    if (found == std::string::npos) return fail("Missing end of comment tag");
    char sign = found > begin ? source_[found - 1] : '\0';
    size_t end = found + 2;
    if (sign == '-') {
      end += spaces_at(end);
    } else if (sign != '+' && byte_at(end) == '\n') {
      ++end;
    }
    advance(end - position_);
    return {};
  }

  // Whether the tag ends here, and if so with how many bytes.
  size_t tag_end_length(bool variable) const {
    std::string_view close = variable ? "}}" : "%}";
    if (at("-") && rest().substr(1).starts_with(close)) return 3 + spaces_at(position_ + 3);
    if (!variable && at("+%}")) return 3;
    if (!at(close)) return 0;
    return !variable && byte_at(position_ + 2) == '\n' ? 3 : 2;
  }

  Result<void> lex_tag(bool variable) {
    std::vector<char> open;
    while (position_ < source_.size()) {
      if (open.empty()) {
        if (size_t length = tag_end_length(variable); length > 0) {
          push(variable ? Token::variable_end : Token::tag_end);
          advance(length);
          return {};
        }
      }
      TRY_VOID(lex_inside(open));
    }
    return {};  // the parser says what is missing
  }

  Result<void> lex_inside(std::vector<char>& open) {
    if (size_t spaces = spaces_at(position_); spaces > 0) {
      advance(spaces);
      return {};
    }
    char c = source_[position_];
    if (c >= '0' && c <= '9') return lex_number();
    if (c == '"' || c == '\'') return lex_text(c);
    size_t next = position_;
    if (is_identifier_start(next_code_point(source_, next))) {
      while (next < source_.size()) {
        size_t after = next;
        if (!is_identifier_part(next_code_point(source_, after))) break;
        next = after;
      }
      constexpr size_t kMaxNameBytes = 4096;
      if (next - position_ > kMaxNameBytes) return fail(fmt::format("a name is longer than {} bytes", kMaxNameBytes));
      push(Token::name, source_.substr(position_, next - position_));
      advance(next - position_);
      return {};
    }
    for (const Operator& op : kOperators) {
      if (!at(op.text)) continue;
      TRY_VOID(balance(c, open));
      push(op.token);
      advance(op.text.size());
      return {};
    }
    return fail(fmt::format("unexpected character '{}'", source_.substr(position_, next - position_)));
  }

  Result<void> balance(char c, std::vector<char>& open) {
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c != ')' && c != ']' && c != '}') return {};
    if (open.empty()) return fail(fmt::format("unexpected '{}'", c));
    char expected = open.back();
    open.pop_back();
    if (expected != c) return fail(fmt::format("unexpected '{}', expected '{}'", c, expected));
    return {};
  }

  // Digits of a base, single underscores between them, from an offset on; returns where they end.
  size_t digits_end(size_t offset, int base) const {
    auto is_base_digit = [&](char c) {
      int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
      return value < base;
    };
    while (true) {
      size_t digit = offset + (byte_at(offset) == '_' ? 1 : 0);
      if (!is_base_digit(byte_at(digit))) return offset;
      offset = digit + 1;
    }
  }

  // Where a float that starts here ends; 0 if there is none.
  size_t real_end() const {
    if (position_ > 0 && source_[position_ - 1] == '.') return 0;
    size_t end = digits_end(position_, 10);
    bool is_real = false;
    auto is_digit_at = [&](size_t i) { return byte_at(i) >= '0' && byte_at(i) <= '9'; };
    if (byte_at(end) == '.' && is_digit_at(end + 1)) {
      end = digits_end(end + 1, 10);
      is_real = true;
    }
    if ((byte_at(end) | 32) == 'e') {
      size_t exponent = end + 1;
      if (byte_at(exponent) == '+' || byte_at(exponent) == '-') ++exponent;
      if (is_digit_at(exponent)) return digits_end(exponent, 10);
    }
    return is_real ? end : 0;
  }

  Result<void> lex_number() {
    if (size_t end = real_end(); end > 0) {
      std::string digits = source_.substr(position_, end - position_);
      std::erase(digits, '_');
      double value = 0;
      auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      const bool tiny = digits.find('-') != std::string::npos;  // too small a number is 0, too large a one an error
      if (parsed.ec != std::errc() && !tiny) return fail(fmt::format("the number {} is too large", digits));
      push(Token::real).real = value;
      advance(end - position_);
      return {};
    }
    int base = 10;
    size_t begin = position_;
    if (source_[position_] == '0') {
      char kind = static_cast<char>(byte_at(position_ + 1) | 32);
      int other = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
      if (other != 0 && digits_end(position_ + 2, other) > position_ + 2) {
        base = other;
        begin = position_ + 2;
      }
    }
    // A number that starts with 0 is 0: what follows is another token, and then an error of the parser.
    bool zeros = base == 10 && source_[position_] == '0';
    size_t end = digits_end(begin, zeros ? 1 : base);
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    int64_t value = 0;
    auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (parsed.ec != std::errc()) return fail(fmt::format("the number {} does not fit 64 bits", digits));
    push(Token::integer).integer = value;
    advance(end - position_);
    return {};
  }

  Result<void> lex_text(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail(fmt::format("the string that starts with {} does not end", quote));
    TRY(std::string text, unescape(std::string_view(source_).substr(position_ + 1, end - position_ - 1)));
    push(Token::text, std::move(text));
    advance(end + 1 - position_);
    return {};
  }

  Result<std::string> unescape(std::string_view raw) const {
    std::string out;
    out.reserve(raw.size());
    for (size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\') {
        out += raw[i++];
        continue;
      }
      ++i;
      TRY_VOID(unescape_one(raw, i, out));
    }
    return out;
  }

  // The escape whose backslash lies just before i, as Python's unicode_escape decodes it.
  Result<void> unescape_one(std::string_view raw, size_t& i, std::string& out) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    char c = raw[i];
    if (c == '\n') return ++i, Result<void>();
    if (size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
      return ++i, Result<void>();
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      for (int digits = 0; digits < 3 && i < raw.size() && raw[i] >= '0' && raw[i] <= '7'; ++digits, ++i) {
        value = value * 8 + static_cast<char32_t>(raw[i] - '0');
      }
      append_code_point(out, value);
      return {};
    }
    if (c == 'x' || c == 'u' || c == 'U') return unescape_hex(raw, i, out);
    if (c == 'N') return fail("\\N{...} escapes are not supported; write the character itself");
    out += '\\';
    if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
      return ++i, Result<void>();
    }
    // Python turns the character into an escape first, and the backslash before it then escapes that one's backslash.
    char32_t code_point = next_code_point(raw, i);
    out += code_point < 0x100     ? fmt::format("x{:02x}", static_cast<uint32_t>(code_point))
           : code_point < 0x10000 ? fmt::format("u{:04x}", static_cast<uint32_t>(code_point))
                                  : fmt::format("U{:08x}", static_cast<uint32_t>(code_point));
    return {};
  }

  Result<void> unescape_hex(std::string_view raw, size_t& i, std::string& out) const {
    size_t digits = raw[i] == 'x' ? 2 : raw[i] == 'u' ? 4 : 8;
    std::string_view hex = raw.substr(i + 1, digits);
    uint32_t value = 0;
    auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() < digits || parsed.ec != std::errc() || parsed.ptr != hex.data() + hex.size()) {
      return fail(fmt::format("truncated \\{} escape", raw[i]));
    }
    if (value > 0x10FFFF) return fail("illegal Unicode character in an escape");
    if (value >= 0xD800 && value < 0xE000) {
      return fail(fmt::format("the escape \\{}{} is half of a surrogate pair; write \\U and the whole code point",
                              raw[i], hex));
    }
    append_code_point(out, value);
    i += 1 + digits;
    return {};
  }

  std::string source_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Lexeme> lexemes_;
};

}  // namespace

Result<std::vector<Lexeme>> tokenize(std::string_view source) {
  if (!valid_utf8(source)) return error(Code::invalid, "the template is not valid UTF-8");
  return Lexer(normalize_newlines(source)).run();
}

std::string_view describe(Token token) {
  for (const Operator& op : kOperators) {
    if (op.token == token) return op.text;
  }
  switch (token) {
    case Token::data:
      return "template data / text";
    case Token::variable_begin:
      return "begin of print statement";
    case Token::variable_end:
      return "end of print statement";
    case Token::tag_begin:
      return "begin of statement tag";
    case Token::tag_end:
      return "end of statement tag";
    case Token::name:
      return "name";
    case Token::text:
      return "string";
    case Token::integer:
      return "integer";
    case Token::real:
      return "float";
    default:
      return "end of template";
  }
}

std::string describe(const Lexeme& lexeme) {
  return lexeme.token == Token::name ? lexeme.text : std::string(describe(lexeme.token));
}

}  // namespace millrace::jinja

#include "grammar/regex.h"

#include <algorithm>
#include <vector>

namespace millrace::grammar {

namespace {

constexpr size_t kMostBytes = 8192;
constexpr int kMostCount = 100'000;
constexpr int64_t kMostNested = 1'000'000;
constexpr int kMostDepth = 200;
constexpr uint8_t kTextBegin = 0xFE;

struct Tree {
  enum class Kind : uint8_t { set, cat, alt, repeat, begin, end, look, look_not };
  Kind kind = Kind::cat;
  CodePoints set;
  std::vector<Tree> parts;
  int least = 0, most = 0;
  bool looks = false;     // has looking ahead inside
  bool anchored = false;  // has ^ or $ inside
  int64_t nested = 1;     // product of counts
};

class Parser {
 public:
  Parser(std::string_view text, RegexFlags flags) : text_(text), flags_(flags) {}

  Result<Tree> parse() {
    if (text_.size() > kMostBytes) {
      return error(Code::invalid, "the regular expression has {} bytes, the limit is {}", text_.size(), kMostBytes);
    }
    TRY(Tree tree, alternatives(0));
    if (!at_end()) return error(Code::invalid, "unmatched ')' at byte {} of the regular expression", at_);
    return tree;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool eat(std::string_view what) {
    if (at_ > text_.size() || text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  Error refused(std::string_view what) const {
    return error(Code::unsupported, "{} at byte {} of the regular expression is not supported", what, at_);
  }

  Result<Tree> alternatives(int depth) {
    if (depth > kMostDepth) return error(Code::invalid, "the regular expression nests deeper than {}", kMostDepth);
    Tree alt;
    alt.kind = Tree::Kind::alt;
    do {
      TRY(Tree branch, sequence(depth));
      take_flags(alt, branch);
      alt.parts.push_back(std::move(branch));
    } while (eat("|"));
    if (alt.parts.size() == 1) return Result<Tree>(Tree(std::move(alt.parts[0])));
    return alt;
  }

  static void take_flags(Tree& to, const Tree& from) {
    to.looks |= from.looks;
    to.anchored |= from.anchored;
    to.nested = std::max(to.nested, from.nested);
  }

  Result<Tree> sequence(int depth) {
    Tree cat;
    while (!at_end() && peek() != '|' && peek() != ')') {
      TRY(Tree atom, quantified(depth));
      // Twice the same anchor is once.
      const bool anchor = atom.kind == Tree::Kind::begin || atom.kind == Tree::Kind::end;
      if (anchor && !cat.parts.empty() && cat.parts.back().kind == atom.kind) continue;
      take_flags(cat, atom);
      cat.parts.push_back(std::move(atom));
    }
    return cat;
  }

  Result<Tree> quantified(int depth) {
    TRY(Tree atom, this->atom(depth));
    for (;;) {
      int least = 0, most = 0;
      TRY(const bool counted, quantifier(least, most));
      if (!counted) return atom;
      eat("?");  // lazy: the same language
      if (peek() == '+') return refused("a possessive quantifier");
      if (atom.looks) return refused("looking ahead inside a repetition");
      Tree repeat;
      repeat.kind = Tree::Kind::repeat;
      repeat.least = least;
      repeat.most = most;
      take_flags(repeat, atom);
      repeat.nested = atom.nested * std::max(1, most == Exprs::kMany ? least : most);
      if (repeat.nested > kMostNested) {
        return error(Code::invalid, "nested counted repetition of {} is over the limit of {}", repeat.nested,
                     kMostNested);
      }
      repeat.parts.push_back(std::move(atom));
      atom = std::move(repeat);
    }
  }

  Result<bool> quantifier(int& least, int& most) {
    if (eat("*")) return least = 0, most = Exprs::kMany, true;
    if (eat("+")) return least = 1, most = Exprs::kMany, true;
    if (eat("?")) return least = 0, most = 1, true;
    const size_t start = at_;
    if (!eat("{")) return false;
    int64_t low = 0, high = -1;
    const bool has_low = number(low);
    bool comma = false;
    if (has_low) comma = eat(",");
    const bool has_high = comma && number(high);
    if (!has_high) high = -1;
    if (!has_low || !eat("}")) return at_ = start, false;  // a brace that is no quantifier is itself
    if (!comma) high = low;
    if (low > kMostCount || high > kMostCount) {
      return error(Code::invalid, "a counted repetition of {} is over the limit of {}", std::max(low, high),
                   kMostCount);
    }
    if (high >= 0 && high < low) return error(Code::invalid, "repetition {{{},{}}} is out of order", low, high);
    least = static_cast<int>(low);
    most = comma && !has_high ? Exprs::kMany : static_cast<int>(high);
    return true;
  }

  bool number(int64_t& out) {
    const size_t start = at_;
    out = 0;
    while (!at_end() && peek() >= '0' && peek() <= '9') {
      out = std::min<int64_t>(out * 10 + (peek() - '0'), 1'000'000'000);
      ++at_;
    }
    return at_ > start;
  }

  Result<Tree> group(int depth) {
    Tree::Kind kind = Tree::Kind::cat;
    if (eat("?")) {
      if (eat(":")) {
      } else if (eat("=")) {
        kind = Tree::Kind::look;
      } else if (eat("!")) {
        kind = Tree::Kind::look_not;
      } else if (text_.substr(at_, 2) == "<=" || text_.substr(at_, 2) == "<!") {
        return refused("looking behind");
      } else if (eat("P<") || eat("<")) {
        while (!at_end() && peek() != '>') ++at_;
        if (!eat(">")) return error(Code::invalid, "a group's name has no end in the regular expression");
      } else {
        return refused("this kind of group");
      }
    }
    TRY(Tree inner, alternatives(depth + 1));
    if (!eat(")")) return error(Code::invalid, "a group has no ')' in the regular expression");
    if (kind == Tree::Kind::cat) return inner;
    Tree look;
    look.kind = kind;
    take_flags(look, inner);
    look.looks = true;
    look.parts.push_back(std::move(inner));
    return look;
  }

  static Tree of_kind(Tree::Kind kind) {
    Tree tree;
    tree.kind = kind;
    tree.anchored = true;
    return tree;
  }

  Tree of_set(CodePoints set) const {
    if (flags_.ignore_case) fold(set);
    Tree tree;
    tree.kind = Tree::Kind::set;
    tree.set = std::move(set);
    return tree;
  }

  static void fold(CodePoints& set) {
    CodePoints more;
    for (auto [first, last] : set.ranges) {
      for (uint32_t c = 'a'; c <= 'z'; ++c) {
        if (first <= c && c <= last) more.add(c - 32, c - 32);
        if (first <= c - 32 && c - 32 <= last) more.add(c, c);
      }
    }
    set.add(more);
  }

  Result<Tree> atom(int depth) {
    const char c = peek();
    if (eat("(")) return group(depth);
    if (eat("^")) return of_kind(Tree::Kind::begin);
    if (eat("$")) return of_kind(Tree::Kind::end);
    if (eat("[")) return character_class();
    if (eat(".")) {
      CodePoints line_ends;
      if (!flags_.dot_all) {
        line_ends.add('\n', '\n');
        line_ends.add('\r', '\r');
        line_ends.add(0x2028, 0x2029);
      }
      return of_set(line_ends.others());
    }
    if (c == '*' || c == '+' || c == '?') {
      return error(Code::invalid, "nothing to repeat at byte {} of the regular expression", at_);
    }
    if (eat("\\")) {
      if (eat("A")) return of_kind(Tree::Kind::begin);
      if (eat("z") || eat("Z")) return of_kind(Tree::Kind::end);
      if (peek() == 'b' || peek() == 'B') return refused("a word boundary");
      if (peek() >= '1' && peek() <= '9') return refused("a reference back");
      if (peek() == 'k') return refused("a reference back");
      CodePoints set;
      TRY_VOID(escape(set));
      return of_set(std::move(set));
    }
    CodePoints set;
    TRY(const uint32_t code, character());
    set.add(code, code);
    return of_set(std::move(set));
  }

  Result<uint32_t> character() {
    const auto byte = [&](size_t i) { return at_ + i < text_.size() ? static_cast<uint8_t>(text_[at_ + i]) : 0u; };
    const uint32_t first = byte(0);
    if (first < 0x80) return ++at_, first;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
    uint32_t code = more == 3 ? first & 7 : more == 2 ? first & 15 : first & 31;
    for (int i = 1; i <= more; ++i) {
      if ((byte(static_cast<size_t>(i)) & 0xC0) != 0x80) return invalid_utf8();
      code = code << 6 | (byte(static_cast<size_t>(i)) & 63);
    }
    if (more == 0) return invalid_utf8();
    at_ += static_cast<size_t>(more) + 1;
    return code;
  }
  Error invalid_utf8() const { return error(Code::invalid, "the regular expression is not UTF-8 at byte {}", at_); }

  static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  bool hex(int digits, uint32_t& out) {
    out = 0;
    for (int i = 0; i < digits; ++i) {
      const size_t place = at_ + static_cast<size_t>(i);
      const int value = place < text_.size() ? hex_value(text_[place]) : -1;
      if (value < 0) return false;
      out = out << 4 | static_cast<uint32_t>(value);
    }
    at_ += static_cast<size_t>(digits);
    return true;
  }

  // After the backslash, outside and inside of classes.
  Result<void> escape(CodePoints& set) {
    if (at_end()) return error(Code::invalid, "the regular expression ends with a backslash");
    const char c = text_[at_++];
    CodePoints found;
    bool inverse = false;
    switch (c) {
      case 'd':
      case 'D':
        found.add('0', '9');
        inverse = c == 'D';
        break;
      case 'w':
      case 'W':
        found.add('0', '9'), found.add('A', 'Z'), found.add('_', '_'), found.add('a', 'z');
        inverse = c == 'W';
        break;
      case 's':
      case 'S':
        found.add(9, 13), found.add(32, 32), found.add(0xA0, 0xA0), found.add(0x1680, 0x1680);
        found.add(0x2000, 0x200A), found.add(0x2028, 0x2029), found.add(0x202F, 0x202F), found.add(0x205F, 0x205F);
        found.add(0x3000, 0x3000), found.add(0xFEFF, 0xFEFF);
        inverse = c == 'S';
        break;
      case 'p':
      case 'P':
        return refused("a Unicode property");
      default: {
        TRY(const uint32_t code, escaped_character(c));
        found.add(code, code);
      }
    }
    set.add(inverse ? found.others() : found);
    return {};
  }

  Result<uint32_t> escaped_character(char c) {
    switch (c) {
      case 't':
        return uint32_t{9};
      case 'n':
        return uint32_t{10};
      case 'v':
        return uint32_t{11};
      case 'f':
        return uint32_t{12};
      case 'r':
        return uint32_t{13};
      case 'e':
        return uint32_t{27};
      case 'a':
        return uint32_t{7};
      case '0':
        return uint32_t{0};
      default:
        break;
    }
    uint32_t code = 0;
    if (c == 'x') {
      if (!hex(2, code)) return error(Code::invalid, "\\x wants two hex digits in the regular expression");
      return code;
    }
    if (c == 'u' || c == 'U') return unicode_escape();
    if (c == 'c') {
      if (at_end()) return error(Code::invalid, "\\c wants a letter in the regular expression");
      return static_cast<uint32_t>(text_[at_++] & 31);
    }
    --at_;
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9');
    if (letter) return refused("this escape");
    return character();
  }

  Result<uint32_t> unicode_escape() {
    uint32_t code = 0;
    if (eat("{")) {
      while (!at_end() && hex_value(peek()) >= 0 && code <= 0x10FFFF) {
        code = code << 4 | static_cast<uint32_t>(hex_value(text_[at_++]));
      }
      if (!eat("}") || code > 0x10FFFF) return error(Code::invalid, "\\u{{...}} is no code point");
      return code;
    }
    if (!hex(4, code)) return error(Code::invalid, "\\u wants four hex digits in the regular expression");
    const size_t before = at_;
    uint32_t low = 0;
    if (code >= 0xD800 && code < 0xDC00 && eat("\\u") && hex(4, low) && low >= 0xDC00 && low < 0xE000) {
      return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    at_ = before;
    return code;
  }

  Result<Tree> character_class() {
    const bool inverse = eat("^");
    CodePoints set;
    while (!at_end() && peek() != ']') {
      CodePoints one;
      TRY_VOID(class_member(one));
      const bool single = one.ranges.size() == 1 && one.ranges[0].first == one.ranges[0].second;
      if (single && peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        const size_t dash = at_;
        ++at_;
        CodePoints last;
        TRY_VOID(class_member(last));
        if (last.ranges.size() == 1 && last.ranges[0].first == last.ranges[0].second) {
          if (last.ranges[0].first < one.ranges[0].first) {
            return error(Code::invalid, "a range at byte {} of the regular expression is out of order", dash);
          }
          one.ranges[0].second = last.ranges[0].first;
        } else {
          one.add('-', '-');
          one.add(last);
        }
      }
      set.add(one);
    }
    if (!eat("]")) return error(Code::invalid, "a character class has no ']' in the regular expression");
    if (flags_.ignore_case) fold(set);
    return of_set(inverse ? set.others() : set);
  }

  Result<void> class_member(CodePoints& out) {
    if (eat("\\")) {
      if (eat("b")) return out.add(8, 8), Result<void>();
      return escape(out);
    }
    TRY(const uint32_t code, character());
    out.add(code, code);
    return {};
  }

  std::string_view text_;
  RegexFlags flags_;
  size_t at_ = 0;
};

// Whether ^ stands only where the text may begin and $ only where it may end: then nothing but the end follows it.
bool anchors_outside(const Tree& tree, bool first, bool last) {
  switch (tree.kind) {
    case Tree::Kind::begin:
      return first;
    case Tree::Kind::end:
      return last;
    case Tree::Kind::set:
      return true;
    case Tree::Kind::alt:
      return std::all_of(tree.parts.begin(), tree.parts.end(),
                         [&](const Tree& part) { return anchors_outside(part, first, last); });
    case Tree::Kind::cat:
      for (size_t i = 0; i < tree.parts.size(); ++i) {
        if (!anchors_outside(tree.parts[i], first && i == 0, last && i + 1 == tree.parts.size())) return false;
      }
      return true;
    default:
      return !tree.anchored;
  }
}

bool has_end(const Tree& tree) {
  return tree.kind == Tree::Kind::end || std::any_of(tree.parts.begin(), tree.parts.end(), has_end);
}

class Builder {
 public:
  // `begin` stands for ^: the mark of the text's begin, or nothing where that was passed already.
  Builder(Exprs& exprs, ExprId begin) : exprs_(exprs), begin_(begin) {}

  // The tree and then `rest`; looking ahead sees all of `rest`.
  ExprId build(const Tree& tree, ExprId rest) {
    if (!tree.looks) return exprs_.cat(alone(tree), rest);
    switch (tree.kind) {
      case Tree::Kind::cat:
        for (size_t i = tree.parts.size(); i-- > 0;) rest = build(tree.parts[i], rest);
        return rest;
      case Tree::Kind::alt: {
        std::vector<ExprId> parts;
        for (const Tree& part : tree.parts) parts.push_back(build(part, rest));
        return exprs_.alt(std::move(parts));
      }
      case Tree::Kind::look:
      case Tree::Kind::look_not: {
        const ExprId ahead = build(tree.parts[0], anything());
        return exprs_.both({rest, tree.kind == Tree::Kind::look ? ahead : exprs_.negate(ahead)});
      }
      default:
        return Exprs::kNothing;  // a repetition with looking ahead was refused
    }
  }

  ExprId anything() { return exprs_.repeat(any_byte(), 0, Exprs::kMany); }

 private:
  ExprId any_byte() {
    ByteSet all;
    all.add(0, 0xFF);
    return exprs_.bytes(all);
  }

  ExprId alone(const Tree& tree) {
    switch (tree.kind) {
      case Tree::Kind::set:
        return utf8_expr(exprs_, tree.set);
      case Tree::Kind::begin:
        return begin_;
      case Tree::Kind::end:
        return one(kTextEnd);
      case Tree::Kind::repeat:
        return exprs_.repeat(alone(tree.parts[0]), tree.least, tree.most);
      case Tree::Kind::alt: {
        std::vector<ExprId> parts;
        for (const Tree& part : tree.parts) parts.push_back(alone(part));
        return exprs_.alt(std::move(parts));
      }
      default:
        break;
    }
    ExprId tail = Exprs::kEmpty;
    for (size_t i = tree.parts.size(); i-- > 0;) tail = exprs_.cat(alone(tree.parts[i]), tail);
    return tail;
  }

  ExprId one(uint8_t byte) {
    ByteSet set;
    set.add(byte);
    return exprs_.bytes(set);
  }

  Exprs& exprs_;
  ExprId begin_;
};

}  // namespace

ExprId any_character(Exprs& exprs) { return utf8_expr(exprs, all_code_points()); }

ExprId text_end(Exprs& exprs) {
  ByteSet set;
  set.add(kTextEnd);
  return exprs.bytes(set);
}

ExprId text_of_length(Exprs& exprs, int least, int most) {
  return exprs.cat(exprs.repeat(any_character(exprs), least, most), text_end(exprs));
}

ExprId any_text(Exprs& exprs) { return text_of_length(exprs, 0, Exprs::kMany); }

Result<ExprId> regex_expr(Exprs& exprs, std::string_view pattern, RegexUse use, RegexFlags flags) {
  TRY(const Tree tree, Parser(pattern, flags).parse());
  if (use == RegexUse::terminal) {
    if (tree.anchored || tree.looks) {
      return error(Code::unsupported, "anchors and looking ahead are not supported inside a terminal");
    }
    return Builder(exprs, Exprs::kNothing).build(tree, Exprs::kEmpty);
  }
  // The text is told as begin, characters, end. Either ^ takes the begin, at once, or it is passed and ^ never matches.
  ByteSet begin;
  begin.add(kTextBegin);
  exprs.know_all_texts(any_text(exprs));
  // Where no $ takes the end it comes last.
  const bool tidy = !tree.looks && anchors_outside(tree, true, true);
  const ExprId after = tidy && !has_end(tree) ? text_end(exprs) : exprs.maybe(text_end(exprs));
  const ExprId some = exprs.repeat(any_character(exprs), 0, Exprs::kMany);
  const bool search = use == RegexUse::search;
  const ExprId rest = search ? exprs.cat(some, after) : after;
  const ExprId anchored = exprs.derive(Builder(exprs, exprs.bytes(begin)).build(tree, rest), kTextBegin);
  const ExprId free = Builder(exprs, Exprs::kNothing).build(tree, rest);
  const ExprId content = exprs.alt({anchored, search ? exprs.cat(some, free) : free});
  if (exprs.over()) return error(Code::invalid, "the regular expression is too large to compile");
  // What looking ahead and the marks leave: exactly one end, at the end.
  return tidy ? content : exprs.both({content, any_text(exprs)});
}

}  // namespace millrace::grammar

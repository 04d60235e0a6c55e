// Oniguruma's syntax in PCRE2's words. Groups, quantifiers and literals pass through; what differs is written out: the
// character sets behind \s, \w, \d, \h and \p{...}, nested character classes and their intersections, \b, inline
// options, and a few quantifiers.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "text/regex.h"
#include "text/unicode.h"

namespace millrace {
namespace {

struct Range {
  uint32_t first, last;
};

// What was added after Unicode 14, whose tables Debian 12's PCRE2 has; each stretch is of one category in unicode.h's
// table.
constexpr Range kSinceUnicode14[] = {
#include "text/unicode_since_14.inc"
};

struct Named {
  std::string_view name;
  std::string_view set;  // in PCRE2's words, inside brackets
  CharClass chars;       // the categories it consists of, to add what PCRE2 does not know yet
};

constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWordSymbols =
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr CharClass kWordClass = kLetter | kMark | class_of(Category::Nd, Category::Nl, Category::Pc);

constexpr std::string_view kNewerHan = R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";

using enum Category;
constexpr Named kNamed[] = {
    {"l", R"(\p{L})", kLetter},
    {"letter", R"(\p{L})", kLetter},
    {"m", R"(\p{M})", kMark},
    {"mark", R"(\p{M})", kMark},
    {"n", R"(\p{N})", kNumber},
    {"number", R"(\p{N})", kNumber},
    {"p", R"(\p{P})", kPunctuation},
    {"punctuation", R"(\p{P})", kPunctuation},
    {"s", R"(\p{S})", kSymbol},
    {"symbol", R"(\p{S})", kSymbol},
    {"z", R"(\p{Z})", 0},
    {"separator", R"(\p{Z})", 0},
    {"lu", R"(\p{Lu})", class_of(Lu)},
    {"uppercaseletter", R"(\p{Lu})", class_of(Lu)},
    {"ll", R"(\p{Ll})", class_of(Ll)},
    {"lowercaseletter", R"(\p{Ll})", class_of(Ll)},
    {"lt", R"(\p{Lt})", class_of(Lt)},
    {"titlecaseletter", R"(\p{Lt})", class_of(Lt)},
    {"lm", R"(\p{Lm})", class_of(Lm)},
    {"modifierletter", R"(\p{Lm})", class_of(Lm)},
    {"lo", R"(\p{Lo})", class_of(Lo)},
    {"otherletter", R"(\p{Lo})", class_of(Lo)},
    {"mn", R"(\p{Mn})", class_of(Mn)},
    {"mc", R"(\p{Mc})", class_of(Mc)},
    {"me", R"(\p{Me})", class_of(Me)},
    {"nd", R"(\p{Nd})", class_of(Nd)},
    {"digit", R"(\p{Nd})", class_of(Nd)},
    {"nl", R"(\p{Nl})", class_of(Nl)},
    {"no", R"(\p{No})", class_of(No)},
    {"pc", R"(\p{Pc})", class_of(Pc)},
    {"pd", R"(\p{Pd})", class_of(Pd)},
    {"ps", R"(\p{Ps})", class_of(Ps)},
    {"pe", R"(\p{Pe})", class_of(Pe)},
    {"pi", R"(\p{Pi})", class_of(Pi)},
    {"pf", R"(\p{Pf})", class_of(Pf)},
    {"po", R"(\p{Po})", class_of(Po)},
    {"sm", R"(\p{Sm})", class_of(Sm)},
    {"sc", R"(\p{Sc})", class_of(Sc)},
    {"sk", R"(\p{Sk})", class_of(Sk)},
    {"so", R"(\p{So})", class_of(So)},
    {"zs", R"(\p{Zs})", 0},
    {"zl", R"(\p{Zl})", 0},
    {"zp", R"(\p{Zp})", 0},
    {"cc", R"(\p{Cc})", 0},
    {"cf", R"(\p{Cf})", class_of(Cf)},
    {"co", R"(\p{Co})", 0},
    {"space", kSpaces, 0},
    {"whitespace", kSpaces, 0},
    {"alpha", R"(\p{Alphabetic})", kLetter | class_of(Nl)},
    {"alphabetic", R"(\p{Alphabetic})", kLetter | class_of(Nl)},
    {"alnum", R"(\p{Alphabetic}\p{Nd})", kLetter | class_of(Nl, Nd)},
    {"upper", R"(\p{Uppercase})", class_of(Lu)},
    {"uppercase", R"(\p{Uppercase})", class_of(Lu)},
    {"lower", R"(\p{Lowercase})", class_of(Ll)},
    {"lowercase", R"(\p{Lowercase})", class_of(Ll)},
    {"punct", R"(\p{P})", kPunctuation},
    {"xdigit", "0-9A-Fa-f", 0},
    {"cntrl", R"(\p{Cc})", 0},
    {"word", R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})", kWordClass},
    {"ascii", R"(\x00-\x7F)", 0},
};

// Scripts by name. PCRE2 would take a bare name to mean script extensions.
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian", "Bengali",  "Bopomofo", "Cyrillic",  "Devanagari", "Ethiopic",  "Georgian",
    "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",    "Hebrew",     "Hiragana",  "Kannada",
    "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam", "Mongolian",  "Myanmar",   "Oriya",
    "Sinhala",  "Tamil",    "Telugu",   "Thai",     "Tibetan",   "Common",     "Inherited",
};

std::string code_text(uint32_t code) { return fmt::format("\\x{{{:X}}}", code); }

// The ranges of these categories that PCRE2 may not know.
std::string newer(CharClass chars) {
  std::string out;
  for (const Range& range : kSinceUnicode14) {
    if (!CategoryTable::get().in(range.first, chars)) continue;
    out += code_text(range.first);
    if (range.last != range.first) out += "-" + code_text(range.last);
  }
  return out;
}

// \w. Outside of brackets Oniguruma also counts the superscripts and fractions of Latin-1.
std::string word_set(bool in_brackets) {
  return fmt::format("\\p{{L}}\\p{{M}}\\p{{Nd}}\\p{{Nl}}\\p{{Pc}}{}{}{}", kWordSymbols, newer(kWordClass),
                     in_brackets ? "" : "\\xB2\\xB3\\xB9\\xBC-\\xBE");
}

// A set of characters: what stands inside brackets, plus whole expressions that match one character.
struct Set {
  std::string inside;
  std::vector<std::string> others;
  bool negated = false;

  std::string text() const {
    if (others.empty()) return fmt::format("[{}{}]", negated ? "^" : "", inside);
    std::string all = inside.empty() ? "" : "[" + inside + "]";
    for (const std::string& other : others) all += (all.empty() ? "" : "|") + other;
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) TRY_VOID(one());
    return std::move(out_);
  }

 private:
  static constexpr int kDepth = 16;

  Error wrong(std::string_view what) const {
    return error(Code::unsupported, "the regular expression '{}' has {} at byte {}, which is not supported", in_, what,
                 at_);
  }
  bool next_is(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  void atom(const std::string& text) {
    atom_ = out_.size();
    out_ += text;
  }

  Result<void> one() {
    switch (in_[at_]) {
      case '\\':
        return escape();
      case '[': {
        ++at_;
        TRY(std::string set, bracket(0));
        atom(set);
        return {};
      }
      case '(':
        return group();
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        out_ += in_[at_++];
        return {};
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
      case '|':
        out_ += in_[at_++];
        return {};
      default: {
        size_t bytes = std::min(char_bytes(in_[at_]), in_.size() - at_);
        atom(std::string(in_.substr(at_, bytes)));
        at_ += bytes;
        return {};
      }
    }
  }

  // "(?...": options are named differently, everything else is the same.
  Result<void> group() {
    size_t start = out_.size();
    if (!next_is("(?")) {
      ++at_;
      out_ += '(';
    } else {
      size_t end = at_ + 2;
      while (end < in_.size() && (in_[end] == '-' || (in_[end] >= 'a' && in_[end] <= 'z'))) ++end;
      const bool options = end < in_.size() && end > at_ + 2 && (in_[end] == ':' || in_[end] == ')');
      if (options) {
        out_ += "(?";
        for (size_t i = at_ + 2; i < end; ++i) {
          char option = in_[i];
          if (option != 'i' && option != 'm' && option != 'x' && option != '-') return wrong("an option");
          out_ += option == 'm' ? 's' : option;  // "m" lets a dot match newlines
        }
        out_ += in_[end];
        at_ = end + 1;
        if (in_[end] == ')') return {};
      } else {
        constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
        const auto* opening = std::find_if(std::begin(kOpenings), std::end(kOpenings),
                                           [this](std::string_view text) { return next_is(text); });
        if (opening == std::end(kOpenings)) return wrong("a kind of group");
        out_ += *opening;
        at_ += opening->size();
      }
    }
    groups_.push_back(start);
    return {};
  }

  // {n}, {n,}, {n,m}, {,m}; a brace that is none of these stands for itself.
  Result<void> interval() {
    size_t end = at_ + 1, digits = 0, commas = 0;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      if (in_[end] == ',') {
        ++commas;
      } else if (in_[end] >= '0' && in_[end] <= '9') {
        ++digits;
      } else {
        break;
      }
    }
    if (end >= in_.size() || in_[end] != '}' || digits == 0 || commas > 1) {
      atom("\\{");
      ++at_;
      return {};
    }
    std::string text(in_.substr(at_, end + 1 - at_));
    if (text[1] == ',') text.insert(1, "0");
    at_ = end + 1;
    out_ += text;
    const bool more = at_ < in_.size() && (in_[at_] == '+' || (in_[at_] == '?' && commas == 0));
    if (more) {
      // Here a following + or (after {n}) ? repeats the whole, it does not make it possessive or lazy.
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return {};
  }

  Result<void> escape() {
    if (at_ + 1 >= in_.size()) return wrong("a backslash at its end");
    const char name = in_[at_ + 1];
    TRY(std::optional<Set> set, named_set(false));
    if (set) {
      atom(set->text());
      return {};
    }
    TRY(std::optional<uint32_t> code, escaped_code());
    if (code) {
      atom(code_text(*code));
      return {};
    }
    at_ += 2;
    switch (name) {
      case 'b':
      case 'B': {
        const std::string word = "[" + word_set(false) + "]";
        atom(name == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
        return {};
      }
      case 'O':
        atom("(?s:.)");
        return {};
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'K':
      case 'R':
      case 'X':
      case 'N':
        atom(std::string{'\\', name});
        return {};
      default:
        if (name >= '1' && name <= '9') {
          atom(std::string{'\\', name});
          return {};
        }
        at_ -= 2;
        return wrong("an escape");
    }
  }

  // \n, \x41, \x{41}, \u0041 and escaped punctuation: a code point. Moves past it.
  Result<std::optional<uint32_t>> escaped_code() {
    const char name = in_[at_ + 1];
    constexpr std::string_view kNames = "tnrfvae";
    constexpr std::array<uint32_t, 7> kCodes = {9, 10, 13, 12, 11, 7, 27};
    if (size_t i = kNames.find(name); i != kNames.npos) {
      at_ += 2;
      return std::optional<uint32_t>(kCodes[i]);
    }
    if (name == 'x' || name == 'u') {
      size_t start = at_ + 2, most = name == 'u' ? 4 : 2;
      const bool braces = name == 'x' && start < in_.size() && in_[start] == '{';
      if (braces) ++start, most = 8;
      size_t end = start;
      uint32_t code = 0;
      while (end < in_.size() && end - start < most && std::isxdigit(static_cast<unsigned char>(in_[end]))) {
        code = code * 16 + static_cast<uint32_t>(in_[end] <= '9' ? in_[end] - '0' : (in_[end] | 32) - 'a' + 10);
        ++end;
      }
      const bool closed = !braces || (end < in_.size() && in_[end] == '}');
      if (end == start || !closed || code > 0x10FFFF || (name == 'u' && end - start != 4)) return wrong("an escape");
      at_ = end + (braces ? 1 : 0);
      return std::optional<uint32_t>(code);
    }
    if (std::isalnum(static_cast<unsigned char>(name))) return std::optional<uint32_t>();
    ++at_;
    return std::optional<uint32_t>(literal());
  }

  uint32_t literal() {
    size_t bytes = 0;
    if (at_ + char_bytes(in_[at_]) > in_.size()) return static_cast<unsigned char>(in_[at_++]);
    uint32_t code = code_at(in_.data() + at_, &bytes);
    at_ += bytes;
    return code;
  }

  // \s \d \w \h, their opposites, and \p{...}. Moves past them.
  Result<std::optional<Set>> named_set(bool in_brackets) {
    const char name = in_[at_ + 1];
    const char kind = static_cast<char>(name | 32);
    Set set;
    set.negated = name != kind;
    switch (kind) {
      case 's':
        set.inside = kSpaces;
        break;
      case 'd':
        set.inside = "\\p{Nd}" + newer(class_of(Nd));
        break;
      case 'w':
        set.inside = word_set(in_brackets);
        break;
      case 'h':
        set.inside = "0-9A-Fa-f";
        break;
      case 'p':
        return property(set.negated);
      default:
        return std::optional<Set>();
    }
    at_ += 2;
    return std::optional<Set>(set);
  }

  Result<std::optional<Set>> property(bool negated) {
    size_t open = at_ + 2, close = in_.find('}', open);
    std::string_view name;
    if (open < in_.size() && in_[open] == '{' && close != in_.npos) {
      name = in_.substr(open + 1, close - open - 1);
    } else if (open < in_.size()) {
      name = in_.substr(open, 1);  // \pL
      close = open;
    }
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    TRY(Set set, property_set(name));
    set.negated = negated;
    at_ = close + 1;
    return std::optional<Set>(set);
  }

  Result<Set> property_set(std::string_view name) const {
    std::string plain;
    for (char c : name) {
      if (c != ' ' && c != '_' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    for (const Named& named : kNamed) {
      if (named.name != plain) continue;
      Set set;
      set.inside = std::string(named.set) + newer(named.chars);
      if (plain == "word") set.inside += kWordSymbols;
      return set;
    }
    for (std::string_view script : kScripts) {
      if (!std::equal(plain.begin(), plain.end(), script.begin(), script.end(),
                      [](char a, char b) { return a == static_cast<char>(b | 32); })) {
        continue;
      }
      Set set;
      set.inside = fmt::format("\\p{{sc:{}}}", script);
      if (script == "Han") set.inside += kNewerHan;
      return set;
    }
    return wrong(fmt::format("the property '{}'", name));
  }

  // What stands after '[' up to its ']'. Gives an expression for one character.
  Result<std::string> bracket(int depth) {
    if (depth > kDepth) return wrong("too many nested brackets");
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    if (negated) ++at_;
    std::vector<Set> operands(1);  // of &&
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) return wrong("an open bracket");
      if (in_[at_] == ']' && !first) break;
      if (next_is("&&")) {
        at_ += 2;
        operands.emplace_back();
        continue;
      }
      TRY_VOID(bracket_item(operands.back(), depth));
    }
    ++at_;
    for (const Set& operand : operands) {
      if (operand.inside.empty() && operand.others.empty()) return wrong("an empty bracket");
    }
    if (operands.size() == 1) {
      operands[0].negated = negated;
      return operands[0].text();
    }
    std::string all;
    for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + operands[i].text() + ")";
    all += operands.back().text();
    return negated ? fmt::format("(?:(?!{})(?s:.))", all) : fmt::format("(?:{})", all);
  }

  Result<void> bracket_item(Set& set, int depth) {
    if (next_is("[:")) {
      if (size_t end = in_.find(":]", at_ + 2); end != in_.npos && end - at_ < 24) {
        std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
        const bool negated = !name.empty() && name[0] == '^';
        TRY(Set posix, property_set(negated ? name.substr(1) : name));
        if (name.ends_with("punct")) posix.inside += "\\p{S}" + newer(kSymbol);  // in brackets symbols count too
        posix.negated = negated;
        add(set, posix);
        at_ = end + 2;
        return {};
      }
    }
    if (in_[at_] == '[') {
      ++at_;
      TRY(std::string inner, bracket(depth + 1));
      set.others.push_back(inner);
      return {};
    }
    if (in_[at_] == '\\' && at_ + 1 < in_.size()) {
      TRY(std::optional<Set> named, named_set(true));
      if (named) {
        add(set, *named);
        return {};
      }
    }
    TRY(uint32_t first, bracket_char());
    set.inside += code_text(first);
    // "a-z" is a range, "a-]" and "a-[" are not, and "a-\s" is not either.
    if (at_ + 1 >= in_.size() || in_[at_] != '-' || in_[at_ + 1] == ']' || in_[at_ + 1] == '[') return {};
    const size_t dash = at_++;
    if (in_[at_] == '\\' && at_ + 1 < in_.size() && std::string_view("sSdDwWhHpP").find(in_[at_ + 1]) != in_.npos) {
      at_ = dash;
      return {};
    }
    TRY(uint32_t last, bracket_char());
    if (last < first) return wrong("a range that runs backwards");
    set.inside += "-" + code_text(last);
    return {};
  }

  Result<uint32_t> bracket_char() {
    if (in_[at_] != '\\' || at_ + 1 >= in_.size()) return literal();
    if (in_[at_ + 1] == 'b') {
      at_ += 2;
      return uint32_t{8};
    }
    TRY(std::optional<uint32_t> code, escaped_code());
    if (!code) return wrong("an escape in brackets");
    return *code;
  }

  static void add(Set& set, const Set& more) {
    if (more.negated) {
      set.others.push_back(more.text());
    } else {
      set.inside += more.inside;
    }
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last thing a quantifier applies to begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return error(Code::invalid, "a regular expression is not valid UTF-8");
  return Translator(pattern).run();
}

}  // namespace millrace

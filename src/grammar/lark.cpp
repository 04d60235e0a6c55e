// Lark's rules: name: alternatives of "text", /regex/, "a".."z", NAMES, names, (groups), [optional], with ? * + ~n
// ~n..m; %import common.X and %ignore X. Text is read without a lexer of its own: any way of cutting it that fits the
// rules is valid. Templates, priorities between readings and other directives change what a reading means: refused by
// name.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/rule_reader.h"
#include "grammar/rules.h"

namespace millrace::grammar {

namespace {

// What `%import common` offers, as regular expressions.
std::string_view common_terminal(std::string_view name) {
  static const std::map<std::string_view, std::string_view> kCommon = {
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9A-Fa-f]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
      {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"NUMBER", "[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
      {"WS_INLINE", "[ \\t]+"},
      {"WS", "[ \\t\\f\\r\\n]+"},
      {"CR", "\\r"},
      {"LF", "\\n"},
      {"NEWLINE", "(?:\\r?\\n)+"},
      {"SH_COMMENT", "#[^\\n]*"},
      {"CPP_COMMENT", "//[^\\n]*"},
      {"SQL_COMMENT", "--[^\\n]*"},
  };
  const auto found = kCommon.find(name);
  return found == kCommon.end() ? std::string_view() : found->second;
}

bool is_terminal(std::string_view name) {
  for (char c : name) {
    if (c >= 'a' && c <= 'z') return false;
  }
  return true;
}

class Lark : private RuleReader {
 public:
  Lark(std::string_view text, Exprs& exprs) : RuleReader(text, "//", "_"), exprs_(exprs) {}

  Result<RuleText> read() {
    out_.start = "start";
    skip(true);
    while (at_ < text_.size()) {
      if (peek() == '%') {
        TRY_VOID(directive());
      } else {
        TRY_VOID(rule());
      }
      skip(true);
      if (out_.rules.size() > kMostRules) return error(Code::invalid, "the grammar has over {} rules", kMostRules);
    }
    if (!ignored_.empty()) add_ignored();
    return std::move(out_);
  }

 private:
  static constexpr const char* kIgnored = " ignored";  // no name of the text has a space

  Result<void> directive() {
    ++at_;
    const std::string name = word();
    skip(false);
    if (name == "ignore") {
      TRY(RuleTree tree, alternatives(0));
      ignored_.push_back(std::move(tree));
      return {};
    }
    if (name != "import") return error(Code::unsupported, "%{} is not supported in a Lark grammar", name);
    if (!eat("common.")) return error(Code::unsupported, "only %import common.NAME is supported in a Lark grammar");
    const std::string terminal = word();
    const std::string_view pattern = common_terminal(terminal);
    if (pattern.empty()) return error(Code::unsupported, "common.{} is not known", terminal);
    skip(false);
    std::string as = terminal;
    if (eat("->")) {
      skip(false);
      as = word();
    }
    TRY(const ExprId expr, regex_expr(exprs_, pattern, RegexUse::terminal));
    out_.rules[as] = RuleTree::of(expr);
    return {};
  }

  Result<void> rule() {
    if (peek() == '?' || peek() == '!') ++at_;
    const std::string name = word();
    if (name.empty()) return wrong("a rule's name");
    if (peek() == '{') return error(Code::unsupported, "rule '{}' is a template, which is not supported", name);
    if (eat(".")) word();  // a priority between readings; the texts are the same
    skip(false);
    if (!eat(":")) return wrong("':'");
    in_terminal_ = is_terminal(name);
    TRY(RuleTree tree, alternatives(0));
    in_terminal_ = false;
    if (!out_.rules.emplace(name, std::move(tree)).second) {
      return error(Code::invalid, "rule '{}' is defined twice", name);
    }
    return {};
  }

  Result<RuleTree> alternatives(int depth) {
    if (depth > kMostRuleDepth) return error(Code::invalid, "the grammar nests deeper than {}", kMostRuleDepth);
    RuleTree alt;
    alt.kind = RuleTree::Kind::alt;
    for (;;) {
      TRY(RuleTree branch, sequence(depth));
      alt.parts.push_back(std::move(branch));
      const size_t before = at_;
      skip(true);
      if (eat("|")) continue;
      if (depth == 0) at_ = before;
      return alt;
    }
  }

  Result<RuleTree> sequence(int depth) {
    RuleTree cat;
    for (;;) {
      skip(depth > 0);
      if (eat("->")) {
        skip(false);
        word();
        continue;
      }
      const char c = peek();
      if (at_ >= text_.size() || c == '\n' || c == '|' || c == ')' || c == ']') return cat;
      TRY(RuleTree atom, this->atom(depth));
      TRY_VOID(quantify(atom));
      cat.parts.push_back(std::move(atom));
    }
  }

  Result<void> quantify(RuleTree& atom) {
    skip(false);
    int least = 0, most = Exprs::kMany;
    if (eat("*")) {
    } else if (eat("+")) {
      least = 1;
    } else if (eat("?")) {
      most = 1;
    } else if (eat("~")) {
      skip(false);
      if (!number(least)) return wrong("a count");
      most = least;
      skip(false);
      if (eat("..") && !number(most)) return wrong("a count");
      if (most > kMostRuleCount) {
        return error(Code::invalid, "a count of {} is over the limit of {}", most, kMostRuleCount);
      }
      if (most < least) return wrong("a range in order");
    } else {
      return {};
    }
    atom = RuleTree::repeated(std::move(atom), least, most);
    return {};
  }

  bool number(int& out) {
    const size_t begin = at_;
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min<int64_t>(value * 10 + (text_[at_++] - '0'), 1 << 30);
    out = static_cast<int>(value);
    return at_ > begin;
  }

  Result<RuleTree> atom(int depth) {
    if (eat("(")) {
      TRY(RuleTree inner, alternatives(depth + 1));
      if (!eat(")")) return wrong("')'");
      return inner;
    }
    if (eat("[")) {
      TRY(RuleTree inner, alternatives(depth + 1));
      if (!eat("]")) return wrong("']'");
      return RuleTree::repeated(std::move(inner), 0, 1);
    }
    if (peek() == '"') return text();
    if (peek() == '/') return pattern();
    std::string name = word();
    if (name.empty()) return wrong("a text, a regular expression, a group or a name");
    if (peek() == '{') return error(Code::unsupported, "templates are not supported in a Lark grammar");
    const bool ends = is_terminal(name);
    RuleTree ref = RuleTree::to(std::move(name));
    return ends && !in_terminal_ ? spaced(std::move(ref)) : ref;
  }

  // What is ignored may follow every terminal that a rule names.
  RuleTree spaced(RuleTree terminal) {
    RuleTree cat;
    cat.parts.push_back(std::move(terminal));
    cat.parts.push_back(RuleTree::to(kIgnored));
    out_.rules.try_emplace(kIgnored, RuleTree());
    return cat;
  }

  Result<std::string> quoted() {
    const size_t begin = ++at_;
    std::string pattern;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        pattern += text_.substr(at_, 2);
        at_ += 2;
      } else {
        if (std::string_view("^$.*+?()[]{}|/").find(peek()) != std::string_view::npos) pattern.push_back('\\');
        pattern.push_back(text_[at_++]);
      }
    }
    if (!eat("\"")) return at_ = begin, wrong("the end of a text");
    return pattern;
  }

  Result<RuleTree> text() {
    TRY(std::string pattern, quoted());
    if (eat("..")) {
      if (peek() != '"') return wrong("the end of a range");
      TRY(const std::string last, quoted());
      pattern = "[" + pattern + "-" + last + "]";
    }
    RegexFlags flags;
    flags.ignore_case = eat("i");
    return terminal(pattern, flags);
  }

  Result<RuleTree> pattern() {
    const size_t begin = ++at_;
    bool in_class = false;
    for (; at_ < text_.size() && peek() != '\n' && (in_class || peek() != '/'); ++at_) {
      if (peek() == '\\') {
        ++at_;
      } else if (peek() == '[' || peek() == ']') {
        in_class = peek() == '[';
      }
    }
    const std::string_view body = text_.substr(begin, at_ - begin);
    if (!eat("/")) return at_ = begin, wrong("the end of a regular expression");
    RegexFlags flags;
    while (std::string_view("imslux").find(peek()) != std::string_view::npos && peek() != '\0') {
      const char flag = text_[at_++];
      if (flag == 'i') flags.ignore_case = true;
      if (flag == 's') flags.dot_all = true;
      if (flag == 'x' || flag == 'm') return error(Code::unsupported, "the flag '{}' is not supported", flag);
    }
    return terminal(body, flags);
  }

  Result<RuleTree> terminal(std::string_view body, RegexFlags flags) {
    auto expr = regex_expr(exprs_, body, RegexUse::terminal, flags);
    if (!expr.ok()) return within(fmt::format("'{}'", body.substr(0, 64)), expr.error());
    RuleTree tree = RuleTree::of(*expr);
    return in_terminal_ ? tree : spaced(std::move(tree));
  }

  void add_ignored() {
    RuleTree any;
    any.kind = RuleTree::Kind::alt;
    any.parts = std::move(ignored_);
    strip(any);
    out_.rules[kIgnored] = RuleTree::repeated(std::move(any), 0, Exprs::kMany);
    auto start = out_.rules.find(out_.start);
    if (start == out_.rules.end()) return;
    RuleTree cat;
    cat.parts.push_back(RuleTree::to(kIgnored));
    cat.parts.push_back(RuleTree::to(" start"));
    out_.rules[" start"] = start->second;
    start->second = std::move(cat);
  }

  // What is ignored is not itself followed by it.
  static void strip(RuleTree& tree) {
    std::erase_if(tree.parts,
                  [](const RuleTree& part) { return part.kind == RuleTree::Kind::ref && part.name == kIgnored; });
    for (RuleTree& part : tree.parts) strip(part);
  }

  Exprs& exprs_;
  bool in_terminal_ = false;
  RuleText out_;
  std::vector<RuleTree> ignored_;
};

}  // namespace

Result<RuleText> read_lark(std::string_view text, Exprs& exprs) {
  if (text.size() > kMostRuleBytes) {
    return error(Code::invalid, "the grammar has {} bytes, the limit is {}", text.size(), kMostRuleBytes);
  }
  return Lark(text, exprs).read();
}

}  // namespace millrace::grammar

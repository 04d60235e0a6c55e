// GBNF as llama.cpp writes it: name ::= alternatives of "text", [classes], ., (groups), names, with * + ? {m,n}.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/rule_reader.h"
#include "grammar/rules.h"

namespace millrace::grammar {

namespace {

class Gbnf : private RuleReader {
 public:
  Gbnf(std::string_view text, Exprs& exprs) : RuleReader(text, "#", "-_"), exprs_(exprs) {}

  Result<RuleText> read() {
    RuleText out;
    out.start = "root";
    skip(true);
    while (at_ < text_.size()) {
      const std::string name = word();
      if (name.empty()) return wrong("a rule's name");
      skip(false);
      if (!eat("::=")) return wrong("'::='");
      skip(true);
      TRY(RuleTree tree, alternatives(0));
      if (!out.rules.emplace(name, std::move(tree)).second) {
        return error(Code::invalid, "rule '{}' is defined twice", name);
      }
      skip(true);
      if (out.rules.size() > kMostRules) return error(Code::invalid, "the grammar has over {} rules", kMostRules);
    }
    return out;
  }

 private:
  Result<RuleTree> alternatives(int depth) {
    if (depth > kMostRuleDepth) return error(Code::invalid, "the grammar nests deeper than {}", kMostRuleDepth);
    RuleTree alt;
    alt.kind = RuleTree::Kind::alt;
    for (;;) {
      TRY(RuleTree branch, sequence(depth));
      alt.parts.push_back(std::move(branch));
      if (!eat("|")) return alt;
      skip(true);
    }
  }

  bool at_rule() {
    const size_t before = at_;
    const bool named = !word().empty();
    skip(false);
    const bool found = named && text_.substr(at_, 3) == "::=";
    at_ = before;
    return found;
  }

  Result<RuleTree> sequence(int depth) {
    RuleTree cat;
    for (;;) {
      skip(depth > 0);
      // A line's end ends a rule, unless the next line goes on with an alternative.
      if (peek() == '\n') {
        const size_t before = at_;
        skip(true);
        if (peek() != '|') at_ = before;
        return cat;
      }
      if (at_ >= text_.size() || peek() == '|' || peek() == ')' || (depth == 0 && at_rule())) return cat;
      TRY(RuleTree atom, this->atom(depth));
      TRY_VOID(quantify(atom));
      cat.parts.push_back(std::move(atom));
    }
  }

  Result<void> quantify(RuleTree& atom) {
    for (;;) {
      skip(false);
      int least = 0, most = Exprs::kMany;
      if (eat("*")) {
      } else if (eat("+")) {
        least = 1;
      } else if (eat("?")) {
        most = 1;
      } else if (eat("{")) {
        const bool low = number(least);
        most = least;
        if (eat(",")) {
          most = Exprs::kMany;
          number(most);
        }
        if (!low || !eat("}")) return wrong("a count such as {2} or {1,3}");
        if (least > kMostRuleCount || most > kMostRuleCount) {
          return error(Code::invalid, "a count of {} is over the limit of {}", std::max(least, most), kMostRuleCount);
        }
        if (most != Exprs::kMany && most < least) return wrong("a range in order");
      } else {
        return {};
      }
      atom = RuleTree::repeated(std::move(atom), least, most);
    }
  }

  bool number(int& out) {
    const size_t begin = at_;
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min<int64_t>(value * 10 + (text_[at_++] - '0'), 1 << 30);
    if (at_ > begin) out = static_cast<int>(value);
    return at_ > begin;
  }

  Result<RuleTree> atom(int depth) {
    if (eat("(")) {
      skip(true);
      TRY(RuleTree inner, alternatives(depth + 1));
      if (!eat(")")) return wrong("')'");
      return inner;
    }
    if (eat(".")) return RuleTree::of(any_character(exprs_));
    if (peek() == '"') return quoted();
    if (peek() == '[') return character_class();
    std::string name = word();
    if (name.empty()) return wrong("a text, a class, a group or a name");
    return RuleTree::to(std::move(name));
  }

  // Both are what a regular expression would have there: escapes mean the same.
  Result<RuleTree> quoted() {
    const size_t begin = ++at_;
    std::string pattern;
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && at_ + 1 < text_.size()) {
        pattern += text_.substr(at_, 2);
        at_ += 2;
      } else {
        if (std::string_view("^$.*+?()[]{}|/").find(peek()) != std::string_view::npos) pattern.push_back('\\');
        pattern.push_back(text_[at_++]);
      }
    }
    if (!eat("\"")) return at_ = begin, wrong("the end of a text");
    return regex(pattern);
  }

  Result<RuleTree> character_class() {
    const size_t begin = at_;
    for (++at_; at_ < text_.size() && peek() != ']'; ++at_) {
      if (peek() == '\\' && at_ + 1 < text_.size()) ++at_;
    }
    if (!eat("]")) return at_ = begin, wrong("the end of a class");
    return regex(text_.substr(begin, at_ - begin));
  }

  Result<RuleTree> regex(std::string_view pattern) {
    auto expr = regex_expr(exprs_, pattern, RegexUse::terminal);
    if (!expr.ok()) return within(fmt::format("'{}'", pattern.substr(0, 64)), expr.error());
    return RuleTree::of(*expr);
  }

  Exprs& exprs_;
};

}  // namespace

Result<RuleText> read_gbnf(std::string_view text, Exprs& exprs) {
  if (text.size() > kMostRuleBytes) {
    return error(Code::invalid, "the grammar has {} bytes, the limit is {}", text.size(), kMostRuleBytes);
  }
  return Gbnf(text, exprs).read();
}

}  // namespace millrace::grammar

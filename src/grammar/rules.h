// Rules: a context-free grammar as GBNF and Lark write it, read into trees of regular languages, references, sequences,
// alternatives and repetitions. What refers to nothing recursive is folded into one regular language, so that the
// automaton's stacks only grow where rules truly nest. Left recursion of a rule in itself becomes repetition; through
// other rules it is refused by name, and so is a rule that cannot end.
//
// Limits: 256 kB of text, 10,000 rules, depth 200 of brackets, counts of 100,000. Values; one thread while made.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/expr.h"

namespace millrace::grammar {

struct RuleTree {
  enum class Kind : uint8_t { lex, ref, cat, alt, repeat };
  Kind kind = Kind::cat;
  ExprId lex = Exprs::kEmpty;
  std::string name;  // ref
  std::vector<RuleTree> parts;
  int least = 0, most = 0;

  static RuleTree of(ExprId expr);
  static RuleTree to(std::string name);
  static RuleTree repeated(RuleTree inner, int least, int most);
};

struct RuleText {
  std::map<std::string, RuleTree> rules;
  std::string start;
};

inline constexpr size_t kMostRuleBytes = 256 * 1024;
inline constexpr size_t kMostRules = 10'000;
inline constexpr int kMostRuleDepth = 200;
inline constexpr int kMostRuleCount = 100'000;

Result<RuleText> read_gbnf(std::string_view text, Exprs& exprs);
Result<RuleText> read_lark(std::string_view text, Exprs& exprs);

// The rules as numbered nodes, checked. Node ids are what frames carry.
struct RuleNodes {
  struct Node {
    RuleTree::Kind kind = RuleTree::Kind::cat;
    ExprId lex = Exprs::kEmpty;
    std::vector<int32_t> parts;  // nodes; of a ref its rule's node
    int least = 0, most = 0;
    bool nullable = false, productive = false;
  };
  std::vector<Node> nodes;
  int32_t start = 0;
};

Result<RuleNodes> compile_rules(RuleText text, Exprs& exprs);

}  // namespace millrace::grammar

#include "grammar/rules.h"

#include <algorithm>

namespace millrace::grammar {

RuleTree RuleTree::of(ExprId expr) {
  RuleTree tree;
  tree.kind = Kind::lex;
  tree.lex = expr;
  return tree;
}

RuleTree RuleTree::to(std::string name) {
  RuleTree tree;
  tree.kind = Kind::ref;
  tree.name = std::move(name);
  return tree;
}

RuleTree RuleTree::repeated(RuleTree inner, int least, int most) {
  RuleTree tree;
  tree.kind = Kind::repeat;
  tree.least = least;
  tree.most = most;
  tree.parts.push_back(std::move(inner));
  return tree;
}

namespace {

using Kind = RuleTree::Kind;

class Compiler {
 public:
  Compiler(RuleText text, Exprs& exprs) : text_(std::move(text)), exprs_(exprs) {}

  Result<RuleNodes> compile() {
    if (text_.rules.size() > kMostRules) {
      return error(Code::invalid, "the grammar has {} rules, the limit is {}", text_.rules.size(), kMostRules);
    }
    if (!text_.rules.contains(text_.start)) return error(Code::invalid, "the grammar has no rule '{}'", text_.start);
    TRY_VOID(check_names());
    for (auto& [name, tree] : text_.rules) unwind(name, tree);
    find_regular();
    out_.nodes.reserve(text_.rules.size());
    for (const auto& [name, tree] : text_.rules) {
      places_[name] = static_cast<int32_t>(out_.nodes.size());
      out_.nodes.emplace_back();
    }
    for (const auto& [name, tree] : text_.rules) {
      const int32_t made = add(tree);
      RuleNodes::Node& node = out_.nodes[static_cast<size_t>(places_[name])];
      node.kind = Kind::alt;
      node.parts = {made};
    }
    if (exprs_.over()) return error(Code::invalid, "the grammar takes more work to compile than is allowed");
    out_.start = places_[text_.start];
    find_facts();
    TRY_VOID(check_left());
    if (!out_.nodes[static_cast<size_t>(out_.start)].productive) {
      return error(Code::invalid, "no text satisfies the grammar: its rule '{}' cannot end", text_.start);
    }
    return std::move(out_);
  }

 private:
  template <class F>
  static void visit(const RuleTree& tree, F see) {
    std::vector<const RuleTree*> todo{&tree};
    while (!todo.empty()) {
      const RuleTree* now = todo.back();
      todo.pop_back();
      see(*now);
      for (const RuleTree& part : now->parts) todo.push_back(&part);
    }
  }

  Result<void> check_names() {
    std::string missing, user;
    for (const auto& rule : text_.rules) {
      visit(rule.second, [&](const RuleTree& part) {
        if (part.kind == Kind::ref && !text_.rules.contains(part.name)) missing = part.name, user = rule.first;
      });
    }
    if (missing.empty()) return {};
    return error(Code::invalid, "rule '{}' uses '{}', which is not defined", user, missing);
  }

  // a: a x | b is b followed by any number of x.
  static void unwind(const std::string& name, RuleTree& tree) {
    RuleTree whole = tree.kind == Kind::alt ? tree : RuleTree{};
    if (tree.kind != Kind::alt) whole.kind = Kind::alt, whole.parts = {tree};
    const auto left = [&](const RuleTree& part) {
      const RuleTree* first = &part;
      while (first->kind == Kind::cat && !first->parts.empty()) first = &first->parts[0];
      return first->kind == Kind::ref && first->name == name;
    };
    if (std::none_of(whole.parts.begin(), whole.parts.end(), left)) return;
    RuleTree firsts, tails;
    firsts.kind = tails.kind = Kind::alt;
    for (RuleTree& part : whole.parts) {
      if (!left(part)) {
        firsts.parts.push_back(std::move(part));
        continue;
      }
      RuleTree* first = &part;
      while (first->kind == Kind::cat && first->parts[0].kind == Kind::cat) first = &first->parts[0];
      if (first->kind == Kind::ref) continue;  // a: a says nothing
      first->parts.erase(first->parts.begin());
      tails.parts.push_back(std::move(part));
    }
    RuleTree joined;
    joined.parts.push_back(std::move(firsts));
    joined.parts.push_back(RuleTree::repeated(std::move(tails), 0, Exprs::kMany));
    tree = std::move(joined);
  }

  // Rules that lead to no recursion are regular.
  void find_regular() {
    bool again = true;
    while (again) {
      again = false;
      for (const auto& [name, tree] : text_.rules) {
        if (regular_.contains(name)) continue;
        bool good = true;
        visit(tree,
              [&](const RuleTree& part) { good = good && (part.kind != Kind::ref || regular_.contains(part.name)); });
        if (!good) continue;
        regular_[name] = fold(tree);
        again = true;
      }
    }
  }

  bool is_regular(const RuleTree& tree) const {
    bool good = true;
    visit(tree, [&](const RuleTree& part) { good = good && (part.kind != Kind::ref || regular_.contains(part.name)); });
    return good;
  }

  ExprId fold(const RuleTree& tree) {
    switch (tree.kind) {
      case Kind::lex:
        return tree.lex;
      case Kind::ref:
        return regular_.at(tree.name);
      case Kind::repeat:
        return exprs_.repeat(fold(tree.parts[0]), tree.least, tree.most);
      case Kind::alt: {
        std::vector<ExprId> parts;
        for (const RuleTree& part : tree.parts) parts.push_back(fold(part));
        return exprs_.alt(std::move(parts));
      }
      case Kind::cat:
        break;
    }
    ExprId tail = Exprs::kEmpty;
    for (size_t i = tree.parts.size(); i-- > 0;) tail = exprs_.cat(fold(tree.parts[i]), tail);
    return tail;
  }

  int32_t push(RuleNodes::Node node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(out_.nodes.size()) - 1;
  }

  int32_t add(const RuleTree& tree) {
    RuleNodes::Node node;
    node.kind = tree.kind;
    if (is_regular(tree)) {
      node.kind = Kind::lex;
      node.lex = fold(tree);
      return push(std::move(node));
    }
    if (tree.kind == Kind::ref) return places_.at(tree.name);
    node.least = tree.least;
    node.most = tree.most;
    // Neighbours that are regular together are one language.
    for (size_t i = 0; i < tree.parts.size(); ++i) {
      if (tree.kind == Kind::cat && is_regular(tree.parts[i])) {
        ExprId joined = Exprs::kEmpty;
        for (; i < tree.parts.size() && is_regular(tree.parts[i]); ++i)
          joined = exprs_.cat(joined, fold(tree.parts[i]));
        --i;
        RuleNodes::Node lex;
        lex.kind = Kind::lex;
        lex.lex = joined;
        node.parts.push_back(push(std::move(lex)));
      } else {
        node.parts.push_back(add(tree.parts[i]));
      }
    }
    return push(std::move(node));
  }

  // Which nodes can be empty, and which can end at all: least solutions.
  void find_facts() {
    bool again = true;
    while (again) {
      again = false;
      for (RuleNodes::Node& node : out_.nodes) {
        const auto at = [&](int32_t id) -> const RuleNodes::Node& { return out_.nodes[static_cast<size_t>(id)]; };
        bool nullable = false, productive = false;
        if (node.kind == Kind::lex) {
          nullable = exprs_.nullable(node.lex);
          productive = node.lex != Exprs::kNothing;
        } else if (node.kind == Kind::cat) {
          nullable = productive = true;
          for (int32_t part : node.parts) nullable &= at(part).nullable, productive &= at(part).productive;
        } else if (node.kind == Kind::repeat) {
          nullable = node.least == 0 || at(node.parts[0]).nullable;
          productive = node.least == 0 || at(node.parts[0]).productive;
        } else {
          for (int32_t part : node.parts) nullable |= at(part).nullable, productive |= at(part).productive;
        }
        again |= nullable != node.nullable || productive != node.productive;
        node.nullable = nullable;
        node.productive = productive;
      }
    }
  }

  // A node that reaches itself without a byte in between would grow stacks for ever.
  Result<void> check_left() {
    std::vector<uint8_t> colour(out_.nodes.size(), 0);
    for (size_t root = 0; root < out_.nodes.size(); ++root) {
      std::vector<std::pair<size_t, size_t>> path{{root, 0}};
      if (colour[root] != 0) continue;
      colour[root] = 1;
      while (!path.empty()) {
        auto& [at, next] = path.back();
        const RuleNodes::Node& node = out_.nodes[at];
        const bool more = next < node.parts.size() && (node.kind != Kind::cat || next == 0 ||
                                                       out_.nodes[static_cast<size_t>(node.parts[next - 1])].nullable);
        if (!more) {
          colour[at] = 2;
          path.pop_back();
          continue;
        }
        const size_t to = static_cast<size_t>(node.parts[next++]);
        if (colour[to] == 1) return left_recursion(to);
        if (colour[to] == 2) continue;
        colour[to] = 1;
        path.push_back({to, 0});
      }
    }
    return {};
  }

  Error left_recursion(size_t node) const {
    std::string name = text_.start;
    for (const auto& [rule, place] : places_) {
      if (static_cast<size_t>(place) == node) name = rule;
    }
    return error(Code::unsupported,
                 "rule '{}' begins with itself by way of other rules or of something empty; write it as a repetition",
                 name);
  }

  RuleText text_;
  Exprs& exprs_;
  std::map<std::string, ExprId> regular_;
  std::map<std::string, int32_t> places_;
  RuleNodes out_;
};

}  // namespace

Result<RuleNodes> compile_rules(RuleText text, Exprs& exprs) { return Compiler(std::move(text), exprs).compile(); }

}  // namespace millrace::grammar

#include "text/template/names.h"

namespace millrace::jinja {
namespace {

class Walker {
 public:
  explicit Walker(const NameVisitor& visitor) : visitor_(visitor) {}

  void walk(const ExpressionPtr& expression) {
    if (expression != nullptr) walk(*expression);
  }
  void walk(const Expression& expression) {
    std::visit([this](const auto& node) { walk_node(node); }, expression.node);
  }
  void walk(const Body& body) {
    for (const auto& statement : body) {
      std::visit([this](const auto& node) { walk_node(node); }, statement->node);
    }
  }

 private:
  void walk(const std::vector<ExpressionPtr>& expressions) {
    for (const auto& expression : expressions) walk(expression);
  }
  void walk(const CallArguments& arguments) {
    walk(arguments.positional);
    for (const auto& [name, value] : arguments.named) walk(value);
    walk(arguments.star);
    walk(arguments.star_star);
  }
  void walk(const Target& target) {
    if (target.kind == Target::Kind::name) visitor_(target.name, false);
    for (const Target& item : target.items) walk(item);
  }
  void walk(const MacroNode& macro) {
    for (const auto& parameter : macro.parameters) visitor_(parameter.name, false);
    for (const auto& parameter : macro.parameters) walk(parameter.otherwise);
    walk(macro.body);
  }

  void walk_node(const Constant&) {}
  void walk_node(const Name& node) { visitor_(node.name, true); }
  void walk_node(const SequenceLiteral& node) { walk(node.items); }
  void walk_node(const DictLiteral& node) {
    for (const auto& [key, value] : node.entries) walk(key), walk(value);
  }
  void walk_node(const Attribute& node) { walk(node.object); }
  void walk_node(const Item& node) { walk(node.object), walk(node.key); }
  void walk_node(const Slice& node) { walk(node.object), walk(node.start), walk(node.stop), walk(node.step); }
  void walk_node(const Call& node) { walk(node.callee), walk(node.arguments); }
  void walk_node(const Filter& node) { walk(node.input), walk(node.arguments); }
  void walk_node(const Test& node) { walk(node.input), walk(node.arguments); }
  void walk_node(const Unary& node) { walk(node.operand); }
  void walk_node(const Binary& node) { walk(node.left), walk(node.right); }
  void walk_node(const Logical& node) { walk(node.left), walk(node.right); }
  void walk_node(const Compare& node) {
    walk(node.first);
    for (const auto& [op, operand] : node.rest) walk(operand);
  }
  void walk_node(const Concatenation& node) { walk(node.parts); }
  void walk_node(const Conditional& node) { walk(node.condition), walk(node.then), walk(node.otherwise); }

  void walk_node(const Output& node) {
    for (const auto& piece : node.pieces) walk(piece.expression);
  }
  void walk_node(const If& node) {
    for (const auto& branch : node.branches) walk(branch.condition), walk(branch.body);
    walk(node.otherwise);
  }
  void walk_node(const For& node) {
    walk(node.target), walk(node.iterable), walk(node.body), walk(node.otherwise), walk(node.condition);
  }
  void walk_node(const Set& node) { walk(node.target), walk(node.value); }
  void walk_node(const SetCapture& node) { walk(node.target), walk(node.filter), walk(node.body); }
  void walk_node(const MacroDefinition& node) { walk(node.macro); }
  void walk_node(const CallStatement& node) { walk(node.call), walk(node.caller); }
  void walk_node(const Generation& node) { walk(node.body); }
  void walk_node(const FilterStatement& node) { walk(node.body), walk(node.filter); }
  void walk_node(const With& node) {
    for (const auto& [target, value] : node.assignments) walk(target);
    for (const auto& [target, value] : node.assignments) walk(value);
    walk(node.body);
  }
  void walk_node(const Break&) {}
  void walk_node(const Continue&) {}

  const NameVisitor& visitor_;
};

}  // namespace

void visit_names(const Expression& expression, const NameVisitor& visitor) { Walker(visitor).walk(expression); }
void visit_names(const Body& body, const NameVisitor& visitor) { Walker(visitor).walk(body); }

}  // namespace millrace::jinja

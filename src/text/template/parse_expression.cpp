#include <algorithm>

#include "text/template/parser.h"

namespace millrace::jinja {
namespace {

uint32_t depth_of(const ExpressionPtr& expression) { return expression == nullptr ? 0 : expression->depth; }

template <class... Children>
uint32_t deepest(const Children&... children) {
  return std::max({depth_of(children)...});
}

uint32_t depth_of(const std::vector<ExpressionPtr>& expressions) {
  uint32_t depth = 0;
  for (const auto& expression : expressions) depth = std::max(depth, depth_of(expression));
  return depth;
}

uint32_t depth_of(const CallArguments& arguments) {
  uint32_t depth = std::max(depth_of(arguments.positional), deepest(arguments.star, arguments.star_star));
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, depth_of(value));
  return depth;
}

uint32_t children_depth(const Constant&) { return 0; }
uint32_t children_depth(const Name&) { return 0; }
uint32_t children_depth(const SequenceLiteral& node) { return depth_of(node.items); }
uint32_t children_depth(const DictLiteral& node) {
  uint32_t depth = 0;
  for (const auto& [key, value] : node.entries) depth = std::max(depth, deepest(key, value));
  return depth;
}
uint32_t children_depth(const Attribute& node) { return depth_of(node.object); }
uint32_t children_depth(const Item& node) { return deepest(node.object, node.key); }
uint32_t children_depth(const Slice& node) { return deepest(node.object, node.start, node.stop, node.step); }
uint32_t children_depth(const Call& node) { return std::max(depth_of(node.callee), depth_of(node.arguments)); }
uint32_t children_depth(const Filter& node) { return std::max(depth_of(node.input), depth_of(node.arguments)); }
uint32_t children_depth(const Test& node) { return std::max(depth_of(node.input), depth_of(node.arguments)); }
uint32_t children_depth(const Unary& node) { return depth_of(node.operand); }
uint32_t children_depth(const Binary& node) { return deepest(node.left, node.right); }
uint32_t children_depth(const Logical& node) { return deepest(node.left, node.right); }
uint32_t children_depth(const Compare& node) {
  uint32_t depth = depth_of(node.first);
  for (const auto& [op, operand] : node.rest) depth = std::max(depth, depth_of(operand));
  return depth;
}
uint32_t children_depth(const Concatenation& node) { return depth_of(node.parts); }
uint32_t children_depth(const Conditional& node) { return deepest(node.condition, node.then, node.otherwise); }

}  // namespace

template <class Node>
Result<ExpressionPtr> Parser::make(Node node, uint32_t line) {
  auto made = std::make_unique<Expression>();
  made->depth = 1 + children_depth(node);
  made->line = line;
  made->node = std::move(node);
  if (made->depth > limits_.tree_depth) {
    return fail_at(line, fmt::format("an expression is deeper than {} levels", limits_.tree_depth));
  }
  return made;
}

Result<ExpressionPtr> Parser::make_constant(Constant constant, uint32_t line) {
  constant.id = constants_++;
  return make(std::move(constant), line);
}

Result<ExpressionPtr> Parser::parse_expression(bool with_conditional) {
  Nested nested(*this);
  TRY_VOID(check_nesting());
  return with_conditional ? parse_conditional() : parse_or();
}

Result<ExpressionPtr> Parser::parse_conditional() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_or());
  while (skip_name("if")) {
    TRY(ExpressionPtr condition, parse_or());
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      TRY(otherwise, parse_expression());
    }
    TRY(left, make(Conditional{std::move(condition), std::move(left), std::move(otherwise)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_or() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_and());
  while (skip_name("or")) {
    TRY(ExpressionPtr right, parse_and());
    TRY(left, make(Logical{false, std::move(left), std::move(right)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_and() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_not());
  while (skip_name("and")) {
    TRY(ExpressionPtr right, parse_not());
    TRY(left, make(Logical{true, std::move(left), std::move(right)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  Nested nested(*this);
  TRY_VOID(check_nesting());
  uint32_t line = next().line;
  TRY(ExpressionPtr operand, parse_not());
  return make(Unary{UnaryOperator::negation, std::move(operand)}, line);
}

Result<ExpressionPtr> Parser::parse_compare() {
  static constexpr std::pair<Token, Comparison> kComparisons[] = {
      {Token::equal, Comparison::equal},     {Token::not_equal, Comparison::not_equal},
      {Token::less, Comparison::less},       {Token::less_equal, Comparison::less_equal},
      {Token::greater, Comparison::greater}, {Token::greater_equal, Comparison::greater_equal},
  };
  uint32_t line = current().line;
  TRY(ExpressionPtr first, parse_sum());
  Compare compare;
  while (true) {
    const auto* known = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [&](const auto& entry) { return is(entry.first); });
    Comparison op = Comparison::in;
    if (known != std::end(kComparisons)) {
      op = known->second;
      next();
    } else if (is_name("not") && look().token == Token::name && look().text == "in") {
      op = Comparison::not_in;
      next();
      next();
    } else if (!skip_name("in")) {
      break;
    }
    TRY(ExpressionPtr operand, parse_sum());
    compare.rest.emplace_back(op, std::move(operand));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return make(std::move(compare), line);
}

Result<ExpressionPtr> Parser::parse_sum() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_concatenation());
  while (is(Token::add) || is(Token::subtract)) {
    auto op = next().token == Token::add ? BinaryOperator::add : BinaryOperator::subtract;
    TRY(ExpressionPtr right, parse_concatenation());
    TRY(left, make(Binary{op, std::move(left), std::move(right)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_concatenation() {
  uint32_t line = current().line;
  TRY(ExpressionPtr first, parse_product());
  if (!is(Token::tilde)) return first;
  Concatenation node;
  node.parts.push_back(std::move(first));
  while (skip(Token::tilde)) {
    TRY(ExpressionPtr part, parse_product());
    node.parts.push_back(std::move(part));
  }
  return make(std::move(node), line);
}

Result<ExpressionPtr> Parser::parse_product() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_power());
  while (is(Token::multiply) || is(Token::divide) || is(Token::floor_divide) || is(Token::modulo)) {
    Token token = next().token;
    auto op = token == Token::multiply ? BinaryOperator::multiply
              : token == Token::divide ? BinaryOperator::divide
              : token == Token::modulo ? BinaryOperator::modulo
                                       : BinaryOperator::floor_divide;
    TRY(ExpressionPtr right, parse_power());
    TRY(left, make(Binary{op, std::move(left), std::move(right)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_power() {
  uint32_t line = current().line;
  TRY(ExpressionPtr left, parse_unary(true));
  while (skip(Token::power)) {
    TRY(ExpressionPtr right, parse_unary(true));
    TRY(left, make(Binary{BinaryOperator::power, std::move(left), std::move(right)}, line));
    line = current().line;
  }
  return left;
}

Result<ExpressionPtr> Parser::parse_unary(bool with_filter) {
  ExpressionPtr node;
  uint32_t line = current().line;
  if (is(Token::subtract) || is(Token::add)) {
    Nested nested(*this);
    TRY_VOID(check_nesting());
    auto op = next().token == Token::add ? UnaryOperator::positive : UnaryOperator::negative;
    TRY(ExpressionPtr operand, parse_unary(false));
    TRY(node, make(Unary{op, std::move(operand)}, line));
  } else {
    TRY(node, parse_primary());
  }
  TRY(node, parse_postfix(std::move(node)));
  if (!with_filter) return node;
  return parse_filters_and_tests(std::move(node));
}

Result<ExpressionPtr> Parser::parse_primary() {
  uint32_t line = current().line;
  switch (current().token) {
    case Token::name: {
      std::string name = next().text;
      if (name == "true" || name == "True") return make_constant({true}, line);
      if (name == "false" || name == "False") return make_constant({false}, line);
      if (name == "none" || name == "None") return make_constant({std::monostate()}, line);
      return make(Name{std::move(name), {}}, line);
    }
    case Token::text: {
      std::string text = next().text;
      while (is(Token::text)) text += next().text;
      return make_constant({std::move(text)}, line);
    }
    case Token::integer:
      return make_constant({next().integer}, line);
    case Token::real:
      return make_constant({next().real}, line);
    case Token::left_parenthesis: {
      next();
      Nested nested(*this);
      TRY_VOID(check_nesting());
      TRY(ExpressionPtr inner, parse_tuple(TupleItems::expressions, true));
      TRY_VOID(expect(Token::right_parenthesis));
      return inner;
    }
    case Token::left_bracket:
      return parse_list();
    case Token::left_brace:
      return parse_dict();
    default:
      return fail(fmt::format("unexpected '{}'", describe(current())));
  }
}

Result<ExpressionPtr> Parser::parse_tuple(TupleItems kind, bool in_parentheses) {
  uint32_t line = current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  auto at_end = [&] { return is(Token::variable_end) || is(Token::tag_end) || is(Token::right_parenthesis); };
  while (!at_end()) {
    if (kind == TupleItems::primaries) {
      Nested nested(*this);
      TRY_VOID(check_nesting());
      TRY(ExpressionPtr item, parse_primary());
      items.push_back(std::move(item));
    } else {
      TRY(ExpressionPtr item, parse_expression(kind == TupleItems::expressions));
      items.push_back(std::move(item));
    }
    if (!skip(Token::comma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!in_parentheses) return fail(fmt::format("Expected an expression, got '{}'", describe(current())));
  }
  return make(SequenceLiteral{true, std::move(items)}, line);
}

Result<ExpressionPtr> Parser::parse_list() {
  uint32_t line = next().line;
  SequenceLiteral list;
  while (!is(Token::right_bracket)) {
    if (!list.items.empty()) TRY_VOID(expect(Token::comma));
    if (is(Token::right_bracket)) break;
    TRY(ExpressionPtr item, parse_expression());
    list.items.push_back(std::move(item));
  }
  next();
  return make(std::move(list), line);
}

Result<ExpressionPtr> Parser::parse_dict() {
  uint32_t line = next().line;
  DictLiteral dict;
  while (!is(Token::right_brace)) {
    if (!dict.entries.empty()) TRY_VOID(expect(Token::comma));
    if (is(Token::right_brace)) break;
    TRY(ExpressionPtr key, parse_expression());
    TRY_VOID(expect(Token::colon));
    TRY(ExpressionPtr value, parse_expression());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  next();
  return make(std::move(dict), line);
}

Result<ExpressionPtr> Parser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (is(Token::dot) || is(Token::left_bracket)) {
      TRY(node, parse_subscript(std::move(node)));
    } else if (is(Token::left_parenthesis)) {
      TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> Parser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (is(Token::pipe)) {
      TRY(node, parse_filter(std::move(node)));
    } else if (is_name("is")) {
      TRY(node, parse_test(std::move(node)));
    } else if (is(Token::left_parenthesis)) {
      TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> Parser::parse_subscript(ExpressionPtr node) {
  const Lexeme& opening = next();
  const uint32_t line = opening.line;
  if (opening.token == Token::dot) {
    if (is(Token::name)) return make(Attribute{std::move(node), next().text}, line);
    if (!is(Token::integer)) return fail("expected name or number");
    TRY(ExpressionPtr key, make_constant({next().integer}, line));
    return make(Item{std::move(node), std::move(key)}, line);
  }
  SequenceLiteral keys{true, {}};
  while (!is(Token::right_bracket)) {
    if (!keys.items.empty()) TRY_VOID(expect(Token::comma));
    ExpressionPtr key;
    if (!is(Token::colon)) {
      TRY(key, parse_expression());
    }
    if (is(Token::colon)) {
      if (!keys.items.empty()) return fail("a slice cannot be part of a tuple");
      TRY(ExpressionPtr sliced, parse_slice(std::move(node), std::move(key), line));
      TRY_VOID(expect(Token::right_bracket));
      return sliced;
    }
    keys.items.push_back(std::move(key));
  }
  next();
  if (keys.items.size() == 1) return make(Item{std::move(node), std::move(keys.items.front())}, line);
  TRY(ExpressionPtr key, make(std::move(keys), line));
  return make(Item{std::move(node), std::move(key)}, line);
}

// From the first colon on.
Result<ExpressionPtr> Parser::parse_slice(ExpressionPtr object, ExpressionPtr start, uint32_t line) {
  next();
  Slice slice{std::move(object), std::move(start), nullptr, nullptr};
  auto has_part = [&] { return !is(Token::colon) && !is(Token::right_bracket) && !is(Token::comma); };
  if (has_part()) {
    TRY(slice.stop, parse_expression());
  }
  if (skip(Token::colon) && has_part()) {
    TRY(slice.step, parse_expression());
  }
  return make(std::move(slice), line);
}

Result<ExpressionPtr> Parser::parse_call(ExpressionPtr callee) {
  uint32_t line = current().line;
  TRY(CallArguments arguments, parse_call_arguments());
  return make(Call{std::move(callee), std::move(arguments)}, line);
}

Result<CallArguments> Parser::parse_call_arguments() {
  uint32_t line = current().line;
  TRY_VOID(expect(Token::left_parenthesis));
  CallArguments arguments;
  bool first = true;
  while (!is(Token::right_parenthesis)) {
    if (!first) {
      TRY_VOID(expect(Token::comma));
      if (is(Token::right_parenthesis)) break;
    }
    first = false;
    TRY_VOID(parse_call_argument(arguments, line));
  }
  TRY_VOID(expect(Token::right_parenthesis));
  return arguments;
}

Result<void> Parser::parse_call_argument(CallArguments& arguments, uint32_t line) {
  auto invalid = [&] { return fail_at(line, "invalid syntax for function call expression"); };
  if (is(Token::multiply)) {
    if (arguments.star != nullptr || arguments.star_star != nullptr) return invalid();
    next();
    TRY(arguments.star, parse_expression());
  } else if (is(Token::power)) {
    if (arguments.star_star != nullptr) return invalid();
    next();
    TRY(arguments.star_star, parse_expression());
  } else if (is(Token::name) && look().token == Token::assign) {
    if (arguments.star_star != nullptr) return invalid();
    std::string name = next().text;
    next();
    if (arguments.named.size() >= limits_.names) {
      return fail_at(line, fmt::format("more than {} keyword arguments", limits_.names));
    }
    for (const auto& [other, ignored] : arguments.named) {
      if (other == name) return fail_at(line, fmt::format("keyword argument repeated: {}", name));
    }
    TRY(ExpressionPtr value, parse_expression());
    arguments.named.emplace_back(std::move(name), std::move(value));
  } else {
    if (arguments.star != nullptr || arguments.star_star != nullptr || !arguments.named.empty()) return invalid();
    TRY(ExpressionPtr value, parse_expression());
    arguments.positional.push_back(std::move(value));
  }
  return {};
}

Result<std::string> Parser::parse_dotted_name() {
  TRY(std::string name, expect_name());
  while (skip(Token::dot)) {
    TRY(std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

// From the bar on, or from the name on in a filter statement.
Result<ExpressionPtr> Parser::parse_filter(ExpressionPtr input) {
  skip(Token::pipe);
  uint32_t line = current().line;
  Filter filter;
  filter.input = std::move(input);
  TRY(filter.name, parse_dotted_name());
  if (is(Token::left_parenthesis)) {
    TRY(filter.arguments, parse_call_arguments());
  }
  return make(std::move(filter), line);
}

Result<ExpressionPtr> Parser::parse_test(ExpressionPtr input) {
  uint32_t line = next().line;
  bool negated = skip_name("not");
  Test test;
  test.input = std::move(input);
  TRY(test.name, parse_dotted_name());
  bool argument_follows = is(Token::name) || is(Token::text) || is(Token::integer) || is(Token::real) ||
                          is(Token::left_bracket) || is(Token::left_brace);
  if (is(Token::left_parenthesis)) {
    TRY(test.arguments, parse_call_arguments());
  } else if (argument_follows && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) return fail("You cannot chain multiple tests with is");
    Nested nested(*this);
    TRY_VOID(check_nesting());
    TRY(ExpressionPtr argument, parse_primary());
    TRY(argument, parse_postfix(std::move(argument)));
    test.arguments.positional.push_back(std::move(argument));
  }
  TRY(ExpressionPtr node, make(std::move(test), line));
  if (!negated) return node;
  return make(Unary{UnaryOperator::negation, std::move(node)}, line);
}

}  // namespace millrace::jinja

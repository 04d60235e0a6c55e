#include "text/template/parser.h"

#include <algorithm>
#include <array>

#include "text/template/resolve.h"

namespace millrace::jinja {
namespace {

template <class Node>
StatementPtr statement(Node node, uint32_t line) {
  auto made = std::make_unique<Statement>();
  made->node = std::move(node);
  made->line = line;
  return made;
}

std::string quoted_list(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
  return out;
}

}  // namespace

Result<Program> parse(std::string_view source, const ParseLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return error(Code::invalid, "the template has {} bytes, more than the {} allowed", source.size(),
                 limits.source_bytes);
  }
  TRY(std::vector<Lexeme> lexemes, tokenize(source));
  return Parser(std::move(lexemes), limits).run();
}

Result<Program> Parser::run() {
  Program program;
  TRY(program.body, parse_until(nullptr));
  program.constants = constants_;
  TRY_VOID(resolve(program));
  return program;
}

Error Parser::fail_at(uint32_t line, std::string_view message) {
  return error(Code::invalid, "line {}: {}", line, message);
}

Result<void> Parser::check_nesting() const {
  if (nesting_ <= limits_.nesting) return {};
  return fail(fmt::format("the template nests deeper than {} levels", limits_.nesting));
}

Result<void> Parser::expect(Token token) {
  if (is(token)) return next(), Result<void>();
  if (is(Token::end)) return fail(fmt::format("unexpected end of template, expected '{}'", describe(token)));
  return fail(fmt::format("expected token '{}', got '{}'", describe(token), describe(current())));
}

Result<std::string> Parser::expect_name() {
  std::string name = current().text;
  TRY_VOID(expect(Token::name));
  return name;
}

Result<void> Parser::expect_name(std::string_view name) {
  if (skip_name(name)) return {};
  return fail(fmt::format("expected token '{}', got '{}'", name, describe(current())));
}

Error Parser::unknown_tag(std::string_view name, uint32_t line) const {
  std::string message = fmt::format("Encountered unknown tag '{}'.", name);
  if (!awaited_.empty()) {
    bool elsewhere = std::any_of(awaited_.begin(), awaited_.end(), [&](const EndTags& ends) {
      return std::find(ends.begin(), ends.end(), name) != ends.end();
    });
    message += elsewhere
                   ? fmt::format(" It is expected later, but the tag to close now is {}.", quoted_list(awaited_.back()))
                   : fmt::format(" The tag to close now is {}.", quoted_list(awaited_.back()));
  }
  if (!open_tags_.empty()) message += fmt::format(" The innermost open tag is '{}'.", open_tags_.back());
  return fail_at(line, message);
}

Error Parser::early_end() const {
  std::string message = "Unexpected end of template.";
  if (!awaited_.empty()) message += fmt::format(" The tag to close was {}.", quoted_list(awaited_.back()));
  if (!open_tags_.empty()) message += fmt::format(" The innermost open tag is '{}'.", open_tags_.back());
  return fail(message);
}

Result<Body> Parser::parse_body(const EndTags& ends) {
  skip(Token::colon);
  TRY_VOID(expect(Token::tag_end));
  awaited_.push_back(ends);
  TRY(Body body, parse_until(&ends));
  if (is(Token::end)) return early_end();
  awaited_.pop_back();
  return body;
}

Result<Body> Parser::parse_body_and_end(std::string_view end) {
  TRY(Body body, parse_body({end}));
  next();
  return body;
}

Result<Body> Parser::parse_until(const EndTags* ends) {
  Body body;
  Output output;
  uint32_t output_line = 0;
  auto flush = [&] {
    if (output.pieces.empty()) return;
    body.push_back(statement(std::exchange(output, {}), output_line));
  };
  auto add = [&](Output::Piece piece, uint32_t line) {
    if (output.pieces.empty()) output_line = line;
    output.pieces.push_back(std::move(piece));
  };
  while (!is(Token::end)) {
    uint32_t line = current().line;
    if (is(Token::data)) {
      add({current().text, nullptr}, line);
      next();
    } else if (skip(Token::variable_begin)) {
      TRY(ExpressionPtr expression, parse_tuple(TupleItems::expressions));
      add({{}, std::move(expression)}, line);
      TRY_VOID(expect(Token::variable_end));
    } else {
      TRY_VOID(expect(Token::tag_begin));
      flush();
      if (ends != nullptr && is(Token::name) && std::find(ends->begin(), ends->end(), current().text) != ends->end()) {
        return body;
      }
      TRY(StatementPtr parsed, parse_statement());
      body.push_back(std::move(parsed));
      TRY_VOID(expect(Token::tag_end));
    }
  }
  flush();
  return body;
}

Result<StatementPtr> Parser::parse_statement() {
  if (!is(Token::name)) return fail("tag name expected");
  Nested nested(*this);
  TRY_VOID(check_nesting());
  const uint32_t line = current().line;
  const std::string tag = current().text;
  if (open_tags_.size() >= limits_.tags) return fail(fmt::format("tags nest deeper than {} levels", limits_.tags));
  open_tags_.push_back(tag);
  TRY(StatementPtr parsed, dispatch_statement(tag));
  open_tags_.pop_back();
  parsed->line = line;
  return parsed;
}

Result<StatementPtr> Parser::dispatch_statement(const std::string& tag) {
  static constexpr std::pair<std::string_view, Result<StatementPtr> (Parser::*)()> kTags[] = {
      {"set", &Parser::parse_set},
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_statement},
      {"generation", &Parser::parse_generation},
      {"filter", &Parser::parse_filter_statement},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  };
  for (const auto& [name, parse_it] : kTags) {
    if (name == tag) return (this->*parse_it)();
  }
  static constexpr std::string_view kOtherFiles[] = {"import", "from", "include", "extends", "block"};
  const uint32_t line = current().line;
  if (std::find(std::begin(kOtherFiles), std::end(kOtherFiles), tag) != std::end(kOtherFiles)) {
    return error(Code::unsupported,
                 "line {}: the tag '{}' is not supported: a chat template stands alone and cannot use other templates",
                 line, tag);
  }
  if (tag == "autoescape") {
    return error(Code::unsupported, "line {}: the tag 'autoescape' is not supported: prompts are not HTML", line);
  }
  open_tags_.pop_back();
  return unknown_tag(tag, line);
}

Result<StatementPtr> Parser::parse_set() {
  next();
  TRY(Target target, parse_target(true));
  if (skip(Token::assign)) {
    TRY(ExpressionPtr value, parse_tuple(TupleItems::expressions));
    return statement(Set{std::move(target), std::move(value)}, 0);
  }
  SetCapture capture;
  capture.target = std::move(target);
  while (is(Token::pipe)) {
    TRY(capture.filter, parse_filter(std::move(capture.filter)));
  }
  TRY(capture.body, parse_body_and_end("endset"));
  return statement(std::move(capture), 0);
}

Result<StatementPtr> Parser::parse_for() {
  next();
  For loop;
  TRY(loop.target, parse_target(false));
  TRY_VOID(expect_name("in"));
  TRY(loop.iterable, parse_tuple(TupleItems::unconditional));
  if (skip_name("if")) {
    TRY(loop.condition, parse_expression());
  }
  loop.recursive = skip_name("recursive");
  ++loops_;
  TRY(loop.body, parse_body({"endfor", "else"}));
  --loops_;
  if (next().text == "else") {
    TRY(loop.otherwise, parse_body_and_end("endfor"));
  }
  return statement(std::move(loop), 0);
}

Result<StatementPtr> Parser::parse_if() {
  If result;
  while (true) {
    next();  // if or elif
    If::Branch branch;
    branch.line = current().line;
    TRY(branch.condition, parse_tuple(TupleItems::unconditional));
    TRY(branch.body, parse_body({"elif", "else", "endif"}));
    result.branches.push_back(std::move(branch));
    if (is_name("elif")) continue;
    if (next().text == "else") {
      TRY(result.otherwise, parse_body_and_end("endif"));
    }
    return statement(std::move(result), 0);
  }
}

Result<StatementPtr> Parser::parse_with() {
  next();
  With with;
  while (!is(Token::tag_end)) {
    if (!with.assignments.empty()) TRY_VOID(expect(Token::comma));
    TRY(Target target, parse_target(false));
    TRY_VOID(expect(Token::assign));
    TRY(ExpressionPtr value, parse_expression());
    with.assignments.emplace_back(std::move(target), std::move(value));
  }
  TRY(with.body, parse_body_and_end("endwith"));
  return statement(std::move(with), 0);
}

Result<void> Parser::parse_signature(MacroNode& macro) {
  TRY_VOID(expect(Token::left_parenthesis));
  bool defaults = false;
  while (!is(Token::right_parenthesis)) {
    if (!macro.parameters.empty()) TRY_VOID(expect(Token::comma));
    MacroNode::Parameter parameter;
    parameter.line = current().line;
    if (macro.parameters.size() >= limits_.names) return fail(fmt::format("more than {} parameters", limits_.names));
    TRY(parameter.name, expect_name());
    for (const auto& other : macro.parameters) {
      if (other.name == parameter.name) return fail(fmt::format("duplicate parameter '{}'", parameter.name));
    }
    if (skip(Token::assign)) {
      defaults = true;
      TRY(parameter.otherwise, parse_expression());
    } else if (defaults) {
      return fail("non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  return expect(Token::right_parenthesis);
}

// A function's body: loops outside it cannot be left from within.
Result<Body> Parser::parse_function_body(std::string_view end) {
  uint32_t outer_loops = std::exchange(loops_, 0);
  TRY(Body body, parse_body_and_end(end));
  loops_ = outer_loops;
  return body;
}

Result<StatementPtr> Parser::parse_macro() {
  MacroNode macro;
  macro.line = next().line;
  TRY(macro.name, expect_name());
  TRY_VOID(parse_signature(macro));
  TRY(macro.body, parse_function_body("endmacro"));
  return statement(MacroDefinition{std::move(macro)}, 0);
}

Result<StatementPtr> Parser::parse_call_statement() {
  CallStatement call;
  call.caller.line = next().line;
  if (is(Token::left_parenthesis)) TRY_VOID(parse_signature(call.caller));
  TRY(call.call, parse_expression());
  if (!std::holds_alternative<Call>(call.call->node)) return fail_at(call.caller.line, "expected call");
  TRY(call.caller.body, parse_function_body("endcall"));
  return statement(std::move(call), 0);
}

Result<StatementPtr> Parser::parse_generation() {
  Generation generation;
  generation.body.line = next().line;
  TRY(generation.body.body, parse_function_body("endgeneration"));
  return statement(std::move(generation), 0);
}

Result<StatementPtr> Parser::parse_filter_statement() {
  next();
  FilterStatement filter;
  TRY(filter.filter, parse_filter(nullptr));
  while (is(Token::pipe)) {
    TRY(filter.filter, parse_filter(std::move(filter.filter)));
  }
  TRY(filter.body, parse_body_and_end("endfilter"));
  return statement(std::move(filter), 0);
}

Result<StatementPtr> Parser::parse_print() {
  next();
  Output output;
  while (!is(Token::tag_end)) {
    if (!output.pieces.empty()) TRY_VOID(expect(Token::comma));
    TRY(ExpressionPtr expression, parse_expression());
    output.pieces.push_back({{}, std::move(expression)});
  }
  return statement(std::move(output), 0);
}

Result<StatementPtr> Parser::parse_loop_control() {
  std::string tag = current().text;
  if (loops_ == 0) return fail(fmt::format("'{}' outside a loop", tag));
  next();
  return tag == "break" ? statement(Break{}, 0) : statement(Continue{}, 0);
}

Result<Target> Parser::parse_target(bool with_namespace) {
  if (with_namespace && look().token == Token::dot) {
    Target target;
    target.kind = Target::Kind::attribute;
    target.line = current().line;
    TRY(target.name, expect_name());
    next();
    TRY(target.attribute, expect_name());
    return target;
  }
  TRY(ExpressionPtr expression, parse_tuple(TupleItems::primaries));
  return to_target(*expression);
}

Result<Target> Parser::to_target(Expression& expression) const {
  Target target;
  target.line = expression.line;
  if (auto* name = std::get_if<Name>(&expression.node)) {
    target.name = std::move(name->name);
    return target;
  }
  auto* sequence = std::get_if<SequenceLiteral>(&expression.node);
  if (sequence == nullptr || !sequence->is_tuple) {
    return fail_at(expression.line, "can't assign to this: only names and tuples of names can be assigned to");
  }
  target.kind = Target::Kind::tuple;
  for (ExpressionPtr& item : sequence->items) {
    TRY(Target inner, to_target(*item));
    target.items.push_back(std::move(inner));
  }
  return target;
}

}  // namespace millrace::jinja

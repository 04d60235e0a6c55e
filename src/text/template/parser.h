// Tokens to tree, after Jinja's own grammar (3.1). Nesting is capped, so neither the parser nor whoever walks the tree
// can run out of stack; the cap is above what Jinja's own compiler accepts.
#pragma once

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace millrace::jinja {

struct ParseLimits {
  size_t source_bytes = size_t{1} << 20;
  uint32_t tags = 100;        // within tags
  uint32_t nesting = 200;     // of parentheses, prefix operators and tags
  uint32_t tree_depth = 400;  // of an expression, chains of operators included
  size_t names = 1000;        // of parameters of a macro, or of keyword arguments of a call
};

Result<Program> parse(std::string_view source, const ParseLimits& limits);

// What both halves of the parser (parser.cpp: statements, parse_expression.cpp: expressions) share.
class Parser {
 public:
  Parser(std::vector<Lexeme> lexemes, const ParseLimits& limits) : lexemes_(std::move(lexemes)), limits_(limits) {}
  Result<Program> run();

 private:
  // Counts nesting while it lives.
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Nested() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  const Lexeme& current() const { return lexemes_[position_]; }
  const Lexeme& look() const { return lexemes_[std::min(position_ + 1, lexemes_.size() - 1)]; }
  const Lexeme& next() { return lexemes_[position_ + 1 < lexemes_.size() ? position_++ : position_]; }
  bool is(Token token) const { return current().token == token; }
  bool is_name(std::string_view name) const { return is(Token::name) && current().text == name; }
  bool skip(Token token) { return is(token) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }
  Result<void> expect(Token token);
  Result<std::string> expect_name();
  Result<void> expect_name(std::string_view name);
  Error fail(std::string_view message) const { return fail_at(current().line, message); }
  static Error fail_at(uint32_t line, std::string_view message);
  Result<void> check_nesting() const;
  Error unknown_tag(std::string_view name, uint32_t line) const;
  Error early_end() const;

  // Statements
  using EndTags = std::vector<std::string_view>;
  Result<Body> parse_body(const EndTags& ends);  // from behind the opening tag's expression; stops at an end tag's name
  Result<Body> parse_body_and_end(std::string_view end);  // and goes past it
  Result<Body> parse_until(const EndTags* ends);
  Result<StatementPtr> parse_statement();
  Result<StatementPtr> dispatch_statement(const std::string& tag);
  Result<StatementPtr> parse_set();
  Result<StatementPtr> parse_for();
  Result<StatementPtr> parse_if();
  Result<StatementPtr> parse_with();
  Result<StatementPtr> parse_macro();
  Result<StatementPtr> parse_call_statement();
  Result<StatementPtr> parse_generation();
  Result<StatementPtr> parse_filter_statement();
  Result<StatementPtr> parse_print();
  Result<StatementPtr> parse_loop_control();
  Result<Body> parse_function_body(std::string_view end);
  Result<void> parse_signature(MacroNode& macro);
  Result<Target> parse_target(bool with_namespace);
  Result<Target> to_target(Expression& expression) const;

  // Expressions
  Result<ExpressionPtr> parse_expression(bool with_conditional = true);
  Result<ExpressionPtr> parse_conditional();
  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_compare();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concatenation();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary(bool with_filter);
  Result<ExpressionPtr> parse_primary();
  enum class TupleItems { primaries, expressions, unconditional };
  Result<ExpressionPtr> parse_tuple(TupleItems items, bool in_parentheses = false);
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr node);
  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr node);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr node);
  Result<ExpressionPtr> parse_slice(ExpressionPtr object, ExpressionPtr start, uint32_t line);
  Result<ExpressionPtr> parse_call(ExpressionPtr callee);
  Result<CallArguments> parse_call_arguments();
  Result<void> parse_call_argument(CallArguments& arguments, uint32_t line);
  Result<ExpressionPtr> parse_filter(ExpressionPtr input);
  Result<ExpressionPtr> parse_test(ExpressionPtr input);
  Result<std::string> parse_dotted_name();

  // Wraps a node, working out how deep its tree is.
  template <class Node>
  Result<ExpressionPtr> make(Node node, uint32_t line);
  Result<ExpressionPtr> make_constant(Constant constant, uint32_t line);

  std::vector<Lexeme> lexemes_;
  ParseLimits limits_;
  size_t position_ = 0;
  uint32_t nesting_ = 0;
  uint32_t constants_ = 0;
  uint32_t loops_ = 0;                  // open in the current function
  std::vector<std::string> open_tags_;  // names, for messages
  std::vector<EndTags> awaited_;
};

}  // namespace millrace::jinja

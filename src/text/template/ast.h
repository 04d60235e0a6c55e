// The tree of a parsed template. The parser builds it, resolve.h gives every variable its place, and from then on it
// never changes, so any number of renders may read it at once. Its depth is capped by the parser, so walking it may
// recurse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::jinja {

struct FilterEntry;
struct TestEntry;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

// Where a variable lies: so many functions outwards, in that slot.
struct Place {
  uint32_t hops = 0;
  uint32_t slot = 0;
};

// ---- Expressions

struct Constant {
  std::variant<std::monostate, bool, int64_t, double, std::string> value;
  uint32_t id = 0;  // numbers the constants of the template
};

struct Name {
  std::string name;
  Place place;
};

struct SequenceLiteral {
  bool is_tuple = false;
  std::vector<ExpressionPtr> items;
};

struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Attribute {
  ExpressionPtr object;
  std::string name;
};

struct Item {
  ExpressionPtr object;
  ExpressionPtr key;
};

struct Slice {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  // each may be absent
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;       // *arguments
  ExpressionPtr star_star;  // **arguments
};

struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};

struct Filter {
  ExpressionPtr input;  // absent where the filter applies to captured output
  std::string name;
  const FilterEntry* entry = nullptr;  // absent: an error once it is called
  CallArguments arguments;
};

struct Test {
  ExpressionPtr input;
  std::string name;
  const TestEntry* entry = nullptr;
  CallArguments arguments;
};

enum class UnaryOperator : uint8_t { negative, positive, negation };

struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};

enum class BinaryOperator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };

struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};

struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};

enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};

struct Concatenation {
  std::vector<ExpressionPtr> parts;
};

struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be absent
};

struct Expression {
  std::variant<Constant, Name, SequenceLiteral, DictLiteral, Attribute, Item, Slice, Call, Filter, Test, Unary, Binary,
               Logical, Compare, Concatenation, Conditional>
      node;
  uint32_t line = 0;
  uint32_t depth = 1;  // of the tree below, itself included
};

// ---- What assignments write to

struct Target {
  enum class Kind : uint8_t { name, attribute, tuple };
  Kind kind = Kind::name;
  std::string name;
  std::string attribute;  // of the namespace `name`
  std::vector<Target> items;
  Place place;
  uint32_t line = 0;
};

// ---- Scopes

// What happens to a slot when its scope is entered.
struct Load {
  enum class Action : uint8_t { parameter, global, alias, missing };
  uint32_t slot = 0;
  Action action = Action::missing;
  uint32_t global = 0;  // number of the global name
  Place source;         // of an alias
};

struct Scope {
  std::vector<Load> loads;  // in the running function's slots
};

// ---- Statements

struct Output {
  struct Piece {
    std::string text;  // if there is no expression
    ExpressionPtr expression;
  };
  std::vector<Piece> pieces;
};

struct If {
  struct Branch {
    ExpressionPtr condition;
    Body body;
    uint32_t line = 0;
  };
  std::vector<Branch> branches;
  Body otherwise;
};

struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // may be absent
  Body body;
  Body otherwise;
  bool recursive = false;

  bool uses_loop = false;
  Place loop_place;
  Scope body_scope, otherwise_scope;
  // The condition runs as a function of its own.
  Target condition_target;
  Scope condition_scope;
  uint32_t condition_slots = 0;
  uint32_t function_slots = 0;  // of a recursive loop
};

struct Set {
  Target target;
  ExpressionPtr value;
};

struct SetCapture {
  Target target;
  ExpressionPtr filter;  // may be absent
  Body body;
  Scope scope;
};

struct MacroNode {
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;  // its default; may be absent
    Place place;
    uint32_t line = 0;
  };
  std::string name;  // empty: the body of a call statement
  std::vector<Parameter> parameters;
  Body body;
  uint32_t line = 0;

  Place place;  // of the variable that holds the macro
  Scope scope;
  uint32_t slots = 0;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  bool names_caller = false;  // caller is one of the parameters
  Place caller_place, kwargs_place, varargs_place;
};

struct MacroDefinition {
  MacroNode macro;
};

struct CallStatement {
  MacroNode caller;
  ExpressionPtr call;
};

// {% generation %}: marks what the assistant wrote; its body runs like a macro called at once.
struct Generation {
  MacroNode body;
};

struct FilterStatement {
  ExpressionPtr filter;
  Body body;
  Scope scope;
};

struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
  Scope scope;
};

struct Break {};
struct Continue {};

struct Statement {
  std::variant<Output, If, For, Set, SetCapture, MacroDefinition, CallStatement, Generation, FilterStatement, With,
               Break, Continue>
      node;
  uint32_t line = 0;
};

struct Program {
  Body body;
  Scope scope;
  uint32_t slots = 0;
  uint32_t constants = 0;
  std::vector<std::string> globals;  // names the template reads and does not set
};

}  // namespace millrace::jinja

// Shapes: what a set of schemas that hold together (and others that must not hold) allows, as a list of alternatives.
// Each alternative is a Shape: no choice is left in it, its constraints are all met or not at once. A value is valid
// exactly if it fits one of them. Everything in-place (allOf, anyOf, oneOf, not, if, $ref, dependentSchemas) is gone
// here; what is below a value (properties, items) is again a set of schemas, a node, expanded when it is reached.
//
// A literal is a schema's number plus one, negative if it must not hold. Nodes are interned; expansions are kept.
// Errors (something that cannot be decided, too much work) stay: error() is to be looked at after every use.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expr.h"
#include "grammar/numbers.h"
#include "grammar/schema.h"

namespace millrace::grammar {

using Literal = int32_t;
using NodeId = int32_t;

struct Shape {
  uint8_t types = kAnyType;
  std::optional<std::vector<Json>> values;  // exactly these; nothing else below matters then

  NumberRange numbers;
  int least_length = 0, most_length = Exprs::kMany;
  std::vector<ExprId> texts;  // all of them
  bool truth[2] = {true, true};

  struct Keys {  // one schema's say about properties; a literal of 0 says nothing
    std::vector<std::pair<std::string, Literal>> named;
    std::vector<std::pair<ExprId, Literal>> patterns;
    Literal other = 0;
  };
  std::vector<Keys> keys;
  struct Some {  // a property must exist whose name is among `names` and whose value satisfies `value`
    ExprId names = Exprs::kNothing;
    Literal value = 0;
  };
  std::vector<Some> some;
  std::vector<ExprId> names;  // texts every name is among
  std::vector<std::string> required;
  std::vector<std::pair<std::string, std::vector<std::string>>> needs;
  int least_properties = 0, most_properties = Exprs::kMany;

  struct Items {
    std::vector<Literal> prefix;
    Literal rest = 0;
  };
  std::vector<Items> items;
  struct Contains {
    Literal of = 0;
    int from = 0, least = 0, most = Exprs::kMany;
  };
  std::vector<Contains> contains;
  int least_items = 0, most_items = Exprs::kMany;
  bool unique = false;
};

class Shapes {
 public:
  Shapes(Schemas& schemas, Exprs& exprs);

  NodeId node(std::vector<Literal> literals);
  NodeId root() { return node({schemas_.root() + 1}); }
  const std::vector<Literal>& literals(NodeId node) const { return *nodes_[static_cast<size_t>(node)]; }
  const std::vector<Shape>& shapes(NodeId node);
  // Whether any value fits: the least solution, so a value that needs itself inside itself does not exist.
  bool satisfiable(NodeId node);
  bool satisfiable(const Shape& shape);
  // Strings that fit, ended by kTextEnd.
  ExprId texts_of(NodeId node);
  ExprId texts_of(const Shape& shape);
  ExprId numbers_of(const Shape& shape);
  Literal never();  // a schema that nothing satisfies
  SchemaId constant(const Json& value) { return schemas_.constant(value); }
  // What holds for a property of that name, or an item at that place.
  NodeId value_of(const Shape& shape, const std::string& name, std::vector<Literal> more = {});
  NodeId item_of(const Shape& shape, int index, std::vector<Literal> more = {});

  Exprs& exprs() { return exprs_; }
  const std::optional<Error>& error() const { return error_; }
  void fail(Error why) {
    if (!error_) error_ = std::move(why);
  }

  // Names that are no named property, split by which patterns they match.
  struct OpenKeys {
    ExprId names = Exprs::kNothing;
    std::vector<Literal> literals;
  };
  std::vector<OpenKeys> open_keys(const Shape& shape);
  std::vector<std::string> named_keys(const Shape& shape) const;

 private:
  enum class Keyword : uint8_t {
    whole,
    types,
    values,
    minimum,
    maximum,
    above,
    below,
    multiple,
    shorter,
    longer,
    pattern,
    property,
    pattern_property,
    additional,
    names,
    required,
    fewer,
    more,
    needs,
    item,
    items,
    contains_less,
    contains_more,
    items_fewer,
    items_more
  };
  struct Todo {
    Literal literal = 0;
    Keyword part = Keyword::whole;  // a whole schema, or the negation of one keyword
    int index = 0, second = 0;
    int chain = -1;
  };
  using Choice = std::vector<std::vector<Todo>>;
  struct Working {
    Shape shape;
    std::vector<Todo> todo;
    std::vector<Choice> choices;
    std::vector<Literal> seen;
    bool dead = false;
  };
  void expand(NodeId node, std::vector<Shape>& out);
  void take(Working& work, const Todo& todo);
  void hold(Working& work, const Schema& schema, int chain);
  void hold_keys(Shape& shape, const Schema& schema);
  void hold_items(Shape& shape, const Schema& schema);
  void hold_branches(Working& work, const Schema& schema, int chain);
  void one_of(Working& work, const Schema& schema, int chain);
  void deny(Working& work, SchemaId id, const Schema& schema, int chain);
  void deny_scalars(const Schema& schema, Literal literal, Choice& choice);
  void deny_keys(const Schema& schema, Literal literal, Choice& choice);
  void deny_items(const Schema& schema, Literal literal, Choice& choice);
  void deny_branches(const Schema& schema, Choice& choice, int chain);
  void deny_part(Shape& shape, const Todo& todo);
  void deny_number(Shape& shape, const Schema& schema, const Todo& todo);
  void deny_text(Shape& shape, const Schema& schema, const Todo& todo);
  void deny_key(Shape& shape, const Schema& schema, const Todo& todo);
  void deny_item(Shape& shape, const Schema& schema, const Todo& todo);
  void deny_values(Shape& shape, const Schema& schema);
  void filter_values(NodeId node, Shape& shape);
  bool finish(NodeId node, Shape& shape);
  bool satisfiable_object(const Shape& shape);
  bool satisfiable_array(const Shape& shape);
  ExprId additional_names(const Schema& schema);
  bool spend(uint64_t units = 1);

  Schemas& schemas_;
  Exprs& exprs_;
  std::map<std::vector<Literal>, NodeId> interned_;
  std::vector<const std::vector<Literal>*> nodes_;
  std::vector<std::unique_ptr<std::vector<Shape>>> shapes_;
  std::vector<int8_t> satisfiable_;  // -1 unknown, 2 being looked at
  std::vector<std::pair<Literal, int>> chain_;
  bool provisional_ = false;
  int depth_ = 0;
  uint64_t work_ = 0;
  std::optional<Error> error_;
};

}  // namespace millrace::grammar

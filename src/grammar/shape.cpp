#include "grammar/shape.h"

#include <algorithm>

#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr uint64_t kMostWork = 4'000'000;
constexpr size_t kMostNodes = 100'000;
constexpr size_t kMostShapes = 2048;  // alternatives of one node
constexpr int kMostDepth = 200;
constexpr size_t kMostPatterns = 8;

void raise(int& bound, int to) { bound = std::max(bound, to); }
void lower(int& bound, int to) {
  if (to != Exprs::kMany && (bound == Exprs::kMany || to < bound)) bound = to;
}

}  // namespace

Shapes::Shapes(Schemas& schemas, Exprs& exprs) : schemas_(schemas), exprs_(exprs) {}

bool Shapes::spend(uint64_t units) {
  work_ += units;
  if (work_ > kMostWork)
    fail(millrace::error(Code::invalid, "the schema takes more than {} steps to expand", kMostWork));
  return !error_;
}

NodeId Shapes::node(std::vector<Literal> literals) {
  std::erase(literals, 0);
  std::sort(literals.begin(), literals.end());
  literals.erase(std::unique(literals.begin(), literals.end()), literals.end());
  auto [found, fresh] = interned_.try_emplace(std::move(literals), static_cast<NodeId>(nodes_.size()));
  if (!fresh) return found->second;
  nodes_.push_back(&found->first);
  shapes_.emplace_back();
  satisfiable_.push_back(-1);
  if (nodes_.size() > kMostNodes) {
    fail(millrace::error(Code::invalid, "the schema has more than {} nodes once its parts are put together",
                         kMostNodes));
  }
  return found->second;
}

Literal Shapes::never() { return schemas_.nothing() + 1; }

const std::vector<Shape>& Shapes::shapes(NodeId node) {
  auto& kept = shapes_[static_cast<size_t>(node)];
  if (kept) return *kept;
  auto made = std::make_unique<std::vector<Shape>>();
  expand(node, *made);
  shapes_[static_cast<size_t>(node)] = std::move(made);
  return *shapes_[static_cast<size_t>(node)];
}

void Shapes::expand(NodeId node, std::vector<Shape>& out) {
  std::vector<Working> stack(1);
  for (Literal literal : literals(node)) stack[0].todo.push_back({literal});
  while (!stack.empty() && !error_) {
    Working work = std::move(stack.back());
    stack.pop_back();
    while (!work.todo.empty() && !work.dead && !work.shape.values) {
      const Todo todo = work.todo.back();
      work.todo.pop_back();
      take(work, todo);
      if (work.shape.types == 0) work.dead = true;
      if (!spend()) return;
    }
    if (work.dead) continue;
    if (work.shape.values || work.choices.empty()) {
      if (finish(node, work.shape)) out.push_back(std::move(work.shape));
      if (out.size() + stack.size() > kMostShapes) {
        fail(millrace::error(Code::unsupported, "{}: more than {} alternatives once its parts are put together",
                             schemas_.at(std::abs(literals(node)[0]) - 1).pointer, kMostShapes));
      }
      continue;
    }
    const auto least = std::min_element(work.choices.begin(), work.choices.end(),
                                        [](const Choice& a, const Choice& b) { return a.size() < b.size(); });
    const Choice choice = std::move(*least);
    work.choices.erase(least);
    for (size_t i = choice.size(); i-- > 0;) {
      stack.push_back(work);
      stack.back().todo = choice[i];
      if (!spend(4)) return;
    }
  }
}

// A shape that only values of some types are left in, checked for what it can hold.
bool Shapes::finish(NodeId node, Shape& shape) {
  if (shape.values) {
    filter_values(node, shape);
    return !shape.values->empty();
  }
  if ((shape.types & kString) != 0 && !exprs_.live(texts_of(shape))) shape.types &= static_cast<uint8_t>(~kString);
  if ((shape.types & kNumber) != 0 && !exprs_.live(numbers_of(shape))) shape.types &= static_cast<uint8_t>(~kNumber);
  const auto order = [](const Shape::Some& a, const Shape::Some& b) {
    return std::pair(a.names, a.value) < std::pair(b.names, b.value);
  };
  std::sort(shape.some.begin(), shape.some.end(), order);
  const auto same = [](const Shape::Some& a, const Shape::Some& b) { return a.names == b.names && a.value == b.value; };
  shape.some.erase(std::unique(shape.some.begin(), shape.some.end(), same), shape.some.end());
  if (!shape.truth[0] && !shape.truth[1]) shape.types &= static_cast<uint8_t>(~kBool);
  return shape.types != 0;
}

void Shapes::filter_values(NodeId node, Shape& shape) {
  spend(shape.values->size() * literals(node).size());
  std::erase_if(*shape.values, [&](const Json& value) {
    return std::any_of(literals(node).begin(), literals(node).end(),
                       [&](Literal literal) { return schemas_.valid(std::abs(literal) - 1, value) != (literal > 0); });
  });
}

void Shapes::take(Working& work, const Todo& todo) {
  if (todo.part != Keyword::whole) return deny_part(work.shape, todo);
  for (int at = todo.chain; at >= 0; at = chain_[static_cast<size_t>(at)].second) {
    if (chain_[static_cast<size_t>(at)].first == todo.literal) {
      work.dead = true;  // it would have to hold before it can hold
      return;
    }
  }
  if (std::find(work.seen.begin(), work.seen.end(), todo.literal) != work.seen.end()) return;
  work.seen.push_back(todo.literal);
  chain_.push_back({todo.literal, todo.chain});
  const int chain = static_cast<int>(chain_.size()) - 1;
  const SchemaId id = std::abs(todo.literal) - 1;
  const Schema& schema = schemas_.at(id);
  if (todo.literal > 0) {
    hold(work, schema, chain);
  } else {
    deny(work, id, schema, chain);
  }
}

void Shapes::hold(Working& work, const Schema& schema, int chain) {
  Shape& shape = work.shape;
  if (schema.never) {
    work.dead = true;
    return;
  }
  shape.types &= schema.types;
  if (schema.values) {
    shape.values = schema.values;
    return;
  }
  if (schema.minimum) shape.numbers.at_least(*schema.minimum, false);
  if (schema.maximum) shape.numbers.at_most(*schema.maximum, false);
  if (schema.above) shape.numbers.at_least(*schema.above, true);
  if (schema.below) shape.numbers.at_most(*schema.below, true);
  if (schema.multiple_of) shape.numbers.steps.push_back(*schema.multiple_of);
  raise(shape.least_length, schema.least_length);
  lower(shape.most_length, schema.most_length);
  for (const auto& [name, expr] : schema.patterns) shape.texts.push_back(expr);
  hold_keys(shape, schema);
  hold_items(shape, schema);
  hold_branches(work, schema, chain);
}

void Shapes::hold_keys(Shape& shape, const Schema& schema) {
  if (!schema.properties.empty() || !schema.pattern_properties.empty() || schema.additional >= 0) {
    Shape::Keys keys;
    for (const auto& [name, id] : schema.properties) keys.named.push_back({name, id + 1});
    for (const auto& [expr, id] : schema.pattern_properties) keys.patterns.push_back({expr, id + 1});
    keys.other = schema.additional + 1;
    shape.keys.push_back(std::move(keys));
  }
  if (schema.names >= 0) shape.names.push_back(texts_of(node({schema.names + 1})));
  shape.required.insert(shape.required.end(), schema.required.begin(), schema.required.end());
  shape.needs.insert(shape.needs.end(), schema.needs.begin(), schema.needs.end());
  raise(shape.least_properties, schema.least_properties);
  lower(shape.most_properties, schema.most_properties);
}

void Shapes::hold_items(Shape& shape, const Schema& schema) {
  if (!schema.prefix.empty() || schema.items >= 0) {
    Shape::Items items;
    for (SchemaId id : schema.prefix) items.prefix.push_back(id + 1);
    items.rest = schema.items + 1;
    shape.items.push_back(std::move(items));
  }
  if (schema.contains >= 0) {
    shape.contains.push_back({schema.contains + 1, 0, schema.least_contains, schema.most_contains});
  }
  raise(shape.least_items, schema.least_items);
  lower(shape.most_items, schema.most_items);
  shape.unique |= schema.unique;
}

void Shapes::hold_branches(Working& work, const Schema& schema, int chain) {
  const auto todo = [&](SchemaId id, bool holds) {
    return Todo{holds ? id + 1 : -(id + 1), Keyword::whole, 0, 0, chain};
  };
  if (schema.ref >= 0) work.todo.push_back(todo(schema.ref, true));
  for (SchemaId id : schema.all_of) work.todo.push_back(todo(id, true));
  if (schema.not_of >= 0) work.todo.push_back(todo(schema.not_of, false));
  if (!schema.any_of.empty()) {
    Choice choice;
    for (SchemaId id : schema.any_of) choice.push_back({todo(id, true)});
    work.choices.push_back(std::move(choice));
  }
  if (!schema.one_of.empty()) one_of(work, schema, chain);
  if (schema.if_of >= 0 && (schema.then_of >= 0 || schema.else_of >= 0)) {
    Choice choice{{todo(schema.if_of, true)}, {todo(schema.if_of, false)}};
    if (schema.then_of >= 0) choice[0].push_back(todo(schema.then_of, true));
    if (schema.else_of >= 0) choice[1].push_back(todo(schema.else_of, true));
    work.choices.push_back(std::move(choice));
  }
  for (size_t i = 0; i < schema.needs_schema.size() && (work.shape.types & kObject) != 0; ++i) {
    const auto& [name, id] = schema.needs_schema[i];
    work.choices.push_back({{todo(id, true)}, {todo(schemas_.absent(name), true)}});
  }
}

// Exactly one: each with the denial of those others that can hold beside it.
void Shapes::one_of(Working& work, const Schema& schema, int chain) {
  Choice choice;
  for (size_t i = 0; i < schema.one_of.size(); ++i) {
    std::vector<Todo> branch{{schema.one_of[i] + 1, Keyword::whole, 0, 0, chain}};
    for (size_t j = 0; j < schema.one_of.size(); ++j) {
      if (i == j || error_) continue;
      if (schema.one_of[i] == schema.one_of[j]) {
        branch.push_back({never(), Keyword::whole, 0, 0, chain});
        continue;
      }
      const NodeId pair = node({schema.one_of[i] + 1, schema.one_of[j] + 1});
      // Where that cannot be told (it is being looked at, further out), denying is right in any case.
      if (depth_ < kMostDepth) satisfiable(pair);
      const bool apart = satisfiable_[static_cast<size_t>(pair)] == 0;
      if (!apart) branch.push_back({-(schema.one_of[j] + 1), Keyword::whole, 0, 0, chain});
    }
    choice.push_back(std::move(branch));
  }
  work.choices.push_back(std::move(choice));
}

ExprId Shapes::texts_of(const Shape& shape) {
  std::vector<ExprId> parts = shape.texts;
  if (parts.empty() || shape.least_length > 0 || shape.most_length != Exprs::kMany) {
    if (shape.most_length != Exprs::kMany && shape.most_length < shape.least_length) return Exprs::kNothing;
    parts.push_back(text_of_length(exprs_, shape.least_length, shape.most_length));
  }
  return exprs_.both(std::move(parts));
}

ExprId Shapes::numbers_of(const Shape& shape) {
  NumberRange range = shape.numbers;
  if ((shape.types & kNumber) == kInteger) range.whole = true;
  if ((shape.types & kNumber) == kFraction) range.fractional = true;
  auto expr = number_expr(exprs_, range);
  if (!expr.ok()) fail(expr.error());
  return expr.ok() ? *expr : Exprs::kNothing;
}

ExprId Shapes::texts_of(NodeId node) {
  std::vector<ExprId> parts;
  for (const Shape& shape : shapes(node)) {
    if (shape.values) {
      std::vector<std::string> texts;
      for (const Json& value : *shape.values) {
        if (value.is_string()) texts.push_back(std::string(value.get_string()) + static_cast<char>(kTextEnd));
      }
      parts.push_back(exprs_.literals(std::move(texts)));
    } else if ((shape.types & kString) != 0) {
      parts.push_back(texts_of(shape));
    }
  }
  return exprs_.alt(std::move(parts));
}

NodeId Shapes::value_of(const Shape& shape, const std::string& name, std::vector<Literal> more) {
  const std::string ended = name + static_cast<char>(kTextEnd);
  for (ExprId names : shape.names) {
    if (!exprs_.accepts(names, ended)) more.push_back(never());
  }
  for (const Shape::Keys& keys : shape.keys) {
    bool matched = false;
    for (const auto& [key, literal] : keys.named) {
      if (key != name) continue;
      more.push_back(literal);
      matched = true;
    }
    for (const auto& [expr, literal] : keys.patterns) {
      if (!exprs_.accepts(expr, ended)) continue;
      more.push_back(literal);
      matched = true;
    }
    if (!matched) more.push_back(keys.other);
  }
  return node(std::move(more));
}

NodeId Shapes::item_of(const Shape& shape, int index, std::vector<Literal> more) {
  for (const Shape::Items& items : shape.items) {
    const size_t place = static_cast<size_t>(index);
    more.push_back(place < items.prefix.size() ? items.prefix[place] : items.rest);
  }
  return node(std::move(more));
}

std::vector<std::string> Shapes::named_keys(const Shape& shape) const {
  std::vector<std::string> names;
  std::map<std::string, bool, std::less<>> seen;
  const auto add = [&](const std::string& name) {
    if (seen.try_emplace(name, true).second) names.push_back(name);
  };
  for (const Shape::Keys& keys : shape.keys) {
    for (const auto& [name, literal] : keys.named) add(name);
  }
  for (const std::string& name : shape.required) add(name);
  for (const auto& [name, others] : shape.needs) {
    add(name);
    for (const std::string& other : others) add(other);
  }
  return names;
}

std::vector<Shapes::OpenKeys> Shapes::open_keys(const Shape& shape) {
  std::vector<ExprId> patterns;
  for (const Shape::Keys& keys : shape.keys) {
    for (const auto& [expr, literal] : keys.patterns) patterns.push_back(expr);
  }
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  if (patterns.size() > kMostPatterns) {
    fail(millrace::error(Code::unsupported, "more than {} patternProperties hold for one object", kMostPatterns));
    return {};
  }
  std::vector<std::string> named = named_keys(shape);
  for (std::string& name : named) name.push_back(static_cast<char>(kTextEnd));
  std::vector<OpenKeys> found;
  for (unsigned bits = 0; bits < (1u << patterns.size()) && !error_; ++bits) {
    OpenKeys open;
    for (const Shape::Keys& keys : shape.keys) {
      bool matched = false;
      for (const auto& [expr, literal] : keys.patterns) {
        const size_t index =
            static_cast<size_t>(std::lower_bound(patterns.begin(), patterns.end(), expr) - patterns.begin());
        if ((bits >> index & 1) == 0) continue;
        open.literals.push_back(literal);
        matched = true;
      }
      if (!matched) open.literals.push_back(keys.other);
    }
    if (!satisfiable(node(open.literals))) continue;
    std::vector<ExprId> parts = shape.names;
    if (parts.empty()) parts.push_back(any_text(exprs_));
    for (size_t i = 0; i < patterns.size(); ++i) {
      parts.push_back((bits >> i & 1) != 0 ? patterns[i] : exprs_.negate(patterns[i]));
    }
    if (!named.empty()) parts.push_back(exprs_.negate(exprs_.literals(named)));
    open.names = exprs_.both(std::move(parts));
    if (exprs_.live(open.names)) found.push_back(std::move(open));
  }
  return found;
}

bool Shapes::satisfiable(NodeId node) {
  int8_t& known = satisfiable_[static_cast<size_t>(node)];
  if (known == 2) {
    provisional_ = true;
    return false;
  }
  if (known >= 0) return known == 1;
  if (depth_ > kMostDepth) {
    fail(millrace::error(Code::unsupported, "required values nest deeper than {}", kMostDepth));
    return false;
  }
  known = 2;
  const bool outer = provisional_;
  provisional_ = false;
  ++depth_;
  bool good = false;
  const std::vector<Shape>& all = shapes(node);
  for (size_t i = 0; i < all.size() && !good && spend(); ++i) good = satisfiable(all[i]);
  --depth_;
  // "No" is certain only if it rested on nothing that is still being looked at; the outermost question always is.
  const bool certain = good || !provisional_ || depth_ == 0;
  satisfiable_[static_cast<size_t>(node)] = certain ? static_cast<int8_t>(good) : int8_t{-1};
  provisional_ = outer || (!certain && !good);
  return good;
}

bool Shapes::satisfiable(const Shape& shape) {
  if (shape.values) return !shape.values->empty();
  if ((shape.types & (kNull | kBool | kNumber | kString)) != 0) return true;
  if ((shape.types & kObject) != 0 && satisfiable_object(shape)) return true;
  return (shape.types & kArray) != 0 && satisfiable_array(shape);
}

bool Shapes::satisfiable_object(const Shape& shape) {
  if (shape.most_properties != Exprs::kMany && shape.most_properties < shape.least_properties) return false;
  std::vector<std::string> must = shape.required;
  std::sort(must.begin(), must.end());
  must.erase(std::unique(must.begin(), must.end()), must.end());
  for (size_t i = 0; i < must.size(); ++i) {  // grows by what they need
    for (const auto& [name, others] : shape.needs) {
      if (name != must[i]) continue;
      for (const std::string& other : others) {
        if (std::find(must.begin(), must.end(), other) == must.end()) must.push_back(other);
      }
    }
  }
  for (const std::string& name : must) {
    if (!satisfiable(value_of(shape, name))) return false;
  }
  if (shape.most_properties != Exprs::kMany && static_cast<int>(must.size()) > shape.most_properties) return false;
  if (shape.least_properties <= static_cast<int>(must.size()) && shape.some.empty()) return true;
  size_t possible = 0;
  for (const std::string& name : named_keys(shape)) possible += satisfiable(value_of(shape, name)) ? 1 : 0;
  const std::vector<OpenKeys> open = open_keys(shape);
  for (const OpenKeys& keys : open) {
    if (possible >= static_cast<size_t>(shape.least_properties)) break;
    const size_t wanted = static_cast<size_t>(shape.least_properties) - possible;
    if (exprs_.has_at_least(keys.names, wanted)) possible += wanted;
  }
  if (possible < static_cast<size_t>(shape.least_properties)) return false;
  for (const Shape::Some& some : shape.some) {
    bool found = false;
    for (const std::string& name : named_keys(shape)) {
      const bool among = exprs_.accepts(some.names, name + static_cast<char>(kTextEnd));
      found = found || (among && satisfiable(value_of(shape, name, {some.value})));
    }
    for (const OpenKeys& keys : open) {
      std::vector<Literal> literals = keys.literals;
      literals.push_back(some.value);
      found = found || (exprs_.live(exprs_.both({keys.names, some.names})) && satisfiable(node(literals)));
    }
    if (!found) return false;
  }
  return true;
}

bool Shapes::satisfiable_array(const Shape& shape) {
  int least = shape.least_items;
  size_t named = 0;
  for (const Shape::Items& items : shape.items) named = std::max(named, items.prefix.size());
  for (const Shape::Contains& contains : shape.contains) {
    if (contains.most != Exprs::kMany && contains.most < contains.least) return false;
    if (contains.least == 0) continue;
    raise(least, contains.least + contains.from);
    bool found = false;
    for (size_t i = static_cast<size_t>(contains.from); i <= named + static_cast<size_t>(contains.from) && !found;
         ++i) {
      found = satisfiable(item_of(shape, static_cast<int>(i), {contains.of}));
    }
    if (!found) return false;
  }
  if (shape.most_items != Exprs::kMany && shape.most_items < least) return false;
  for (int i = 0; i < least && i <= static_cast<int>(named); ++i) {
    if (!satisfiable(item_of(shape, i))) return false;
  }
  return true;
}

}  // namespace millrace::grammar

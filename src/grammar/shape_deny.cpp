// Denying a schema: one of its keywords must fail. Each keyword that can fail is an alternative, and each alternative
// is a constraint of the same kinds that holding makes, so that denials cost nothing further on.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/shape.h"

namespace millrace::grammar {

namespace {

void raise(int& bound, int to) { bound = std::max(bound, to); }
void lower(int& bound, int to) {
  if (bound == Exprs::kMany || to < bound) bound = to;
}

}  // namespace

void Shapes::deny(Working& work, SchemaId id, const Schema& schema, int chain) {
  if (schema.never) return;
  const Literal literal = id + 1;
  Choice choice;
  deny_scalars(schema, literal, choice);
  deny_keys(schema, literal, choice);
  deny_items(schema, literal, choice);
  deny_branches(schema, choice, chain);
  if (choice.empty()) {
    work.dead = true;
  } else {
    work.choices.push_back(std::move(choice));
  }
}

void Shapes::deny_scalars(const Schema& schema, Literal literal, Choice& choice) {
  const auto add = [&](Keyword part, int index = 0) { choice.push_back({{literal, part, index, 0, -1}}); };
  if (schema.types != kAnyType) add(Keyword::types);
  if (schema.values) add(Keyword::values);
  if (schema.minimum) add(Keyword::minimum);
  if (schema.maximum) add(Keyword::maximum);
  if (schema.above) add(Keyword::above);
  if (schema.below) add(Keyword::below);
  if (schema.multiple_of) add(Keyword::multiple);
  if (schema.least_length > 0) add(Keyword::shorter);
  if (schema.most_length != Exprs::kMany) add(Keyword::longer);
  for (size_t i = 0; i < schema.patterns.size(); ++i) add(Keyword::pattern, static_cast<int>(i));
}

void Shapes::deny_keys(const Schema& schema, Literal literal, Choice& choice) {
  const auto add = [&](Keyword part, size_t index = 0, size_t second = 0) {
    choice.push_back({{literal, part, static_cast<int>(index), static_cast<int>(second), -1}});
  };
  for (size_t i = 0; i < schema.properties.size(); ++i) add(Keyword::property, i);
  for (size_t i = 0; i < schema.pattern_properties.size(); ++i) add(Keyword::pattern_property, i);
  if (schema.additional >= 0) add(Keyword::additional);
  if (schema.names >= 0) add(Keyword::names);
  for (size_t i = 0; i < schema.required.size(); ++i) add(Keyword::required, i);
  if (schema.least_properties > 0) add(Keyword::fewer);
  if (schema.most_properties != Exprs::kMany) add(Keyword::more);
  for (size_t i = 0; i < schema.needs.size(); ++i) {
    for (size_t j = 0; j < schema.needs[i].second.size(); ++j) add(Keyword::needs, i, j);
  }
}

void Shapes::deny_items(const Schema& schema, Literal literal, Choice& choice) {
  const auto add = [&](Keyword part, size_t index = 0) {
    choice.push_back({{literal, part, static_cast<int>(index), 0, -1}});
  };
  for (size_t i = 0; i < schema.prefix.size(); ++i) add(Keyword::item, i);
  if (schema.items >= 0) add(Keyword::items);
  if (schema.contains >= 0 && schema.least_contains > 0) add(Keyword::contains_less);
  if (schema.contains >= 0 && schema.most_contains != Exprs::kMany) add(Keyword::contains_more);
  if (schema.least_items > 0) add(Keyword::items_fewer);
  if (schema.most_items != Exprs::kMany) add(Keyword::items_more);
  if (schema.unique) {
    fail(millrace::error(Code::unsupported, "{}/uniqueItems: must fail here, which is not supported", schema.pointer));
  }
}

void Shapes::deny_branches(const Schema& schema, Choice& choice, int chain) {
  const auto todo = [&](SchemaId id, bool holds) {
    return Todo{holds ? id + 1 : -(id + 1), Keyword::whole, 0, 0, chain};
  };
  if (schema.ref >= 0) choice.push_back({todo(schema.ref, false)});
  for (SchemaId id : schema.all_of) choice.push_back({todo(id, false)});
  if (!schema.any_of.empty()) {
    std::vector<Todo> none;
    for (SchemaId id : schema.any_of) none.push_back(todo(id, false));
    choice.push_back(std::move(none));
  }
  if (!schema.one_of.empty()) {
    std::vector<Todo> none;
    for (SchemaId id : schema.one_of) none.push_back(todo(id, false));
    choice.push_back(std::move(none));
    for (size_t i = 0; i < schema.one_of.size(); ++i) {
      for (size_t j = 0; j < i; ++j) choice.push_back({todo(schema.one_of[i], true), todo(schema.one_of[j], true)});
    }
  }
  if (schema.not_of >= 0) choice.push_back({todo(schema.not_of, true)});
  if (schema.if_of >= 0) {
    if (schema.then_of >= 0) choice.push_back({todo(schema.if_of, true), todo(schema.then_of, false)});
    if (schema.else_of >= 0) choice.push_back({todo(schema.if_of, false), todo(schema.else_of, false)});
  }
  for (const auto& [name, id] : schema.needs_schema) {
    choice.push_back({todo(schemas_.absent(name), false), todo(id, false)});
  }
}

void Shapes::deny_part(Shape& shape, const Todo& todo) {
  const Schema& schema = schemas_.at(todo.literal - 1);
  if (todo.part == Keyword::types) {
    shape.types &= static_cast<uint8_t>(~schema.types);
  } else if (todo.part == Keyword::values) {
    deny_values(shape, schema);
  } else if (todo.part <= Keyword::multiple) {
    shape.types &= kNumber;
    deny_number(shape, schema, todo);
  } else if (todo.part <= Keyword::pattern) {
    shape.types &= kString;
    deny_text(shape, schema, todo);
  } else if (todo.part <= Keyword::needs) {
    shape.types &= kObject;
    deny_key(shape, schema, todo);
  } else {
    shape.types &= kArray;
    deny_item(shape, schema, todo);
  }
}

void Shapes::deny_values(Shape& shape, const Schema& schema) {
  std::vector<std::string> texts;
  for (const Json& value : *schema.values) {
    if (value.is_null()) {
      shape.types &= static_cast<uint8_t>(~kNull);
    } else if (value.is_bool()) {
      shape.truth[value.get_bool() ? 1 : 0] = false;
    } else if (value.is_string()) {
      texts.push_back(std::string(value.get_string()) + static_cast<char>(kTextEnd));
    } else if (value.is_number()) {
      if (const auto decimal = to_decimal(value)) shape.numbers.without.push_back(*decimal);
    } else if ((shape.types & type_of(value)) != 0) {
      fail(millrace::error(Code::unsupported,
                           "{}: must not be one of values that are objects or arrays, which is not "
                           "supported",
                           schema.pointer));
    }
  }
  if (texts.empty()) return;
  shape.texts.push_back(exprs_.both({any_text(exprs_), exprs_.negate(exprs_.literals(std::move(texts)))}));
}

void Shapes::deny_number(Shape& shape, const Schema& schema, const Todo& todo) {
  switch (todo.part) {
    case Keyword::minimum:
      return shape.numbers.at_most(*schema.minimum, true);
    case Keyword::maximum:
      return shape.numbers.at_least(*schema.maximum, true);
    case Keyword::above:
      return shape.numbers.at_most(*schema.above, false);
    case Keyword::below:
      return shape.numbers.at_least(*schema.below, false);
    default:
      shape.numbers.no_steps.push_back(*schema.multiple_of);
  }
}

void Shapes::deny_text(Shape& shape, const Schema& schema, const Todo& todo) {
  if (todo.part == Keyword::shorter) {
    lower(shape.most_length, schema.least_length - 1);
  } else if (todo.part == Keyword::longer) {
    raise(shape.least_length, schema.most_length + 1);
  } else {
    const ExprId expr = schema.patterns[static_cast<size_t>(todo.index)].second;
    shape.texts.push_back(exprs_.both({any_text(exprs_), exprs_.negate(expr)}));
  }
}

ExprId Shapes::additional_names(const Schema& schema) {
  std::vector<ExprId> parts{any_text(exprs_)};
  std::vector<std::string> named;
  for (const auto& [name, id] : schema.properties) named.push_back(name + static_cast<char>(kTextEnd));
  if (!named.empty()) parts.push_back(exprs_.negate(exprs_.literals(std::move(named))));
  for (const auto& [expr, id] : schema.pattern_properties) parts.push_back(exprs_.negate(expr));
  return exprs_.both(std::move(parts));
}

void Shapes::deny_key(Shape& shape, const Schema& schema, const Todo& todo) {
  const size_t index = static_cast<size_t>(todo.index);
  const auto named = [&](const std::string& name, Literal literal) {
    Shape::Keys keys;
    keys.named.push_back({name, literal});
    shape.keys.push_back(std::move(keys));
  };
  switch (todo.part) {
    case Keyword::property:
      shape.required.push_back(schema.properties[index].first);
      return named(schema.properties[index].first, -(schema.properties[index].second + 1));
    case Keyword::pattern_property:
      return shape.some.push_back(
          {schema.pattern_properties[index].first, -(schema.pattern_properties[index].second + 1)});
    case Keyword::additional:
      return shape.some.push_back({additional_names(schema), -(schema.additional + 1)});
    case Keyword::names: {
      const ExprId good = texts_of(node({schema.names + 1}));
      return shape.some.push_back({exprs_.both({any_text(exprs_), exprs_.negate(good)}), 0});
    }
    case Keyword::required:
      return named(schema.required[index], never());
    case Keyword::fewer:
      return lower(shape.most_properties, schema.least_properties - 1);
    case Keyword::more:
      return raise(shape.least_properties, schema.most_properties + 1);
    default:
      break;
  }
  shape.required.push_back(schema.needs[index].first);
  named(schema.needs[index].second[static_cast<size_t>(todo.second)], never());
}

void Shapes::deny_item(Shape& shape, const Schema& schema, const Todo& todo) {
  switch (todo.part) {
    case Keyword::item: {
      Shape::Items items;
      items.prefix.assign(static_cast<size_t>(todo.index) + 1, 0);
      items.prefix.back() = -(schema.prefix[static_cast<size_t>(todo.index)] + 1);
      shape.items.push_back(std::move(items));
      return raise(shape.least_items, todo.index + 1);
    }
    case Keyword::items:
      return shape.contains.push_back({-(schema.items + 1), static_cast<int>(schema.prefix.size()), 1, Exprs::kMany});
    case Keyword::contains_less:
      return shape.contains.push_back({schema.contains + 1, 0, 0, schema.least_contains - 1});
    case Keyword::contains_more:
      return shape.contains.push_back({schema.contains + 1, 0, schema.most_contains + 1, Exprs::kMany});
    case Keyword::items_fewer:
      return lower(shape.most_items, schema.least_items - 1);
    default:
      return raise(shape.least_items, schema.most_items + 1);
  }
}

}  // namespace millrace::grammar

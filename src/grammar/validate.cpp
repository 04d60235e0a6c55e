// The plain reading of a schema: is this value valid? Kept as close to the words of the standard as it goes, since the
// values of an enum are chosen by it and the masks are tested against it.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/schema.h"

namespace millrace::grammar {

namespace {

constexpr int kMostCalls = 400;  // a cycle of references without a value between is no satisfied schema

bool in_bounds(size_t count, int least, int most) {
  return count >= static_cast<size_t>(least) && (most < 0 || count <= static_cast<size_t>(most));
}

}  // namespace

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() || b.is_number()) {
    if (!a.is_number() || !b.is_number()) return false;
    const auto x = to_decimal(a), y = to_decimal(b);
    return x && y ? *x == *y : a == b;
  }
  if (a.kind() != b.kind()) return false;
  if (const auto* array = a.if_array()) {
    const auto& other = b.get_array();
    return std::equal(array->begin(), array->end(), other.begin(), other.end(), same_value);
  }
  if (const auto* object = a.if_object()) {
    const auto& other = b.get_object();
    return object->size() == other.size() && std::all_of(object->begin(), object->end(), [&](const auto& entry) {
             const Json* found = other.if_contains(entry.key());
             return found != nullptr && same_value(entry.value(), *found);
           });
  }
  return a == b;
}

bool Schemas::valid(SchemaId id, const Json& value, int depth) const {
  if (depth > kMostCalls) return false;
  const Schema& s = at(id);
  if (s.never || (s.types & type_of(value)) == 0) return false;
  if (s.values &&
      std::none_of(s.values->begin(), s.values->end(), [&](const Json& v) { return same_value(v, value); })) {
    return false;
  }
  if (value.is_number() && !valid_number(s, value)) return false;
  if (value.is_string() && !valid_string(s, value)) return false;
  if (const auto* object = value.if_object(); object && !valid_object(s, *object, depth)) return false;
  if (const auto* array = value.if_array(); array && !valid_array(s, *array, depth)) return false;
  return valid_branches(s, value, depth);
}

bool Schemas::valid_number(const Schema& s, const Json& value) const {
  const auto number = to_decimal(value);
  if (!number) return !s.minimum && !s.maximum && !s.above && !s.below && !s.multiple_of;
  if (s.minimum && compare(*number, *s.minimum) < 0) return false;
  if (s.maximum && compare(*number, *s.maximum) > 0) return false;
  if (s.above && compare(*number, *s.above) <= 0) return false;
  if (s.below && compare(*number, *s.below) >= 0) return false;
  return !s.multiple_of || is_multiple(*number, *s.multiple_of);
}

bool Schemas::valid_string(const Schema& s, const Json& value) const {
  const std::string_view text = value.get_string();
  if (!in_bounds(count_characters(text), s.least_length, s.most_length)) return false;
  const std::string ended = std::string(text) + static_cast<char>(kTextEnd);
  return std::all_of(s.patterns.begin(), s.patterns.end(),
                     [&](const auto& pattern) { return exprs_.accepts(pattern.second, ended); });
}

bool Schemas::valid_object(const Schema& s, const JsonObject& value, int depth) const {
  if (!in_bounds(value.size(), s.least_properties, s.most_properties)) return false;
  for (const std::string& name : s.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, needed] : s.needs) {
    if (!value.contains(name)) continue;
    for (const std::string& other : needed) {
      if (!value.contains(other)) return false;
    }
  }
  for (const auto& entry : value) {
    bool named = false;
    const std::string key(entry.key());
    const std::string ended = key + static_cast<char>(kTextEnd);
    for (const auto& [name, schema] : s.properties) {
      if (name != key) continue;
      named = true;
      if (!valid(schema, entry.value(), depth + 1)) return false;
    }
    for (const auto& [pattern, schema] : s.pattern_properties) {
      if (!exprs_.accepts(pattern, ended)) continue;
      named = true;
      if (!valid(schema, entry.value(), depth + 1)) return false;
    }
    if (!named && s.additional >= 0 && !valid(s.additional, entry.value(), depth + 1)) return false;
    if (s.names >= 0 && !valid(s.names, Json(key), depth + 1)) return false;
  }
  return true;
}

bool Schemas::valid_array(const Schema& s, const JsonArray& value, int depth) const {
  if (!in_bounds(value.size(), s.least_items, s.most_items)) return false;
  size_t found = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const SchemaId item = i < s.prefix.size() ? s.prefix[i] : s.items;
    if (item >= 0 && !valid(item, value[i], depth + 1)) return false;
    if (s.contains >= 0 && valid(s.contains, value[i], depth + 1)) ++found;
    for (size_t j = 0; s.unique && j < i; ++j) {
      if (same_value(value[i], value[j])) return false;
    }
  }
  return s.contains < 0 || in_bounds(found, s.least_contains, s.most_contains);
}

bool Schemas::valid_branches(const Schema& s, const Json& value, int depth) const {
  const auto good = [&](SchemaId id) { return valid(id, value, depth + 1); };
  if (s.ref >= 0 && !good(s.ref)) return false;
  if (!std::all_of(s.all_of.begin(), s.all_of.end(), good)) return false;
  if (!s.any_of.empty() && std::none_of(s.any_of.begin(), s.any_of.end(), good)) return false;
  if (!s.one_of.empty() && std::count_if(s.one_of.begin(), s.one_of.end(), good) != 1) return false;
  if (s.not_of >= 0 && good(s.not_of)) return false;
  if (s.if_of >= 0) {
    const SchemaId next = good(s.if_of) ? s.then_of : s.else_of;
    if (next >= 0 && !good(next)) return false;
  }
  if (const auto* object = value.if_object()) {
    for (const auto& [name, schema] : s.needs_schema) {
      if (object->contains(name) && !good(schema)) return false;
    }
  }
  return true;
}

}  // namespace millrace::grammar

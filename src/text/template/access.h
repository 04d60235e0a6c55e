// How a template reaches into values, as Jinja's immutable sandbox allows it: attributes first or items first, slices,
// and the dotted paths of filters. What is not there is undefined; what Python has but the sandbox forbids is undefined
// too, with a message that says so.
#pragma once

#include "text/template/run.h"

namespace millrace::jinja {

// value.name: a method or attribute, else an item.
Result<Value> get_attribute(Run& run, const Value& object, std::string_view name);
// value[key]: an item, else a method or attribute.
Result<Value> get_item(Run& run, const Value& object, const Value& key);
// A method or attribute alone; missing if there is none.
Result<Value> find_attribute(Run& run, const Value& object, std::string_view name);
Result<Value> get_slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step);

// What filters take as `attribute`: "a.b.0", a number, or None for the value itself.
class AttributePath {
 public:
  static Result<AttributePath> parse(Run& run, const Value& attribute);
  static Result<AttributePath> parse_part(Run& run, std::string_view path);
  // Follows the path; where an item is undefined, `otherwise` stands in unless it is missing.
  Result<Value> get(Run& run, const Value& from, const Value& otherwise = Value()) const;

 private:
  Values parts_;
};

}  // namespace millrace::jinja

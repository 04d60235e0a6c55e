// Schemas: a JSON Schema document, read and checked once: every subschema that can be reached becomes a Schema with a
// number, references are resolved, patterns are expressions. Drafts 4, 6, 7, 2019-09 and 2020-12, told apart by $schema
// where they differ; both spellings are taken otherwise. A keyword that asserts something and is not supported is
// refused with its JSON pointer; nothing but annotations is passed over. Nothing is ever fetched.
//
// Made on one thread, then read only; the expressions live in the Exprs given.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/expr.h"
#include "grammar/numbers.h"

namespace millrace::grammar {

using SchemaId = int32_t;

enum TypeBit : uint8_t {
  kNull = 1,
  kBool = 2,
  kInteger = 4,
  kFraction = 8,  // a number that is no integer
  kString = 16,
  kArray = 32,
  kObject = 64,
  kNumber = kInteger | kFraction,
  kAnyType = 127,
};

uint8_t type_of(const Json& value);

struct Schema {
  std::string pointer;
  bool never = false;  // the schema `false`
  uint8_t types = kAnyType;
  std::optional<std::vector<Json>> values;  // enum and const
  std::optional<Decimal> minimum, maximum, above, below, multiple_of;
  int least_length = 0, most_length = Exprs::kMany;
  std::vector<std::pair<std::string, ExprId>> patterns;  // pattern and format: name, texts that match

  std::vector<std::pair<std::string, SchemaId>> properties;
  std::vector<std::pair<ExprId, SchemaId>> pattern_properties;
  SchemaId additional = -1, names = -1;
  std::vector<std::string> required;
  int least_properties = 0, most_properties = Exprs::kMany;
  std::vector<std::pair<std::string, std::vector<std::string>>> needs;  // dependentRequired
  std::vector<std::pair<std::string, SchemaId>> needs_schema;           // dependentSchemas

  std::vector<SchemaId> prefix;
  SchemaId items = -1, contains = -1;
  int least_contains = 1, most_contains = Exprs::kMany;
  int least_items = 0, most_items = Exprs::kMany;
  bool unique = false;

  std::vector<SchemaId> all_of, any_of, one_of;
  SchemaId not_of = -1, if_of = -1, then_of = -1, else_of = -1, ref = -1;
};

struct SchemaOptions {
  bool assert_formats = true;
};

class Schemas {
 public:
  static constexpr unsigned kMostDepth = 64;
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // The document's values are copied.
  static Result<std::unique_ptr<Schemas>> read(const Json& document, Exprs& exprs, const SchemaOptions& options = {});

  SchemaId root() const { return root_; }
  const Schema& at(SchemaId id) const { return all_[static_cast<size_t>(id)]; }
  size_t size() const { return all_.size(); }
  const std::vector<std::string>& unknown_formats() const { return unknown_formats_; }

  // A schema that only this value satisfies.
  SchemaId constant(const Json& value);
  SchemaId nothing();                        // the schema `false`
  SchemaId absent(const std::string& name);  // objects without that property, and all that is no object
  // Whether the value satisfies the schema; plain and recursive, for values of enums and as an oracle.
  bool valid(SchemaId schema, const Json& value, int depth = 0) const;

 private:
  struct Reader;
  Schemas(Exprs& exprs, const SchemaOptions& options) : exprs_(exprs), options_(options) {}

  bool valid_number(const Schema& schema, const Json& value) const;
  bool valid_string(const Schema& schema, const Json& value) const;
  bool valid_object(const Schema& schema, const JsonObject& value, int depth) const;
  bool valid_array(const Schema& schema, const JsonArray& value, int depth) const;
  bool valid_branches(const Schema& schema, const Json& value, int depth) const;

  Exprs& exprs_;
  SchemaOptions options_;
  Json document_;
  std::deque<Schema> all_;
  SchemaId root_ = 0, nothing_ = -1;
  std::map<std::string, SchemaId> absent_;
  std::vector<std::string> unknown_formats_;
};

// Equal as JSON Schema means it: numbers by value, objects in any order.
bool same_value(const Json& a, const Json& b);
size_t count_characters(std::string_view text);

}  // namespace millrace::grammar

#include "grammar/schema.h"

#include <algorithm>
#include <string_view>

#include "grammar/formats.h"
#include "grammar/regex.h"
#include "grammar/schema_links.h"

namespace millrace::grammar {

uint8_t type_of(const Json& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return kNull;
    case boost::json::kind::bool_:
      return kBool;
    case boost::json::kind::string:
      return kString;
    case boost::json::kind::array:
      return kArray;
    case boost::json::kind::object:
      return kObject;
    default:
      break;
  }
  const auto decimal = to_decimal(value);
  return !decimal || decimal->fraction.empty() ? kInteger : kFraction;
}

namespace {

// Keywords of later drafts are annotations in a document that says it is of an earlier one.
bool known_in(Draft draft, std::string_view keyword) {
  static const std::map<std::string_view, Draft> kSince = {{"const", Draft::six},
                                                           {"contains", Draft::six},
                                                           {"propertyNames", Draft::six},
                                                           {"if", Draft::seven},
                                                           {"then", Draft::seven},
                                                           {"else", Draft::seven},
                                                           {"prefixItems", Draft::latest},
                                                           {"dependentSchemas", Draft::latest},
                                                           {"dependentRequired", Draft::latest},
                                                           {"minContains", Draft::latest},
                                                           {"maxContains", Draft::latest},
                                                           {"unevaluatedProperties", Draft::latest},
                                                           {"unevaluatedItems", Draft::latest},
                                                           {"$dynamicRef", Draft::latest},
                                                           {"$recursiveRef", Draft::latest}};
  const auto found = kSince.find(keyword);
  return found == kSince.end() || draft >= found->second;
}

}  // namespace

// Reads schemas one by one from a list of places, so that no depth of document or references is a depth of calls.
struct Schemas::Reader {
  using Handler = Result<void> (Reader::*)(const Json&);

  Schemas& out;
  Exprs& exprs;
  SchemaLinks links;
  std::unordered_map<const Json*, SchemaId> known;
  std::deque<std::pair<SchemaId, SchemaPlace>> todo;
  std::map<std::string, ExprId, std::less<>> patterns;

  // Of the schema at work.
  Schema* schema = nullptr;
  const JsonObject* object = nullptr;
  SchemaPlace place;
  std::string_view keyword;

  explicit Reader(Schemas& schemas) : out(schemas), exprs(schemas.exprs_), links(schemas.document_) {}

  std::string here() const { return pointer_step(place.pointer, keyword); }
  Error wrong(std::string_view what) const { return error(Code::invalid, "{}: {}", here(), what); }
  Error refused(std::string_view what) const { return error(Code::unsupported, "{}: {}", here(), what); }

  SchemaId id_of(const SchemaPlace& target) {
    auto [found, fresh] = known.try_emplace(target.json, static_cast<SchemaId>(out.all_.size()));
    if (!fresh) return found->second;
    out.all_.emplace_back();
    out.all_.back().pointer = target.pointer;
    todo.push_back({found->second, target});
    return found->second;
  }

  Result<SchemaId> child(const Json& json, std::string pointer) {
    if (!json.is_object() && !json.is_bool()) {
      return error(Code::invalid, "{}: a schema is an object or true or false", pointer);
    }
    return id_of({&json, std::move(pointer), links.resource_of(&json, place.resource)});
  }

  Result<int> count(const Json& json) {
    const auto decimal = to_decimal(json);
    if (!decimal || decimal->negative || !decimal->fraction.empty()) return wrong("must be a count of 0 or more");
    if (decimal->whole.size() > 9) return 1'000'000'000;
    return decimal->whole.empty() ? 0 : std::stoi(decimal->whole);
  }

  Result<std::vector<SchemaId>> list(const Json& json) {
    const auto* array = json.if_array();
    if (array == nullptr) return wrong("must be an array of schemas");
    std::vector<SchemaId> ids;
    for (size_t i = 0; i < array->size(); ++i) {
      TRY(const SchemaId id, child((*array)[i], pointer_step(here(), std::to_string(i))));
      ids.push_back(id);
    }
    return ids;
  }

  Result<std::vector<std::string>> names(const Json& json) {
    const auto* array = json.if_array();
    if (array == nullptr) return wrong("must be an array of names");
    std::vector<std::string> found;
    for (const Json& name : *array) {
      if (!name.is_string()) return wrong("must be an array of names");
      found.emplace_back(name.get_string());
    }
    return found;
  }

  Result<ExprId> pattern(std::string_view text) {
    if (auto found = patterns.find(text); found != patterns.end()) return found->second;
    auto expr = regex_expr(exprs, text, RegexUse::search);
    if (!expr.ok()) return within(here(), expr.error());
    patterns.emplace(text, *expr);
    return *expr;
  }

  Result<void> type(const Json& json) {
    uint8_t types = 0;
    const auto add = [&](const Json& name) {
      static const std::map<std::string_view, uint8_t> kTypes = {
          {"null", kNull},     {"boolean", kBool}, {"integer", kInteger}, {"number", kNumber},
          {"string", kString}, {"array", kArray},  {"object", kObject}};
      const auto found = name.is_string() ? kTypes.find(std::string_view(name.get_string())) : kTypes.end();
      if (found == kTypes.end()) return false;
      types |= found->second;
      return true;
    };
    bool good = true;
    if (const auto* array = json.if_array()) {
      for (const Json& name : *array) good = good && add(name);
    } else {
      good = add(json);
    }
    if (!good) return wrong("must be null, boolean, integer, number, string, array, object, or an array of these");
    schema->types &= types;
    return {};
  }

  Result<void> enumeration(const Json& json) {
    const auto* array = json.if_array();
    if (array == nullptr) return wrong("must be an array of values");
    return take_values({array->begin(), array->end()});
  }
  Result<void> constant(const Json& json) { return take_values({json}); }
  Result<void> take_values(std::vector<Json> values) {
    if (schema->values) {
      std::erase_if(values, [&](const Json& value) {
        return std::none_of(schema->values->begin(), schema->values->end(),
                            [&](const Json& other) { return same_value(value, other); });
      });
    }
    schema->values = std::move(values);
    return {};
  }

  Result<void> bound(const Json& json) {
    // Draft 4: exclusiveMinimum is a flag beside minimum.
    if (keyword.starts_with("exclusive") && json.is_bool()) return {};
    const auto decimal = to_decimal(json);
    if (!decimal) return wrong("must be a number (of at most 400 digits)");
    const Json* flag = nullptr;
    if (keyword == "minimum") flag = object->if_contains("exclusiveMinimum");
    if (keyword == "maximum") flag = object->if_contains("exclusiveMaximum");
    const bool exclusive = keyword.starts_with("exclusive") || (flag && flag->is_bool() && flag->get_bool());
    const bool lower = keyword == "minimum" || keyword == "exclusiveMinimum";
    (lower ? (exclusive ? schema->above : schema->minimum) : (exclusive ? schema->below : schema->maximum)) = decimal;
    return {};
  }

  Result<void> multiple(const Json& json) {
    const auto decimal = to_decimal(json);
    if (!decimal || decimal->zero() || decimal->negative) return wrong("must be a number above 0");
    schema->multiple_of = decimal;
    return {};
  }

  Result<void> counts(const Json& json) {
    static const std::map<std::string_view, int Schema::*> kCounts = {
        {"minLength", &Schema::least_length},         {"maxLength", &Schema::most_length},
        {"minItems", &Schema::least_items},           {"maxItems", &Schema::most_items},
        {"minProperties", &Schema::least_properties}, {"maxProperties", &Schema::most_properties},
        {"minContains", &Schema::least_contains},     {"maxContains", &Schema::most_contains}};
    TRY(schema->*kCounts.at(keyword), count(json));
    return {};
  }

  Result<void> text_pattern(const Json& json) {
    if (!json.is_string()) return wrong("must be a regular expression");
    TRY(const ExprId expr, pattern(std::string_view(json.get_string())));
    schema->patterns.push_back({"pattern", expr});
    return {};
  }

  Result<void> format(const Json& json) {
    if (!json.is_string()) return wrong("must be a name");
    const std::string name(json.get_string());
    if (!out.options_.assert_formats) return {};
    const auto found = format_pattern(name);
    if (!found) {
      out.unknown_formats_.push_back(name);  // an annotation, by the standard
      return {};
    }
    if (found->empty()) return refused(fmt::format("the format '{}' is no regular language", name));
    TRY(const ExprId expr, pattern(*found));
    schema->patterns.push_back({"format", expr});
    return {};
  }

  Result<void> properties(const Json& json) {
    const auto* map = json.if_object();
    if (map == nullptr) return wrong("must be an object of schemas");
    constexpr size_t kMostNames = 2048;  // every name may stand beside every other in a mask
    if (map->size() > kMostNames)
      return wrong(fmt::format("has {} names, and the most of one object is {}", map->size(), kMostNames));
    const std::string above = here();
    for (const auto& [name, value] : *map) {
      TRY(const SchemaId id, child(value, pointer_step(above, name)));
      if (keyword == "properties") {
        schema->properties.push_back({name, id});
      } else if (keyword == "dependentSchemas") {
        schema->needs_schema.push_back({name, id});
      } else {
        TRY(const ExprId expr, pattern(name));
        schema->pattern_properties.push_back({expr, id});
      }
    }
    return {};
  }

  Result<void> dependencies(const Json& json) {
    const auto* map = json.if_object();
    if (map == nullptr) return wrong("must be an object");
    const std::string above = here();
    for (const auto& [name, value] : *map) {
      if (value.is_array() || (value.is_string() && keyword == "dependencies")) {
        TRY(auto needed, names(value.is_array() ? value : Json(JsonArray{value})));
        schema->needs.push_back({name, std::move(needed)});
      } else if (keyword == "dependencies") {
        TRY(const SchemaId id, child(value, pointer_step(above, name)));
        schema->needs_schema.push_back({name, id});
      } else {
        return wrong("must hold arrays of names");
      }
    }
    return {};
  }

  Result<void> required(const Json& json) {
    TRY(schema->required, names(json));
    return {};
  }

  Result<void> one(const Json& json) {
    static const std::map<std::string_view, SchemaId Schema::*> kSchemas = {
        {"additionalProperties", &Schema::additional},
        {"propertyNames", &Schema::names},
        {"contains", &Schema::contains},
        {"not", &Schema::not_of},
        {"if", &Schema::if_of},
        {"then", &Schema::then_of},
        {"else", &Schema::else_of}};
    TRY(schema->*kSchemas.at(keyword), child(json, here()));
    return {};
  }

  Result<void> several(const Json& json) {
    static const std::map<std::string_view, std::vector<SchemaId> Schema::*> kLists = {
        {"allOf", &Schema::all_of},
        {"anyOf", &Schema::any_of},
        {"oneOf", &Schema::one_of},
        {"prefixItems", &Schema::prefix}};
    TRY(schema->*kLists.at(keyword), list(json));
    return {};
  }

  Result<void> items(const Json& json) {
    if (json.is_array()) {
      if (!schema->prefix.empty()) return {};
      TRY(schema->prefix, list(json));
      return {};
    }
    TRY(schema->items, child(json, here()));
    return {};
  }

  Result<void> additional_items(const Json& json) {
    const Json* items = object->if_contains("items");
    if (items == nullptr || !items->is_array()) return {};  // says nothing without an array before it
    TRY(schema->items, child(json, here()));
    return {};
  }

  Result<void> unique(const Json& json) {
    if (!json.is_bool()) return wrong("must be true or false");
    schema->unique = json.get_bool();
    return {};
  }

  Result<void> reference(const Json& json) {
    if (!json.is_string()) return wrong("must be a reference");
    TRY(const SchemaPlace target, links.resolve(std::string_view(json.get_string()), place));
    if (!target.json->is_object() && !target.json->is_bool()) return wrong("leads to something that is no schema");
    schema->ref = id_of(target);
    return {};
  }

  Result<void> never_supported(const Json&) { return refused("this keyword is not supported"); }

  static const std::map<std::string_view, Handler>& handlers() {
    using R = Reader;
    static const std::map<std::string_view, Handler> kHandlers = {
        {"type", &R::type},
        {"enum", &R::enumeration},
        {"const", &R::constant},
        {"minimum", &R::bound},
        {"maximum", &R::bound},
        {"exclusiveMinimum", &R::bound},
        {"exclusiveMaximum", &R::bound},
        {"multipleOf", &R::multiple},
        {"minLength", &R::counts},
        {"maxLength", &R::counts},
        {"minItems", &R::counts},
        {"maxItems", &R::counts},
        {"minProperties", &R::counts},
        {"maxProperties", &R::counts},
        {"minContains", &R::counts},
        {"maxContains", &R::counts},
        {"pattern", &R::text_pattern},
        {"format", &R::format},
        {"properties", &R::properties},
        {"patternProperties", &R::properties},
        {"dependentSchemas", &R::properties},
        {"dependentRequired", &R::dependencies},
        {"dependencies", &R::dependencies},
        {"required", &R::required},
        {"additionalProperties", &R::one},
        {"propertyNames", &R::one},
        {"contains", &R::one},
        {"not", &R::one},
        {"if", &R::one},
        {"then", &R::one},
        {"else", &R::one},
        {"allOf", &R::several},
        {"anyOf", &R::several},
        {"oneOf", &R::several},
        {"prefixItems", &R::several},
        {"items", &R::items},
        {"additionalItems", &R::additional_items},
        {"uniqueItems", &R::unique},
        {"$ref", &R::reference},
        {"$dynamicRef", &R::never_supported},
        {"$recursiveRef", &R::never_supported},
        {"unevaluatedProperties", &R::never_supported},
        {"unevaluatedItems", &R::never_supported},
    };
    return kHandlers;
  }

  Result<void> read(SchemaId id) {
    schema = &out.all_[static_cast<size_t>(id)];
    if (place.json->is_bool()) {
      schema->never = !place.json->get_bool();
      return {};
    }
    object = &place.json->get_object();
    const bool only_ref = links.draft() != Draft::latest && object->contains("$ref");
    for (const auto& [key, value] : *object) {
      keyword = key;
      if ((only_ref && keyword != "$ref") || !known_in(links.draft(), keyword)) continue;
      const auto handler = handlers().find(keyword);
      if (handler != handlers().end()) TRY_VOID((this->*handler->second)(value));
    }
    if (!schema->prefix.empty() && schema->items >= 0 && !object->contains("prefixItems") &&
        !object->contains("additionalItems")) {
      schema->items = -1;
    }
    return {};
  }
};

Result<std::unique_ptr<Schemas>> Schemas::read(const Json& document, Exprs& exprs, const SchemaOptions& options) {
  if (!document.is_object() && !document.is_bool()) {
    return error(Code::invalid, "a JSON Schema is an object or true or false");
  }
  if (const Json* dialect = find(document, "$schema"); dialect != nullptr && dialect->is_string()) {
    const std::string_view name = dialect->get_string();
    if (name.find("://") != name.npos && name.find("json-schema.org") == name.npos)
      return error(Code::unsupported, "/$schema: the dialect '{}' is not known", name.substr(0, 200));
  }
  std::unique_ptr<Schemas> schemas(new Schemas(exprs, options));
  schemas->document_ = document;
  Reader reader(*schemas);
  schemas->root_ = reader.id_of({&schemas->document_, "", reader.links.resource_of(&schemas->document_, 0)});
  while (!reader.todo.empty()) {
    auto [id, place] = reader.todo.front();
    reader.todo.pop_front();
    reader.place = place;
    TRY_VOID(reader.read(id));
    if (exprs.over()) return error(Code::invalid, "{}: the schema is too large to compile", place.pointer);
  }
  return schemas;
}

SchemaId Schemas::nothing() {
  if (nothing_ >= 0) return nothing_;
  nothing_ = static_cast<SchemaId>(all_.size());
  all_.emplace_back().never = true;
  return nothing_;
}

SchemaId Schemas::absent(const std::string& name) {
  const SchemaId never = nothing();
  auto [found, fresh] = absent_.try_emplace(name, static_cast<SchemaId>(all_.size()));
  if (fresh) all_.emplace_back().properties.push_back({name, never});
  return found->second;
}

SchemaId Schemas::constant(const Json& value) {
  Schema schema;
  schema.types = type_of(value);
  if (const auto* object = value.if_object()) {
    for (const auto& [key, part] : *object) {
      schema.properties.push_back({key, constant(part)});
      schema.required.emplace_back(key);
    }
    schema.additional = nothing();
  } else if (const auto* array = value.if_array()) {
    for (const Json& part : *array) schema.prefix.push_back(constant(part));
    schema.least_items = schema.most_items = static_cast<int>(array->size());
  } else {
    schema.values = {value};
  }
  all_.push_back(std::move(schema));
  return static_cast<SchemaId>(all_.size() - 1);
}

}  // namespace millrace::grammar

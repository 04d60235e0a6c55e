// /openapi.json says what the server checks: for every field of every body, a value is taken if and only if the
// document's schema, read by a validator of our own, takes it.
#include "server/openapi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "server/openai/read_request.h"
#include "server/route.h"

namespace millrace {
namespace {

double number_of(const Json& value) {
  return value.is_double()  ? value.get_double()
         : value.is_int64() ? static_cast<double>(value.get_int64())
                            : static_cast<double>(value.get_uint64());
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "integer") return value.is_number() && number_of(value) == std::floor(number_of(value));
  return type == "number"    ? value.is_number()
         : type == "string"  ? value.is_string()
         : type == "boolean" ? value.is_bool()
         : type == "array"   ? value.is_array()
         : type == "object"  ? value.is_object()
                             : value.is_null();
}

bool valid(const Json& schema, const Json& value);

bool valid_list(const JsonObject& rules, const JsonArray& list) {
  if (const Json* least = find(rules, "minItems"); least && static_cast<double>(list.size()) < number_of(*least))
    return false;
  if (const Json* most = find(rules, "maxItems"); most && static_cast<double>(list.size()) > number_of(*most))
    return false;
  const Json* items = find(rules, "items");
  return items == nullptr || std::all_of(list.begin(), list.end(), [&](const Json& one) { return valid(*items, one); });
}

bool valid_object(const JsonObject& rules, const JsonObject& object) {
  if (const Json* most = find(rules, "maxProperties"); most && static_cast<double>(object.size()) > number_of(*most))
    return false;
  if (const Json* required = find(rules, "required")) {
    for (const Json& name : required->get_array())
      if (object.if_contains(name.get_string()) == nullptr) return false;
  }
  const Json *named = find(rules, "properties"), *other = find(rules, "additionalProperties");
  for (const auto& member : object) {
    const std::string key(member.key().data(), member.key().size());
    if (const Json* names = find(rules, "propertyNames")) {
      const std::regex pattern{std::string(names->at("pattern").get_string())};
      if (!std::regex_match(key, pattern)) return false;
    }
    const Json* one = named == nullptr ? nullptr : find(*named, key);
    if (one == nullptr) one = other;
    if (one != nullptr && one->is_object() && !valid(*one, member.value())) return false;
    if (one != nullptr && one->is_bool() && !one->get_bool()) return false;
  }
  return true;
}

// As much of JSON Schema as the document uses.
bool valid(const Json& schema, const Json& value) {
  const JsonObject& rules = schema.get_object();
  for (const auto& rule : rules) {
    static const std::set<std::string_view> kKnown = {"type",
                                                      "minimum",
                                                      "maximum",
                                                      "minLength",
                                                      "maxLength",
                                                      "minItems",
                                                      "maxItems",
                                                      "items",
                                                      "required",
                                                      "properties",
                                                      "anyOf",
                                                      "propertyNames",
                                                      "additionalProperties",
                                                      "maxProperties",
                                                      "enum",
                                                      "default",
                                                      "description"};
    EXPECT_TRUE(kKnown.contains(std::string_view(rule.key().data(), rule.key().size())))
        << rule.key() << " is not understood here";
  }
  if (const Json* type = find(rules, "type"); type && !has_type(value, type->get_string())) return false;
  if (const Json* any = find(rules, "anyOf")) {
    const auto& list = any->get_array();
    if (std::none_of(list.begin(), list.end(), [&](const Json& one) { return valid(one, value); })) return false;
  }
  if (const Json* one_of = find(rules, "enum")) {
    const auto& list = one_of->get_array();
    if (std::find(list.begin(), list.end(), value) == list.end()) return false;
  }
  if (value.is_number()) {
    if (const Json* least = find(rules, "minimum"); least && number_of(value) < number_of(*least)) return false;
    if (const Json* most = find(rules, "maximum"); most && number_of(value) > number_of(*most)) return false;
  }
  if (value.is_string()) {
    const auto length = static_cast<double>(value.get_string().size());
    if (const Json* least = find(rules, "minLength"); least && length < number_of(*least)) return false;
    if (const Json* most = find(rules, "maxLength"); most && length > number_of(*most)) return false;
  }
  if (value.is_array() && !valid_list(rules, value.get_array())) return false;
  return !value.is_object() || valid_object(rules, value.get_object());
}

JsonArray copies(const Json& value, size_t count) { return JsonArray(count, value); }

// Values at and around every limit of every shape.
std::vector<Json> values_for(const Field& field) {
  std::vector<Json> values;
  for (std::string_view text : {"true",
                                "0",
                                "1",
                                "-1",
                                "1.5",
                                "-0.5",
                                "1e300",
                                "-1e300",
                                "{}",
                                "[]",
                                "[1]",
                                "[1,2]",
                                "[-1]",
                                "[2147483647]",
                                "[2147483648]",
                                R"([1,"a"])",
                                "[[1],[2,3]]",
                                "[[]]",
                                R"([[1],"a"])",
                                "[[-1]]",
                                R"(["a"])",
                                R"(["a","b"])",
                                R"([""])",
                                R"({"1":1})",
                                R"({"1":1001})",
                                R"({"-1":1})",
                                R"({"x":1})",
                                R"({"123456789":-1000})",
                                R"({"1234567890":1})",
                                R"({"1":"a"})",
                                R"([{}])",
                                R"([{"role":"user"}])",
                                R"([{"role":"user","content":"x"}])",
                                R"([{"role":"developer","content":null}])",
                                R"([{"role":"wizard","content":"x"}])",
                                R"([{"content":"x"}])",
                                R"([{"role":5,"content":"x"}])",
                                R"([{"role":"user","content":5}])",
                                R"([{"role":"user","content":[]}])",
                                R"([{"role":"user","content":[{"type":"text","text":"a"}]}])",
                                R"([{"role":"user","content":[{"type":"text"}]}])",
                                R"([{"role":"user","content":[{"type":"image_url","text":"a"}]}])",
                                R"([{"role":"user","content":[{"text":"a"}]}])",
                                R"([{"role":"user","content":"x","name":"a","unheard_of":1}])",
                                R"([{"type":"text","text":"a"}])",
                                R"([{"type":"text","text":5}])",
                                R"([{"type":"message","role":"user","content":"x"}])",
                                R"([{"type":"nonsense"}])",
                                R"([{"type":"function","function":{"name":"f","parameters":{}}}])",
                                R"([{"type":"function","function":{"name":5}}])",
                                R"([{"type":"function","name":"f","strict":true}])",
                                R"([{"name":"f","input_schema":{}}])",
                                R"([{"name":"f","input_schema":5}])",
                                R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}])",
                                R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
                                R"({"type":"tool","name":"f"})",
                                R"({"type":"enabled"})",
                                R"({"type":"json_schema","schema":{}})",
                                R"({"format":{"type":"json_schema"}})",
                                R"({"include_usage":true})",
                                R"({"include_usage":1})",
                                R"({"unheard_of":1})"})
    values.push_back(parse_json(text).value());
  for (double number : {field.least, field.most, field.least - 1, field.most + 1, field.most * 2 + 1})
    values.emplace_back(number);
  for (size_t length : {size_t{0}, size_t{1}, kLongestStop, kLongestStop + 1, size_t{512}, size_t{513}})
    values.emplace_back(std::string(length, 'a'));
  for (size_t count : {size_t{16}, size_t{17}, size_t{32}, size_t{33}, kMostPrompts, kMostPrompts + 1}) {
    values.emplace_back(copies("a", count));
    values.emplace_back(copies(JsonArray{1}, count));
  }
  for (size_t count : {size_t{1024}, size_t{1025}}) {
    values.emplace_back(copies(1, count));
    JsonObject many;
    for (size_t i = 0; i < count; ++i) many[std::to_string(i)] = 1;
    values.emplace_back(std::move(many));
    const JsonObject part = {{"type", "text"}, {"text", "a"}};
    values.emplace_back(JsonArray{JsonObject{{"role", "user"}, {"content", copies(part, count)}}});
  }
  for (size_t count : {size_t{4096}, size_t{4097}})
    values.emplace_back(copies(JsonObject{{"role", "user"}, {"content", "a"}}, count));
  return values;
}

// Something that is taken for a field that a body cannot do without.
Json good_value(std::string_view name) {
  if (name == "query" || name == "input" || name == "model" || name == "model_path" || name.starts_with("lora_"))
    return Json("x");
  if (name == "max_tokens") return Json(1);
  return parse_json(name == "messages" ? R"([{"role":"user","content":"x"}])" : "[1]").value();
}

TEST(OpenApi, AndTheServerTakeTheSameValues) {
  const Json document = openapi_json("1");
  std::map<std::string, RouteBody> bodies;
  for (const auto& table : route_tables())
    for (const Route& route : table)
      if (route.body.kind != 0) bodies[std::string(route.body.name)] = route.body;
  ASSERT_GE(bodies.size(), 8U);
  int taken = 0, refused = 0;
  for (const auto& [name, body_of] : bodies) {
    const unsigned kind = body_of.kind;
    const Table& table = body_of.table();
    const Json& schema = document.at("components").at("schemas").at(name);
    const JsonObject& properties = schema.at("properties").get_object();
    size_t documented = 0;
    for (const Field& field : table.fields) {
      if ((field.bodies & kind) == 0) continue;
      const Json* rules = find(properties, field.name);
      EXPECT_EQ(rules != nullptr, field.standing != Standing::absent) << name << " " << field.name;
      if (rules == nullptr) continue;
      ++documented;
      EXPECT_EQ(rules->at("description"), Json(field.help)) << field.name;
      const Json* otherwise = find(*rules, "default");
      ASSERT_EQ(otherwise != nullptr, !field.otherwise.empty()) << field.name;
      if (otherwise != nullptr) {
        EXPECT_EQ(*otherwise, parse_json(field.otherwise).value()) << field.name;
        EXPECT_TRUE(valid(*rules, *otherwise)) << field.name;
      }
      for (const Json& value : values_for(field)) {
        JsonObject body = {{field.name, value}};
        for (const Json& needed : schema.at("required").get_array())
          if (needed.get_string() != field.name) body[needed.get_string()] = good_value(needed.get_string());
        Ignored ignored;
        const auto failure = check_fields(body, table, kind, ignored);
        EXPECT_EQ(!failure, valid(*rules, value))
            << name << " " << field.name << " " << to_text(value).substr(0, 200) << (failure ? failure->message : "");
        ++(failure ? refused : taken);
      }
    }
    EXPECT_EQ(documented, properties.size()) << name;
    EXPECT_EQ(find(schema, "additionalProperties"), nullptr);  // unknown names are taken
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 3000);
}

TEST(OpenApi, WhatItRequiresIsMissed) {
  const Json document = openapi_json("1");
  for (const auto& [name, kind] : {std::pair{"ChatRequest", kChat}, std::pair{"CompletionRequest", kCompletion}}) {
    const auto& required = document.at("components").at("schemas").at(name).at("required").get_array();
    ASSERT_EQ(required.size(), 1U);
    RequestBody asked;
    const auto failure = read_request_body("{}", kind, {}, asked);
    ASSERT_TRUE(failure);
    EXPECT_EQ(Json(failure->param), required[0]);
  }
}

}  // namespace
}  // namespace millrace

// The table of fields told to programs (JSON Schema) and to people (Markdown).
#include "server/schema.h"

namespace millrace {
namespace {

JsonObject token_json() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", kLargestToken}}; }
JsonObject list_json(Json items, size_t least, size_t most) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", least}, {"maxItems", most}};
}

JsonObject message_json() {
  const JsonObject text = {{"type", "string"}};
  const JsonObject part = {{"type", "object"},
                           {"required", JsonArray{"type", "text"}},
                           {"properties", {{"type", {{"enum", JsonArray{"text"}}}}, {"text", text}}}};
  JsonArray roles;
  for (std::string_view role : kRoles) roles.emplace_back(role);
  return {{"type", "object"},
          {"required", JsonArray{"role", "content"}},
          {"properties",
           {{"role", {{"enum", std::move(roles)}}},
            {"content", {{"anyOf", JsonArray{text, JsonObject{{"type", "null"}}, list_json(part, 0, kMostParts)}}}}}}};
}

JsonObject prompt_json() {
  const JsonObject text = {{"type", "string"}};
  const JsonObject tokens = list_json(token_json(), 0, kMostTokens),
                   some_tokens = list_json(token_json(), 1, kMostTokens);
  return {
      {"anyOf", JsonArray{text, list_json(text, 1, kMostPrompts), some_tokens, list_json(tokens, 1, kMostPrompts)}}};
}

JsonObject number_json(const Field& field, std::string_view type) {
  JsonObject out = {{"type", type}};
  if (field.shape == Shape::integer) {
    out["minimum"] = static_cast<int64_t>(field.least);
    out["maximum"] = static_cast<int64_t>(field.most);
  } else {
    out["minimum"] = field.least;
    out["maximum"] = field.most;
  }
  return out;
}

JsonObject shape_json(const Field& field) {
  const JsonObject text = {{"type", "string"}};
  switch (field.shape) {
    case Shape::boolean:
      return {{"type", "boolean"}};
    case Shape::integer:
      return number_json(field, "integer");
    case Shape::number:
      return number_json(field, "number");
    case Shape::text: {
      JsonObject out = text;
      if (field.most > 0) out["maxLength"] = static_cast<int64_t>(field.most);
      return out;
    }
    case Shape::texts: {
      const JsonObject one = {{"type", "string"}, {"minLength", 1}, {"maxLength", kLongestStop}};
      return {{"anyOf", JsonArray{one, list_json(one, 0, static_cast<size_t>(field.most))}}};
    }
    case Shape::tokens:
      return list_json(token_json(), 0, static_cast<size_t>(field.most));
    case Shape::prompt:
      return prompt_json();
    case Shape::messages:
      return list_json(message_json(), 1, static_cast<size_t>(field.most));
    case Shape::bias: {
      JsonObject value = number_json(field, "number");
      return {{"type", "object"},
              {"propertyNames", {{"pattern", fmt::format("^[0-9]{{1,{}}}$", kLongestTokenKey)}}},
              {"additionalProperties", std::move(value)},
              {"maxProperties", kMostBiases}};
    }
    case Shape::object:
      return {{"type", "object"}};
    case Shape::any:
      return {};
  }
  return {};
}

std::string range_text(const Field& field) {
  const bool ranged = field.shape == Shape::integer || field.shape == Shape::number || field.shape == Shape::bias;
  constexpr double kMany = 1 << 30;
  if (!ranged || (field.most >= kMany && field.least <= -kMany)) return "";
  if (field.most >= kMany) return fmt::format("{:.10g} or more", field.least);
  return fmt::format("{:.10g} to {:.10g}", field.least, field.most);
}

std::string_view shape_name(Shape shape) {
  switch (shape) {
    case Shape::boolean:
      return "boolean";
    case Shape::integer:
      return "integer";
    case Shape::number:
      return "number";
    case Shape::text:
      return "text";
    case Shape::texts:
      return "text or texts";
    case Shape::tokens:
      return "token ids";
    case Shape::prompt:
      return "text(s) or token ids";
    case Shape::messages:
      return "messages";
    case Shape::bias:
      return "object of numbers";
    case Shape::object:
      return "object";
    case Shape::any:
      return "anything";
  }
  return "";
}

}  // namespace

JsonObject schema_json(Body kind) {
  JsonObject properties;
  JsonArray required;
  for (const Field& field : fields()) {
    if ((field.bodies & kind) == 0 || field.standing == Standing::absent) continue;
    JsonObject one = shape_json(field);
    one["description"] = field.help;
    if (!field.otherwise.empty()) one["default"] = parse_json(field.otherwise).value();
    properties[field.name] = std::move(one);
    if (field.required) required.emplace_back(field.name);
  }
  if (kind == kChat) required.emplace_back("messages");
  if (kind == kCompletion) required.emplace_back("prompt");
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

std::string schema_markdown(Body kind) {
  std::string out = "| field | type | range | default | |\n|---|---|---|---|---|\n";
  for (const Field& field : fields()) {
    if ((field.bodies & kind) == 0 || field.standing == Standing::absent) continue;
    const std::string range = range_text(field);
    const std::string otherwise = field.otherwise.empty() ? "" : fmt::format("`{}`", field.otherwise);
    out += fmt::format("| `{}` | {} | {} | {} | {}{} |\n", field.name, shape_name(field.shape), range, otherwise,
                       field.standing == Standing::ignored ? "taken and ignored: " : "", field.help);
  }
  return out;
}

}  // namespace millrace

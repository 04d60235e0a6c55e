// The table of fields told to programs (JSON Schema) and to people (Markdown).
#include "server/schema.h"

namespace millrace {
namespace {

JsonObject token_json() { return {{"type", "integer"}, {"minimum", 0}}; }
JsonObject list_json(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

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
      JsonObject list = list_json(text);
      list["maxItems"] = static_cast<int64_t>(field.most);
      return {{"anyOf", JsonArray{text, list}}};
    }
    case Shape::tokens:
      return list_json(token_json());
    case Shape::prompt:
      return {{"anyOf", JsonArray{text, list_json(text), list_json(token_json()), list_json(list_json(token_json()))}}};
    case Shape::messages:
      return list_json(JsonObject{{"type", "object"},
                                  {"required", JsonArray{"role", "content"}},
                                  {"properties", {{"role", text}, {"content", JsonObject()}}}});
    case Shape::bias: {
      JsonObject value = number_json(field, "number");
      return {{"type", "object"}, {"additionalProperties", std::move(value)}};
    }
    case Shape::object:
      return {{"type", "object"}};
    case Shape::any:
      return {};
  }
  return {};
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
    const bool ranged = field.shape == Shape::integer || field.shape == Shape::number || field.shape == Shape::bias;
    const std::string range = ranged ? fmt::format("{:g} to {:g}", field.least, field.most) : "";
    const std::string otherwise = field.otherwise.empty() ? "" : fmt::format("`{}`", field.otherwise);
    out += fmt::format("| `{}` | {} | {} | {} | {}{} |\n", field.name, shape_name(field.shape), range, otherwise,
                       field.standing == Standing::ignored ? "taken and ignored: " : "", field.help);
  }
  return out;
}

}  // namespace millrace

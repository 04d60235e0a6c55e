// The table of fields told to programs (JSON Schema) and to people (Markdown).
#include "server/schema.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kColumns = 120;  // of a line in a document

JsonObject token_json() { return {{"type", "integer"}, {"minimum", 0}, {"maximum", kLargestToken}}; }
JsonObject list_json(Json items, size_t least, size_t most) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", least}, {"maxItems", most}};
}

JsonObject table_json(const Table& table, unsigned kind);

// A text, nothing, or parts that are objects of a table and must say what they are.
JsonObject content_json(const Field& field) {
  JsonObject part = table_json(*field.inside, kInside);
  return {{"anyOf", JsonArray{JsonObject{{"type", "string"}}, JsonObject{{"type", "null"}},
                              list_json(std::move(part), 0, kMostParts)}}};
}

JsonObject role_json() {
  JsonArray roles;
  for (std::string_view role : kRoles) roles.emplace_back(role);
  return {{"enum", std::move(roles)}};
}

JsonArray choices_json(std::string_view choices) {
  JsonArray list;
  while (true) {
    const size_t end = std::min(choices.find('|'), choices.size());
    list.emplace_back(choices.substr(0, end));
    if (end == choices.size()) return list;
    choices.remove_prefix(end + 1);
  }
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
      if (!field.choices.empty()) out["enum"] = choices_json(field.choices);
      return out;
    }
    case Shape::texts: {
      const JsonObject one = {{"type", "string"}, {"minLength", 1}, {"maxLength", kLongestStop}};
      return {{"anyOf", JsonArray{one, list_json(one, 0, static_cast<size_t>(field.most))}}};
    }
    case Shape::strings:
      return list_json(text, static_cast<size_t>(field.least), static_cast<size_t>(field.most));
    case Shape::tokens:
      return list_json(token_json(), 0, static_cast<size_t>(field.most));
    case Shape::prompt:
      return prompt_json();
    case Shape::role:
      return role_json();
    case Shape::content:
      return content_json(field);
    case Shape::bias: {
      JsonObject value = number_json(field, "number");
      return {{"type", "object"},
              {"propertyNames", {{"pattern", fmt::format("^[0-9]{{1,{}}}$", kLongestTokenKey)}}},
              {"additionalProperties", std::move(value)},
              {"maxProperties", kMostBiases}};
    }
    case Shape::object:
      return field.inside == nullptr ? JsonObject{{"type", "object"}} : table_json(*field.inside, kInside);
    case Shape::objects:
      return list_json(table_json(*field.inside, kInside), static_cast<size_t>(field.least),
                       static_cast<size_t>(field.most));
    case Shape::parts: {
      JsonArray any = {text, list_json(table_json(*field.inside, kInside), static_cast<size_t>(field.least),
                                       static_cast<size_t>(field.most))};
      if (field.required == 0) any.push_back(JsonObject{{"type", "null"}});
      return {{"anyOf", std::move(any)}};
    }
    case Shape::any:
      return {};
  }
  return {};
}

JsonObject table_json(const Table& table, unsigned kind) {
  JsonObject properties;
  JsonArray required;
  for (const Field& field : table.fields) {
    if ((field.bodies & kind) == 0 || field.standing == Standing::absent) continue;
    JsonObject one = shape_json(field);
    one["description"] = field.help;
    if (!field.otherwise.empty()) one["default"] = parse_json(field.otherwise).value();
    properties[field.name] = std::move(one);
    if ((field.required & kind) != 0) required.emplace_back(field.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"maxProperties", kMostMembers}};
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
    case Shape::strings:
      return "texts";
    case Shape::tokens:
      return "token ids";
    case Shape::prompt:
      return "text(s) or token ids";
    case Shape::role:
      return "role";
    case Shape::content:
      return "text or parts";
    case Shape::objects:
      return "objects";
    case Shape::parts:
      return "text or objects";
    case Shape::bias:
      return "object of numbers";
    case Shape::object:
      return "object";
    case Shape::any:
      return "anything";
  }
  return "";
}

// An item of a list in a document, over as many lines as it needs.
std::string item_text(std::string_view name, std::string_view what) {
  std::string out, line = fmt::format("- `{}`:", name);
  while (!what.empty()) {
    const size_t end = std::min(what.find(' '), what.size());
    if (line.size() + 1 + end > kColumns) {
      out += line + "\n";
      line = " ";
    }
    line += fmt::format(" {}", what.substr(0, end));
    what.remove_prefix(std::min(end + 1, what.size()));
  }
  return out + line + "\n";
}

}  // namespace

JsonObject schema_json(const Table& table, unsigned kind) { return table_json(table, kind); }

std::string schema_markdown(const Table& table, unsigned kind) {
  std::string out = "| field | type | range | default | |\n|---|---|---|---|---|\n", below;
  auto row = [&](const std::string& name, const Field& field) {
    const std::string range = range_text(field);
    const std::string otherwise = field.otherwise.empty() ? "" : fmt::format("`{}`", field.otherwise);
    const std::string start = fmt::format("| `{}` | {} | {} | {} | ", name, shape_name(field.shape), range, otherwise);
    const std::string what =
        fmt::format("{}{}", field.standing == Standing::ignored ? "taken and ignored: " : "", field.help);
    const bool fits = start.size() + what.size() + 2 <= kColumns;
    out += fmt::format("{}{} |\n", start, fits ? what : "see below");
    if (!fits) below += item_text(name, what);
  };
  for (const Field& field : table.fields) {
    if ((field.bodies & kind) == 0 || field.standing == Standing::absent) continue;
    row(std::string(field.name), field);
    if (field.inside == nullptr) continue;
    const std::string_view between = field.shape == Shape::object ? "." : "[].";
    for (const Field& inner : field.inside->fields)
      if (inner.standing != Standing::absent) row(fmt::format("{}{}{}", field.name, between, inner.name), inner);
  }
  return below.empty() ? out : out + "\n" + below;
}

}  // namespace millrace

// The fields of a chat about tools: what there is to call, and whether it must be; also in the older words, `functions`
// and `function_call`.
#include <algorithm>
#include <set>

#include "server/openai/read_request.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

struct Named {  // a list of functions: the field, and where in an entry the function is
  std::string_view list, choice;
  bool nested = true;
};
constexpr Named kNew = {"tools", "tool_choice", true}, kOld = {"functions", "function_call", false};

const Named& fields_of(const JsonObject& body) {
  const bool old = find(body, "functions") != nullptr || find(body, "function_call") != nullptr;
  return old && find(body, "tools") == nullptr ? kOld : kNew;
}

const JsonArray& list_of(const JsonObject& body, const Named& fields) {
  static const JsonArray none;
  const Json* list = find(body, fields.list);
  return list == nullptr ? none : list->get_array();
}

const Json& function_of(const Json& entry, const Named& fields) {
  return fields.nested ? *find(entry, "function") : entry;
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

Failure read_list(const JsonObject& body, const Named& fields, ToolUse& use) {
  std::set<std::string_view> names;
  const JsonArray& list = list_of(body, fields);
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& function = function_of(list[i], fields);
    const std::string path = fmt::format("{}.[{}]{}", fields.list, i, fields.nested ? ".function" : "");
    const std::string_view name = find(function, "name")->get_string();
    if (!is_name(name))
      return bad_field(path + ".name", fmt::format("'{}' is no name of a tool: letters, digits and _ - . : / are taken",
                                                   shortened(name)));
    if (!names.insert(name).second)
      return bad_field(path + ".name", fmt::format("there are two tools named '{}'", shortened(name)));
    Tool tool{.name = std::string(name)};
    if (const Json* parameters = find(function, "parameters")) {
      if (!parameters->is_object())
        return bad_field(path + ".parameters", fmt::format("'{}.parameters' must be a JSON Schema: an object", path));
      tool.parameters = *parameters;
    }
    const Json* strict = find(function, "strict");
    tool.strict = strict != nullptr && strict->get_bool();
    use.tools.push_back(std::move(tool));
  }
  return {};
}

Failure wrong_choice(const Named& fields) {
  return bad_field(fields.choice, fields.nested ? "'tool_choice' is none, auto, required, a function by its name, or "
                                                  "allowed_tools with mode and tools"
                                                : "'function_call' is none, auto, or an object with a name");
}

// Only these stay.
Failure keep(const std::set<std::string>& names, const Named& fields, ToolUse& use) {
  for (const std::string& name : names) {
    const bool known = std::any_of(use.tools.begin(), use.tools.end(), [&](const Tool& t) { return t.name == name; });
    if (!known)
      return bad_field(fields.choice, fmt::format("'{}' names '{}', which is not in '{}'", fields.choice,
                                                  shortened(name), fields.list));
  }
  std::erase_if(use.tools, [&](const Tool& tool) { return !names.contains(tool.name); });
  return {};
}

const Json* text_in(const Json* object, std::string_view name) {
  const Json* value = object == nullptr || !object->is_object() ? nullptr : find(*object, name);
  return value != nullptr && value->is_string() ? value : nullptr;
}

Failure read_allowed(const Json* allowed, ToolUse& use) {
  const Json *mode = text_in(allowed, "mode"), *list = mode == nullptr ? nullptr : find(*allowed, "tools");
  if (list == nullptr || !list->is_array() || list->get_array().empty()) return wrong_choice(kNew);
  if (*mode != Json("auto") && *mode != Json("required")) return wrong_choice(kNew);
  std::set<std::string> names;
  for (const Json& one : list->get_array()) {
    const Json* name = one.is_object() ? text_in(find(one, "function"), "name") : nullptr;
    if (name == nullptr) return wrong_choice(kNew);
    names.insert(std::string(name->get_string()));
  }
  use.required = *mode == Json("required");
  return keep(names, kNew, use);
}

Failure read_choice(const Json& choice, const Named& fields, ToolUse& use) {
  if (choice == Json("auto")) return {};
  if (choice == Json("required") && fields.nested) {
    use.required = true;
    return {};
  }
  if (!choice.is_object()) return wrong_choice(fields);
  const Json* type = fields.nested ? text_in(&choice, "type") : nullptr;
  if (type != nullptr && *type == Json("allowed_tools")) return read_allowed(find(choice, "allowed_tools"), use);
  if (fields.nested && (type == nullptr || *type != Json("function"))) return wrong_choice(fields);
  const Json* name = text_in(fields.nested ? find(choice, "function") : &choice, "name");
  if (name == nullptr) return wrong_choice(fields);
  use.required = use.single = true;
  return keep({std::string(name->get_string())}, fields, use);
}

bool is_none(const JsonObject& body, const Named& fields) {
  const Json* choice = find(body, fields.choice);
  return choice != nullptr && *choice == Json("none");
}

Failure check_together(const Named& fields, const RequestBody& out) {
  const bool json = out.bound && (out.bound->source.kind == GrammarKind::json_schema ||
                                  out.bound->source.kind == GrammarKind::json_object);
  if (out.bound && !json)
    return bad_field(out.bound->field,
                     fmt::format("'{}' does not go with '{}': a JSON Schema does", out.bound->field, fields.list));
  if (!out.tools->binds() || (out.request.min_tokens == 0 && !out.ignore_end)) return {};
  const std::string_view field = out.ignore_end ? "ignore_eos" : "min_tokens";
  return bad_field(field, fmt::format("'{}' does not go with '{}' that the answer is kept to", field, fields.list));
}

}  // namespace

JsonArray template_tools(const JsonObject& body) {
  const Named& fields = fields_of(body);
  JsonArray tools;
  if (is_none(body, fields)) return tools;
  for (const Json& entry : list_of(body, fields)) {
    const Json& given = function_of(entry, fields);
    const Json *description = find(given, "description"), *parameters = find(given, "parameters");
    JsonObject function = {{"name", *find(given, "name")}};
    function["description"] = description == nullptr ? Json("") : *description;
    function["parameters"] =
        parameters == nullptr ? JsonObject{{"type", "object"}, {"properties", JsonObject{}}} : *parameters;
    tools.push_back(JsonObject{{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

std::optional<ApiError> read_tools(const JsonObject& body, RequestBody& out) {
  const Named& fields = fields_of(body);
  auto use = std::make_shared<ToolUse>();
  if (find(body, "tools") != nullptr && find(body, "functions") != nullptr)
    return bad_field("functions", "'functions' is the older name of 'tools': give one of them");
  if (auto failure = read_list(body, fields, *use)) return failure;
  const Json* choice = find(body, fields.choice);
  if (use->tools.empty()) {
    if (choice != nullptr && *choice != Json("none") && *choice != Json("auto"))
      return bad_field(fields.choice,
                       fmt::format("'{}' asks for a call, but '{}' is empty", fields.choice, fields.list));
    return {};
  }
  if (is_none(body, fields)) return {};
  const Json* parallel = find(body, "parallel_tool_calls");
  use->single = !fields.nested || (parallel != nullptr && !parallel->get_bool());
  if (choice != nullptr) {
    if (auto failure = read_choice(*choice, fields, *use)) return failure;
  }
  out.functions = !fields.nested;
  out.tools = std::move(use);
  return check_together(fields, out);
}

}  // namespace millrace

#include "server/asked_tools.h"

#include <algorithm>
#include <memory>

namespace millrace {
namespace {

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

}  // namespace

std::optional<ApiError> AskedTools::add(const std::string& place, const Given& given) {
  if (!is_name(given.name))
    return bad_field(place + ".name", fmt::format("'{}' is no name of a tool: letters, digits and _ - . : / are taken",
                                                  shortened(given.name)));
  auto same = [&](const Tool& tool) { return tool.name == given.name; };
  if (std::any_of(use_.tools.begin(), use_.tools.end(), same))
    return bad_field(place + ".name", fmt::format("there are two tools named '{}'", shortened(given.name)));
  Tool tool;
  tool.name = std::string(given.name);
  tool.strict = given.strict;
  JsonObject function = {{"name", given.name}, {"description", given.description}};
  function["parameters"] = JsonObject{{"type", "object"}, {"properties", JsonObject{}}};
  if (given.parameters != nullptr) function["parameters"] = tool.parameters = *given.parameters;
  shown_.push_back(JsonObject{{"type", "function"}, {"function", std::move(function)}});
  use_.tools.push_back(std::move(tool));
  return {};
}

std::optional<ApiError> AskedTools::only(std::string_view field, std::string_view name) {
  auto other = [&](const Tool& tool) { return tool.name != name; };
  if (std::all_of(use_.tools.begin(), use_.tools.end(), other))
    return bad_field(field, fmt::format("'{}' names '{}', which is not in 'tools'", field, shortened(name)));
  std::erase_if(use_.tools, other);
  use_.required = use_.single = true;
  return {};
}

void AskedTools::put(RequestBody& out) && {
  if (use_.tools.empty()) return;
  out.chat_options.tools = std::move(shown_);
  out.tools = std::make_shared<const ToolUse>(std::move(use_));
}

JsonObject call_json(std::string_view id, std::string_view name, Json arguments) {
  JsonObject call = {{"type", "function"},
                     {"function", JsonObject{{"name", name}, {"arguments", std::move(arguments)}}}};
  if (!id.empty()) call["id"] = id;
  return call;
}

}  // namespace millrace

#include "text/call_probe.h"

namespace millrace {

namespace probe {

JsonObject tool(std::string_view name, const std::array<std::string_view, 2>& types) {
  JsonObject properties;
  for (size_t i = 0; i < types.size(); ++i)
    properties[kKeys[i]] = JsonObject{{"type", text_json(types[i])}, {"description", "A value."}};
  JsonObject parameters = {{"type", "object"}, {"properties", std::move(properties)}, {"required", JsonArray{}}};
  return {{"type", "function"},
          {"function",
           JsonObject{{"name", text_json(name)}, {"description", "A tool."}, {"parameters", std::move(parameters)}}}};
}

size_t before_mark(std::string_view text, size_t at) {
  const size_t open = text.substr(0, at).rfind('<');
  if (open == std::string_view::npos) return at;
  const size_t close = text.find('>', open);
  return close == std::string_view::npos || close < at || close - open > 64 ? at : open;
}
size_t after_mark(std::string_view text, size_t at) {
  const size_t open = before_mark(text, at);
  return open == at ? at : text.find('>', open) + 1;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \n\r\t";
  while (!text.empty() && kSpace.find(text.front()) != std::string_view::npos) text.remove_prefix(1);
  while (!text.empty() && kSpace.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return text;
}

std::string common_end(std::string_view a, std::string_view b) {
  size_t same = 0;
  while (same < a.size() && same < b.size() && a[a.size() - 1 - same] == b[b.size() - 1 - same]) ++same;
  return std::string(a.substr(a.size() - same));
}

std::optional<size_t> place(std::string_view text, std::string_view what, size_t from) {
  const size_t at = text.find(what, from);
  return at == std::string_view::npos ? std::nullopt : std::optional(at);
}

}  // namespace probe

using namespace probe;

JsonObject CallProbe::user() const {
  const Json hello = abilities_.text_content || !abilities_.part_content
                         ? text_json("Hello.")
                         : Json(JsonArray{JsonObject{{"type", "text"}, {"text", "Hello."}}});
  return {{"role", "user"}, {"content", hello}};
}

std::optional<std::string> CallProbe::turn(JsonObject message, const Types& types) const {
  if (!abilities_.text_content && abilities_.part_content && message["content"].is_string()) {
    const Json said = message["content"];
    message["content"] = JsonArray{JsonObject{{"type", "text"}, {"text", said}}};
  }
  const JsonArray tools = {tool(kNames[0], types), tool(kNames[1], types)};
  auto before = ask_({{"messages", JsonArray{user()}}, {"tools", tools}});
  auto after = ask_({{"messages", JsonArray{user(), std::move(message)}}, {"tools", tools}});
  if (!before.ok() || !after.ok()) return std::nullopt;
  size_t same = 0;
  while (same < before->size() && same < after->size() && (*before)[same] == (*after)[same]) ++same;
  return after->substr(same);
}

JsonObject CallProbe::calling(const std::vector<ProbeCall>& calls) const {
  JsonArray list;
  for (const ProbeCall& call : calls) {
    const Json arguments = abilities_.object_arguments || !abilities_.text_arguments
                               ? Json(call.arguments)
                               : text_json(to_text(call.arguments));
    list.push_back(JsonObject{{"id", text_json(call.id)},
                              {"type", "function"},
                              {"function", JsonObject{{"name", text_json(call.name)}, {"arguments", arguments}}}});
  }
  return {{"role", "assistant"}, {"content", text_json("")}, {"tool_calls", std::move(list)}};
}

std::string CallProbe::generation_prompt() const {
  const JsonArray messages = {user()}, tools = {tool(kNames[0], kStrings), tool(kNames[1], kStrings)};
  const auto before = ask_({{"messages", messages}, {"tools", tools}});
  const auto after = ask_({{"messages", messages}, {"tools", tools}, {"add_generation_prompt", true}});
  return before.ok() && after.ok() && after->starts_with(*before) ? after->substr(before->size()) : "";
}

std::optional<std::string> CallProbe::calls_part(const std::string& said, const std::vector<ProbeCall>& calls,
                                                 const Types& types, std::string& head) const {
  auto text = turn(calling(calls), types);
  const size_t words = said.find(kSaid);
  if (!text || words == std::string::npos) return std::nullopt;
  size_t begin = 0;
  while (begin < words && begin < text->size() && (*text)[begin] == said[begin]) ++begin;
  begin = before_mark(*text, begin);
  head = text->substr(0, begin);
  const std::string tail = common_end(std::string_view(*text).substr(begin), said.substr(words + kSaid.size()));
  text->resize(after_mark(*text, text->size() - tail.size()));
  return text->substr(begin);
}

}  // namespace millrace

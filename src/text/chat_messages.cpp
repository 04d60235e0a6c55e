#include "text/chat_messages.h"

namespace millrace {
namespace {

// A word no template contains, to be found in what it writes.
constexpr std::string_view kMark = "MillraceProbe";

Json text_json(std::string_view text) { return boost::json::string(text.data(), text.size()); }

Json parts_of(std::string_view text) { return JsonArray{JsonObject{{"type", "text"}, {"text", text_json(text)}}}; }

JsonObject message(std::string_view role, Json content) {
  return {{"role", text_json(role)}, {"content", std::move(content)}};
}

Json probe_tools() {
  JsonObject parameters = {
      {"type", "object"},
      {"properties", JsonObject{{"city", JsonObject{{"type", "string"}, {"description", "City"}}}}},
      {"required", JsonArray{"city"}}};
  JsonObject function = {{"name", text_json(kMark)}, {"description", "A tool."}, {"parameters", std::move(parameters)}};
  return JsonArray{JsonObject{{"type", "function"}, {"function", std::move(function)}}};
}

// A talk in which the assistant calls a tool with these arguments, and gets an answer.
JsonArray call_messages(const Json& user_content, Json arguments, Json assistant_content) {
  JsonObject call = {{"id", "call00001"},
                     {"type", "function"},
                     {"function", JsonObject{{"name", "lookup"}, {"arguments", std::move(arguments)}}}};
  JsonObject assistant = message("assistant", std::move(assistant_content));
  assistant["tool_calls"] = JsonArray{std::move(call)};
  JsonObject answer = message("tool", text_json("Sunny."));
  answer["tool_call_id"] = "call00001";
  answer["name"] = "lookup";
  return {message("user", user_content), std::move(assistant), std::move(answer)};
}

class Prober {
 public:
  explicit Prober(const Probe& probe) : probe_(probe) {}

  ChatAbilities run() {
    ChatAbilities found;
    found.text_content = shows(probe_({{"messages", JsonArray{message("user", text_json(kMark))}}}));
    auto parts = probe_({{"messages", JsonArray{message("user", parts_of(kMark))}}});
    // Printed as a Python list, or as JSON, it would be in the prompt too.
    found.part_content =
        shows(parts) && parts->find("'text'") == std::string::npos && parts->find("\"text\"") == std::string::npos;
    Json hello = found.text_content || !found.part_content ? text_json("Hello.") : parts_of("Hello.");
    Json marked = found.text_content || !found.part_content ? text_json(kMark) : parts_of(kMark);
    found.system = shows(probe_({{"messages", JsonArray{message("system", marked), message("user", hello)}}}));
    found.tools = shows(probe_({{"messages", JsonArray{message("user", hello)}}, {"tools", probe_tools()}}));
    probe_calls(found, hello);
    return found;
  }

 private:
  static bool shows(const Result<std::string>& text) { return text.ok() && text->find(kMark) != std::string::npos; }

  Result<std::string> call(const Json& hello, Json arguments, Json content) {
    return probe_(
        {{"messages", call_messages(hello, std::move(arguments), std::move(content))}, {"tools", probe_tools()}});
  }

  // Tools are given too, so the mark of the arguments is another one.
  void probe_calls(ChatAbilities& found, const Json& hello) {
    const std::string value = std::string(kMark) + "Value";
    const JsonObject arguments = {{"city", text_json(value)}};
    auto shows_value = [&](const Result<std::string>& text) {
      return text.ok() && text->find(value) != std::string::npos;
    };
    auto as_object = call(hello, arguments, text_json(""));
    auto as_text = call(hello, text_json(to_text(arguments)), text_json(""));
    // An object printed as Python's dict is no JSON.
    found.object_arguments = shows_value(as_object) && as_object->find("{'city'") == std::string::npos;
    // A text that is written as JSON once more is quoted: the quotes within it show.
    found.text_arguments = shows_value(as_text) && as_text->find("\\\"city\\\"") == std::string::npos;
    Json best = found.object_arguments || !found.text_arguments ? Json(arguments) : text_json(to_text(arguments));
    auto without_content = call(hello, best, nullptr);
    found.null_content = without_content.ok() && without_content->find("None") == std::string::npos;
  }

  const Probe& probe_;
};

Result<std::string> flatten(const JsonArray& parts, size_t number) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json* inner = parts[i].is_string() ? &parts[i] : find(parts[i], "text");
    TRY(std::string type, get_string(parts[i].is_object() ? parts[i] : Json(JsonObject()), "type", "text"));
    if ((type != "text" && type != "input_text" && type != "output_text") || inner == nullptr || !inner->is_string()) {
      return error(Code::unsupported,
                   "messages[{}].content[{}] is of type '{}', but this model's chat template takes text only", number,
                   i, type);
    }
    if (i > 0) text += '\n';
    text += inner->get_string();
  }
  return text;
}

Result<void> shape_content(JsonObject& message, const ChatAbilities& abilities, size_t number) {
  Json* content = message.if_contains("content");
  if (content == nullptr) return {};
  if (content->is_null() && !abilities.null_content && message.contains("tool_calls")) {
    *content = text_json("");
  } else if (content->is_array() && !abilities.part_content) {
    TRY(std::string text, flatten(content->get_array(), number));
    *content = text_json(text);
  } else if (content->is_string() && !abilities.text_content && abilities.part_content) {
    *content = parts_of(std::string(content->get_string()));
  }
  return {};
}

void shape_arguments(Json& call, const ChatAbilities& abilities) {
  if (!call.is_object()) return;
  Json* function = call.get_object().if_contains("function");
  if (function == nullptr || !function->is_object()) return;
  Json* arguments = function->get_object().if_contains("arguments");
  if (arguments == nullptr) return;
  if (arguments->is_string() && abilities.object_arguments) {
    auto parsed = parse_json(std::string_view(arguments->get_string().data(), arguments->get_string().size()));
    if (parsed.ok() && parsed->is_object()) *arguments = std::move(*parsed);
  } else if (arguments->is_object() && !abilities.object_arguments && abilities.text_arguments) {
    *arguments = text_json(to_text(*arguments));
  }
}

}  // namespace

ChatAbilities find_abilities(const Probe& probe) { return Prober(probe).run(); }

Result<Json> shape_messages(const Json& messages, const ChatAbilities& abilities) {
  if (!messages.is_array()) return error(Code::invalid, "'messages' should be an array");
  JsonArray shaped = messages.get_array();
  for (size_t i = 0; i < shaped.size(); ++i) {
    if (!shaped[i].is_object())
      return error(Code::invalid, "messages[{}] should be an object with role and content", i);
    JsonObject& each = shaped[i].get_object();
    TRY_VOID(shape_content(each, abilities, i));
    Json* calls = each.if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Json& call : calls->get_array()) shape_arguments(call, abilities);
  }
  return Json(std::move(shaped));
}

}  // namespace millrace

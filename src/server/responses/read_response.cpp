#include "server/responses/read_response.h"

#include "server/asked_bound.h"
#include "server/asked_tools.h"
#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/read_sampling.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

// A text, or parts of one.
std::string joined_text(const Json* content) {
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  std::string text;
  for (const Json& part : content->get_array()) {
    const Json* one = find(part, find(part, "type")->get_string() == "refusal" ? "refusal" : "text");
    if (one == nullptr) continue;
    if (!text.empty()) text += '\n';
    text += std::string_view(one->get_string());
  }
  return text;
}

Message message_of(std::string role, std::string content) {
  Message message;
  message.role = std::move(role);
  message.content = std::move(content);
  return message;
}

Failure missing(const std::string& field) {
  ApiError failure = bad_field(field, fmt::format("'{}' is missing", field));
  failure.code = "missing_required_parameter";
  return failure;
}

// Calls beside each other are one message of the assistant, with what it thought and said before.
Message& assistants(std::vector<Message>& out) {
  if (out.empty() || out.back().role != "assistant") out.push_back(message_of("assistant", ""));
  return out.back();
}

Failure read_call(const JsonObject& item, const std::string& place, std::vector<Message>& out) {
  const FieldReader read(item);
  for (std::string_view needed : {"call_id", "name"})
    if (!read.has(needed)) return missing(fmt::format("{}.{}", place, needed));
  Json arguments = read.text("arguments").empty() ? Json("{}") : Json(read.text("arguments"));
  if (read.has("input")) arguments = JsonObject{{"input", read.text("input")}};  // of a custom tool
  assistants(out).tool_calls.push_back(call_json(read.text("call_id"), read.text("name"), std::move(arguments)));
  return {};
}

Failure read_output(const JsonObject& item, const std::string& place, std::vector<Message>& out) {
  const FieldReader read(item);
  if (!read.has("call_id")) return missing(place + ".call_id");
  Message message = message_of("tool", joined_text(find(item, "output")));
  message.tool_call_id = read.text("call_id");
  for (const Message& before : out) {
    for (const Json& call : before.tool_calls) {
      const Json* id = find(call, "id");
      if (id != nullptr && *id == Json(message.tool_call_id))
        message.name = std::string(call.at("function").at("name").get_string());
    }
  }
  out.push_back(std::move(message));
  return {};
}

Failure read_message(const JsonObject& item, const std::string& place, std::vector<Message>& out) {
  const FieldReader read(item);
  if (!read.has("role")) return missing(place + ".role");
  if (!read.has("content")) return missing(place + ".content");
  std::string role = read.text("role"), text = joined_text(find(item, "content"));
  if (role == "developer") role = "system";  // the newer name
  const bool same = !out.empty() && out.back().role == role;
  if (role == "system" && same) {  // templates know one, in front
    out.back().content += "\n\n" + text;
  } else if (role == "assistant" && same && out.back().content.empty() && out.back().tool_calls.empty()) {
    out.back().content = std::move(text);  // after what it thought
  } else {
    out.push_back(message_of(std::move(role), std::move(text)));
  }
  return {};
}

Failure read_item(const JsonObject& item, const std::string& place, std::vector<Message>& out) {
  const FieldReader read(item);
  const std::string type = read.has("type") ? read.text("type") : "message";
  if (type == "message") return read_message(item, place, out);
  if (type.ends_with("_output")) return read_output(item, place, out);
  if (type != "reasoning") return read_call(item, place, out);
  const std::string thought = joined_text(find(item, "content"));
  if (thought.empty()) return {};
  out.push_back(message_of("assistant", ""));
  out.back().reasoning = thought;
  return {};
}

Failure read_choice(const Json& choice, AskedTools& asked) {
  if (choice == Json("auto")) return {};
  if (asked.empty())
    return bad_field("tool_choice", "'tool_choice' asks for a call, but there is nothing in 'tools' to call");
  if (choice == Json("required")) {
    asked.require();
    return {};
  }
  const Json* name = choice.is_object() ? find(choice, "name") : nullptr;
  const Json* type = choice.is_object() ? find(choice, "type") : nullptr;
  if (name != nullptr && name->is_string() && type != nullptr && *type == Json("function"))
    return asked.only("tool_choice", name->get_string());
  return bad_field("tool_choice", "'tool_choice' is auto, none, required, or a function by its name");
}

Failure read_tools(const JsonObject& body, RequestBody& out) {
  AskedTools asked;
  const Json *list = find(body, "tools"), *choice = find(body, "tool_choice");
  for (size_t i = 0; list != nullptr && i < list->get_array().size(); ++i) {
    const JsonObject& tool = list->get_array()[i].get_object();
    const FieldReader read(tool);
    if (read.text("type") != "function") {  // what the server would run itself, or cannot offer
      out.ignored.insert(fmt::format("tools.[].type:{}", shortened(read.text("type"))));
      continue;
    }
    const std::string name = read.text("name"), description = read.text("description");
    if (auto failure = asked.add(fmt::format("tools.[{}]", i),
                                 {name, description, find(tool, "parameters"), read.flag("strict", false)}))
      return failure;
  }
  if (choice != nullptr && *choice == Json("none")) return {};
  if (choice != nullptr) {
    if (auto failure = read_choice(*choice, asked)) return failure;
  }
  if (!FieldReader(body).flag("parallel_tool_calls", true)) asked.single();
  std::move(asked).put(out);
  return {};
}

Failure read_input(const JsonObject& body, RequestBody& out) {
  const std::string instructions = FieldReader(body).text("instructions");
  if (!instructions.empty()) out.messages.push_back(message_of("system", instructions));
  out.instructions = instructions;
  const Json* input = find(body, "input");
  if (input->is_string()) {
    out.messages.push_back(message_of("user", std::string(input->get_string())));
    return {};
  }
  size_t index = 0;
  for (const Json& item : input->get_array()) {
    if (auto failure = read_item(item.get_object(), fmt::format("input.[{}]", index++), out.messages)) return failure;
  }
  if (out.messages.empty()) return bad_field("input", "'input' has no message");
  return {};
}

Failure read_format(const JsonObject& body, RequestBody& out) {
  const Json* text = find(body, "text");
  const Json* format = text != nullptr ? find(*text, "format") : nullptr;
  if (format == nullptr) return {};
  const std::string_view type = find(*format, "type")->get_string();
  if (type == "text") return {};
  if (type == "json_object") return add_bound(out, {.kind = GrammarKind::json_object, .text = {}}, "text.format");
  const Json* schema = find(*format, "schema");
  if (schema == nullptr) return missing("text.format.schema");
  return add_bound(out, schema_source(*schema), "text.format.schema");
}

void read_reasoning(const JsonObject& body, RequestBody& out) {
  const Json* reasoning = find(body, "reasoning");
  const Json* effort = reasoning != nullptr ? find(*reasoning, "effort") : nullptr;
  if (effort == nullptr) return;
  const std::string_view says = effort->get_string();
  out.chat_options.variables["enable_thinking"] = says != "none" && says != "minimal";
  if (says != "none") out.chat_options.variables["reasoning_effort"] = *effort;
}

}  // namespace

std::optional<ApiError> read_response(std::string_view body, const BodyLimits& limits, RequestBody& out,
                                      const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_checked(body, responses_bodies(), kResponse, limits, object, out.ignored)) return failure;
  const FieldReader read(object);
  out.chat = true;
  out.model = read.text("model");
  out.stream = read.flag("stream", false);
  out.max_tokens = read.integer("max_output_tokens", 0);
  out.up_to = true;
  out.user = read.text("user");
  out.salt = read.text("cache_salt");
  out.keep = read.flag("store", true);
  out.previous = read.text("previous_response_id");
  read_reasoning(object, out);
  if (auto failure = read_input(object, out)) return failure;
  if (auto failure = read_format(object, out)) return failure;
  if (auto failure = read_tools(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace

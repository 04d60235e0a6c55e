#include "server/anthropic/read_messages.h"

#include "server/asked_bound.h"
#include "server/asked_thinking.h"
#include "server/asked_tools.h"
#include "server/checked_body.h"
#include "server/field_reader.h"
#include "server/read_sampling.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

// Claude Code begins with a line that differs from request to request. Left in, no prefix would ever be found again.
constexpr std::string_view kBilling = "x-anthropic-billing-header";

std::string_view without_billing(std::string_view text) {
  if (!text.starts_with(kBilling)) return text;
  const size_t end = text.find('\n');
  return end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
}

void add_line(std::string& out, std::string_view text) {
  if (text.empty()) return;
  if (!out.empty()) out += '\n';
  out += text;
}

std::string system_text(const Json& system) {
  if (system.is_string()) return std::string(without_billing(system.get_string()));
  std::string text;
  for (const Json& part : system.get_array()) add_line(text, without_billing(find(part, "text")->get_string()));
  return text;
}

Failure missing(const std::string& place, std::string_view name) {
  ApiError failure = bad_field(place + "." + std::string(name), fmt::format("'{}.{}' is missing", place, name));
  failure.code = "missing_required_parameter";
  return failure;
}

// A text, or parts of type text.
std::string joined_text(const Json* content) {
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  std::string text;
  for (const Json& part : content->get_array()) add_line(text, find(part, "text")->get_string());
  return text;
}

// What a call gave is a message of its own.
Failure read_result(const JsonObject& part, const std::string& place, std::vector<Message>& out) {
  const FieldReader read(part);
  if (!read.has("tool_use_id")) return missing(place, "tool_use_id");
  Message message;
  message.role = "tool";
  message.content = joined_text(find(part, "content"));
  message.tool_call_id = read.text("tool_use_id");
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

// One part of a message, added to it, or to those before it.
Failure read_part(const JsonObject& part, const std::string& place, Message& message, std::vector<Message>& out) {
  const FieldReader read(part);
  const std::string type = read.text("type");
  if (type == "tool_result") return read_result(part, place, out);
  if (type == "tool_use") {
    for (std::string_view needed : {"id", "name"})
      if (!read.has(needed)) return missing(place, needed);
    const Json* input = find(part, "input");
    message.tool_calls.push_back(
        call_json(read.text("id"), read.text("name"), input != nullptr ? *input : Json(JsonObject())));
  }
  if (type == "thinking") add_line(message.reasoning, read.text("thinking"));
  if (type != "text") return {};
  if (!read.has("text")) return missing(place, "text");
  add_line(message.content, read.text("text"));
  return {};
}

// Neighbours of one role are one turn.
bool goes_on(const Message& message, const std::vector<Message>& out) {
  return !out.empty() && out.back().role == message.role && out.back().tool_calls.empty() && message.tool_calls.empty();
}

Failure read_message(const Json& given, const std::string& place, std::vector<Message>& out) {
  Message message;
  message.role = std::string(find(given, "role")->get_string());
  const Json* content = find(given, "content");
  if (content->is_string()) {
    message.content = std::string(content->get_string());
  } else {
    const size_t before = out.size();
    size_t index = 0;
    for (const Json& part : content->get_array()) {
      const std::string here = fmt::format("{}.content.[{}]", place, index++);
      if (auto failure = read_part(part.get_object(), here, message, out)) return failure;
    }
    if (out.size() > before && message.content.empty()) return {};  // results and nothing else
  }
  if (goes_on(message, out)) {
    add_line(out.back().content, message.content);
  } else {
    out.push_back(std::move(message));
  }
  return {};
}

Failure read_conversation(const JsonObject& body, RequestBody& out) {
  if (const Json* system = find(body, "system")) {
    std::string text = system_text(*system);
    if (!text.empty()) {
      Message first;
      first.role = "system";
      first.content = std::move(text);
      out.messages.push_back(std::move(first));
    }
  }
  size_t index = 0;
  for (const Json& message : find(body, "messages")->get_array()) {
    if (auto failure = read_message(message, fmt::format("messages.[{}]", index++), out.messages)) return failure;
  }
  const Message& last = out.messages.back();
  out.chat_options.continue_last = last.role == "assistant" && !last.content.empty() && last.tool_calls.empty();
  return {};
}

Failure read_thinking(const JsonObject& body, RequestBody& out) {
  const Json* thinking = find(body, "thinking");
  if (thinking == nullptr) return {};
  const FieldReader read(thinking->get_object());
  const bool limited = read.has("budget_tokens");
  if (limited && read.text("type") != "enabled") out.ignored.insert("thinking.budget_tokens");
  if (limited && read.text("type") == "enabled") {
    const int tokens = read.integer("budget_tokens", 0);
    if (auto failure = limit_thinking(out, tokens, "thinking.budget_tokens")) return failure;
    if (tokens == 0) return {};
  }
  out.chat_options.variables["enable_thinking"] = read.text("type") != "disabled";
  return {};
}

Failure read_format(const JsonObject& body, RequestBody& out) {
  if (const Json* config = find(body, "output_config")) {
    const Json* format = find(*config, "format");
    if (format != nullptr) {
      if (auto failure = add_bound(out, schema_source(*find(*format, "schema")), "output_config.format.schema"))
        return failure;
    }
  }
  if (const Json* format = find(body, "output_format"))
    return add_bound(out, schema_source(*find(*format, "schema")), "output_format.schema");
  return {};
}

Failure read_tools(const JsonObject& body, RequestBody& out) {
  AskedTools asked;
  const Json *list = find(body, "tools"), *choice = find(body, "tool_choice");
  for (size_t i = 0; list != nullptr && i < list->get_array().size(); ++i) {
    const JsonObject& tool = list->get_array()[i].get_object();
    const FieldReader read(tool);
    if (read.has("type") && read.text("type") != "custom") {
      out.ignored.insert(fmt::format("tools.[].type:{}", shortened(read.text("type"))));
      continue;
    }
    const std::string name = read.text("name"), description = read.text("description");
    if (auto failure = asked.add(fmt::format("tools.[{}]", i),
                                 {name, description, find(tool, "input_schema"), read.flag("strict", false)}))
      return failure;
  }
  if (choice != nullptr) {
    const FieldReader read(choice->get_object());
    const std::string type = read.text("type");
    if (type == "none") return {};
    if (asked.empty() && type != "auto")
      return bad_field("tool_choice", "'tool_choice' asks for a call, but there is nothing in 'tools' to call");
    if (type == "any") asked.require();
    if (read.flag("disable_parallel_tool_use", false)) asked.single();
    if (type == "tool") {
      if (auto failure = asked.only("tool_choice", read.text("name"))) return failure;
    }
  }
  std::move(asked).put(out);
  return {};
}

}  // namespace

std::optional<ApiError> read_messages(std::string_view body, MessagesBody kind, const BodyLimits& limits,
                                      RequestBody& out, const SamplingDefaults& defaults) {
  JsonObject object;
  if (auto failure = read_checked(body, anthropic_bodies(), kind, limits, object, out.ignored)) return failure;
  const FieldReader read(object);
  out.chat = true;
  out.model = read.text("model");
  out.stream = read.flag("stream", false);
  out.max_tokens = read.integer("max_tokens", 0);
  out.up_to = true;
  out.stops = read.texts("stop_sequences");
  out.salt = read.text("cache_salt");
  if (auto failure = read_conversation(object, out)) return failure;
  if (auto failure = read_thinking(object, out)) return failure;
  if (auto failure = read_format(object, out)) return failure;
  if (auto failure = read_tools(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace

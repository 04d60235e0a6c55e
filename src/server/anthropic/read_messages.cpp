#include "server/anthropic/read_messages.h"

#include "server/asked_bound.h"
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

// One part of a message, added to it.
Failure read_part(const Json& part, const std::string& place, Message& out) {
  const std::string_view type = find(part, "type")->get_string();
  if (type == "tool_use" || type == "tool_result")
    return not_built(place, fmt::format("'{}' is a {}: tool calls are not built", place, type));
  if (type != "text") return {};  // what was thought before is not told again
  const Json* text = find(part, "text");
  if (text == nullptr) return missing(place, "text");
  add_line(out.content, text->get_string());
  return {};
}

Failure read_message(const Json& message, const std::string& place, std::vector<Message>& out) {
  Message read;
  read.role = std::string(find(message, "role")->get_string());
  const Json* content = find(message, "content");
  if (content->is_string()) {
    read.content = std::string(content->get_string());
  } else {
    size_t index = 0;
    for (const Json& part : content->get_array()) {
      if (auto failure = read_part(part, fmt::format("{}.content.[{}]", place, index++), read)) return failure;
    }
  }
  if (!out.empty() && out.back().role == read.role) {  // neighbours of one role are one turn
    add_line(out.back().content, read.content);
  } else {
    out.push_back(std::move(read));
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
  out.chat_options.continue_last = last.role == "assistant" && !last.content.empty();
  if (const Json* thinking = find(body, "thinking"))
    out.chat_options.variables["enable_thinking"] = find(*thinking, "type")->get_string() != "disabled";
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
  if (auto failure = read_format(object, out)) return failure;
  return read_sampling(object, defaults, out);
}

}  // namespace millrace
